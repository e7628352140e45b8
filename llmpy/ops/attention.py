"""Attention: each position takes a weighted mean of the values at its own and earlier positions.

`qkv` holds query, key and value side by side, each cut into NH heads of HS = C / NH channels. In
each head, for t2 <= t (causal), and with the sums over t2 <= t:

    preatt[t,t2] = <query[t], key[t2]> / sqrt(HS)
    lse   [t]    = log(sum of exp(preatt[t,t2]))
    att   [t,t2] = exp(preatt[t,t2] - lse[t])
    out   [t]    = sum of att[t,t2] * value[t2]

Backward, from lse alone: att is made again, and the sum that softmax's backward needs,
sum over t2 of att[t,t2] * datt[t,t2], is just <dout[t], out[t]>:

    datt   [t,t2] = <dout[t], value[t2]>
    dpreatt[t,t2] = att[t,t2] * (datt[t,t2] - <dout[t], out[t]>)
    dquery [t]    = sum over t2 of dpreatt[t,t2] * key[t2] / sqrt(HS)
    dkey   [t2]   = sum over t  of dpreatt[t,t2] * query[t] / sqrt(HS)
    dvalue [t2]   = sum over t  of att[t,t2] * dout[t]

The sums really leave the later positions out, so that a NaN or infinity there has no influence: a
weight of 0 would let it through. The maximum that is taken out of the log-sum-exp is the true one.
No backend forms the (T, T) matrices; `attention_scores` does, for those who want to see them.

With bf16=True the two operands of each matrix product are rounded (bfloat16.py) just before they
are multiplied, r() below, and the factor 1 / sqrt(HS) comes after the product. lse, the sum of the
weights, <dout, out> and the other products are as without it:

    preatt = <r(query), r(key)> / sqrt(HS)      datt   = <r(dout), r(value)>
    exp    = exp(preatt - largest of the row)   dquery = (sum of r(dpreatt) * r(key)) / sqrt(HS)
    out    = (sum of r(exp) * r(value))         dkey   = (sum of r(dpreatt) * r(query)) / sqrt(HS)
             / sum of exp                       dvalue = sum of r(att) * r(dout)

Sources: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; Dao et al. 2022,
https://arxiv.org/abs/2205.14135; llm.c, train_gpt2.c.
"""

import math
from typing import Any

import numpy as np

from ..bfloat16 import operands
from .contract import op


def split_heads(x: Any, NH: int) -> Any:
    """View (B, T, C) as (B, NH, T, HS)."""
    B, T, C = x.shape
    return x.reshape(B, T, NH, C // NH).transpose(0, 2, 1, 3)


def _merge_heads(x):
    """Bring (B, NH, T, HS) back to (B, T, C)."""
    B, NH, T, HS = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, NH * HS)


def _queries_keys_values(qkv, NH):
    """Give query, key and value, each (B, NH, T, HS)."""
    return [split_heads(x, NH) for x in np.split(qkv, 3, axis=-1)]


def _scores(query, key, t):
    """Give the row of scores of position t, (B, NH, t + 1)."""
    products = _row_times(query[..., t, :], key[..., : t + 1, :].swapaxes(-1, -2))
    return products / math.sqrt(query.shape[-1])


def _row_times(row, matrix):
    """Give row @ matrix in each head."""
    return (row[..., None, :] @ matrix)[..., 0, :]


@op
def attention_scores(preatt, att, qkv, *, NH):
    """Give the scores and the weights of attention, as the C program keeps them.

    preatt  f (B, NH, T, T)  writes  scores; 0 above the diagonal, which llm.c leaves unwritten
    att     f (B, NH, T, T)  writes  softmax of each row; 0 above the diagonal
    qkv     f (B, T, 3C)     reads
    """
    query, key, _ = _queries_keys_values(qkv, NH)
    preatt[:] = att[:] = 0
    for t in range(qkv.shape[1]):
        row = _scores(query, key, t)
        exp = np.exp(row - row.max(-1, keepdims=True))
        preatt[..., t, : t + 1] = row
        att[..., t, : t + 1] = exp / exp.sum(-1, keepdims=True)


@op
def attention_forward(out, lse, qkv, *, NH, bf16=False):
    """Let each position attend to itself and to those before it, in each head.

    out  f (B, T, C)    writes
    lse  f (B, NH, T)   writes  log-sum-exp of each row of scores, kept for the backward pass
    qkv  f (B, T, 3C)   reads   query, key, value
    """
    query, key, value = operands(bf16, *_queries_keys_values(qkv, NH))
    out_heads = np.empty_like(query)
    for t in range(qkv.shape[1]):
        preatt = _scores(query, key, t)
        largest = preatt.max(-1)
        exp = np.exp(preatt - largest[..., None])
        total = exp.sum(-1)
        lse[..., t] = largest + np.log(total)
        (r_exp,) = operands(bf16, exp)
        out_heads[..., t, :] = _row_times(r_exp, value[..., : t + 1, :]) / total[..., None]
    out[:] = _merge_heads(out_heads)


@op
def attention_backward(dqkv, dout, out, lse, qkv, *, NH, bf16=False):
    """Give the gradient of `qkv`, given that of `out`.

    dqkv  f (B, T, 3C)   writes
    dout  f (B, T, C)    reads
    out   f (B, T, C)    reads  as the forward pass wrote it
    lse   f (B, NH, T)   reads
    qkv   f (B, T, 3C)   reads
    """
    query, key, value = operands(bf16, *_queries_keys_values(qkv, NH))
    (r_dout,) = operands(bf16, split_heads(dout, NH))
    dout_out = split_heads(dout * out, NH).sum(-1)
    dquery, dkey, dvalue = (np.zeros_like(query) for _ in range(3))
    for t in range(qkv.shape[1]):
        seen = np.s_[..., : t + 1, :]
        att = np.exp(_scores(query, key, t) - lse[..., t, None])
        # forward was: out = att @ value
        datt = _row_times(r_dout[..., t, :], value[seen].swapaxes(-1, -2))
        # forward was: att = softmax(preatt)
        dpreatt = att * (datt - dout_out[..., t, None])
        r_att, r_dpreatt = operands(bf16, att, dpreatt)
        dvalue[seen] += r_att[..., None] * r_dout[..., t, None, :]
        # forward was: preatt = query @ key.T * scale
        dquery[..., t, :] = _row_times(r_dpreatt, key[seen])
        dkey[seen] += r_dpreatt[..., None] * query[..., t, None, :]
    scale = 1 / math.sqrt(query.shape[-1])
    gradients = (dquery * scale, dkey * scale, dvalue)
    dqkv[:] = np.concatenate([_merge_heads(x) for x in gradients], axis=-1)
