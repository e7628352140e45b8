"""The ops that multiply matrices, written out in loops over single numbers.

They are the truth that the reference is held to where arrays could hide a mistake: which numbers
bfloat16 rounds, and what a NaN reaches. `r(what, x)` is called on each operand of a product; `what`
names it, and the product where there are several.
"""

import numpy as np


def plain(what, x):
    """Leave every operand as it is."""
    return x


def matmul(inp, weight, bias, r=plain):
    """Give out of matmul_forward."""
    out = np.zeros((*inp.shape[:2], len(weight)))
    for b, t, o in np.ndindex(out.shape):
        for c in range(inp.shape[2]):
            out[b, t, o] += r("inp", inp[b, t, c]) * r("weight", weight[o, c])
        out[b, t, o] += r("bias", bias[o])
    return out


def matmul_gradients(dout, inp, weight, r=plain):
    """Give dinp, dweight and dbias of matmul_backward."""
    dinp, dweight, dbias = np.zeros(inp.shape), np.zeros(weight.shape), np.zeros(len(weight))
    for b, t, o in np.ndindex(dout.shape):
        d = dout[b, t, o]
        for c in range(inp.shape[2]):
            dinp[b, t, c] += r("dout of dinp", d) * r("weight of dinp", weight[o, c])
            dweight[o, c] += r("dout of dweight", d) * r("inp of dweight", inp[b, t, c])
        dbias[o] += r("dout of dbias", d)
    return dinp, dweight, dbias


def heads(qkv, NH):
    """Go through b, h and query, key and value, each (T, HS), of every head."""
    B, _, C3 = qkv.shape
    HS = C3 // 3 // NH
    for b, h in np.ndindex(B, NH):
        yield b, h, *(qkv[b, :, i : i + HS] for i in range(h * HS, C3, C3 // 3))


def scores(query, key, t, r):
    """Give the scores of one position, the sums scaled when they are made."""
    row = np.zeros(t + 1)
    for t2 in range(t + 1):
        for i in range(query.shape[1]):
            row[t2] += r("query", query[t, i]) * r("key", key[t2, i])
        row[t2] *= query.shape[1] ** -0.5
    return row


def attention(qkv, NH, r=plain):
    """Give out and lse of attention_forward."""
    B, T, C3 = qkv.shape
    out, lse = np.zeros((B, T, C3 // 3)), np.zeros((B, NH, T))
    for b, h, query, key, value in heads(qkv, NH):
        HS = query.shape[1]
        for t in range(T):
            row = scores(query, key, t, r)
            largest = row.max()
            exp = np.exp(row - largest)
            total = 0
            for x in exp:
                total += r("exp of total", x)
            lse[b, h, t] = r("lse", largest + np.log(total))
            for t2 in range(t + 1):
                for i in range(HS):
                    out[b, t, h * HS + i] += r("exp", exp[t2]) * r("value", value[t2, i])
            out[b, t, h * HS : h * HS + HS] /= total
    return out, lse


def attention_gradient(dout, out, lse, qkv, NH, r=plain):
    """Give dqkv of attention_backward."""
    C = dout.shape[2]
    dqkv = np.zeros(qkv.shape)
    for b, h, query, key, value in heads(qkv, NH):
        T, HS = query.shape
        mine = slice(h * HS, h * HS + HS)
        do, o = dout[b, :, mine], out[b, :, mine]
        dquery, dkey, dvalue = (dqkv[b, :, i : i + HS] for i in range(h * HS, 3 * C, C))
        for t in range(T):
            row = scores(query, key, t, r)
            dout_out = 0
            for i in range(HS):
                dout_out += r("dout of D", do[t, i]) * r("out of D", o[t, i])
            for t2 in range(t + 1):
                att = np.exp(row[t2] - lse[b, h, t])
                datt = 0
                for i in range(HS):
                    datt += r("dout of datt", do[t, i]) * r("value of datt", value[t2, i])
                dpreatt = r("att of dpreatt", att) * (datt - dout_out)
                for i in range(HS):
                    dvalue[t2, i] += r("att of dvalue", att) * r("dout of dvalue", do[t, i])
                    dquery[t, i] += r("dpreatt of dquery", dpreatt) * r("key of dquery", key[t2, i])
                    dkey[t2, i] += r("dpreatt of dkey", dpreatt) * r("query of dkey", query[t, i])
        dquery *= HS**-0.5
        dkey *= HS**-0.5
    return dqkv


def classifier(lnf, wte, targets, V, r=plain):
    """Give the losses of classifier_forward, and the probabilities."""
    losses, probs = np.zeros(targets.shape), matmul(lnf, wte[:V], np.zeros(V), r)
    for at, target in np.ndenumerate(targets):
        shifted = probs[at] - probs[at].max()  # of the logits
        total = np.exp(shifted).sum()
        losses[at] = np.log(total) - shifted[target]
        probs[at] = np.exp(shifted) / total
    return losses, probs


def classifier_gradients(lnf, wte, targets, V, dloss, r=plain):
    """Give losses, dlnf and dwte of classifier_forward_backward: lnf is inp, and wte weight."""
    losses, dlogits = classifier(lnf, wte, targets, V, r)
    for at, target in np.ndenumerate(targets):
        dlogits[(*at, target)] -= 1
    dlnf, dwte, _ = matmul_gradients(dlogits * dloss, lnf, wte[:V], r)
    return losses, dlnf, np.concatenate([dwte, np.zeros((len(wte) - V, wte.shape[1]))])
