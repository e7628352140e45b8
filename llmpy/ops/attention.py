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

This reference forms the (T, T) matrices; a backend must not. The maximum that is taken out of the
log-sum-exp is the true one, and masked scores are minus infinity.

Sources: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; Dao et al. 2022,
https://arxiv.org/abs/2205.14135; llm.c, train_gpt2.c.
"""

import math
from typing import Any

import numpy as np

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


def _masked_scores(query, key):
    """Give preatt (B, NH, T, T), minus infinity above the diagonal."""
    T, HS = query.shape[-2:]
    causal = np.tri(T, dtype=bool)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(HS)
    return np.where(causal, scores, -np.inf)


@op
def attention_scores(preatt, att, qkv, *, NH):
    """Give the scores and the weights of attention, as the C program keeps them.

    preatt  f (B, NH, T, T)  writes  scores; 0 above the diagonal, which llm.c leaves unwritten
    att     f (B, NH, T, T)  writes  softmax of each row; 0 above the diagonal
    qkv     f (B, T, 3C)     reads
    """
    query, key, _ = _queries_keys_values(qkv, NH)
    scores = _masked_scores(query, key)
    att[:] = np.exp(scores - scores.max(-1, keepdims=True))
    att /= att.sum(-1, keepdims=True)
    preatt[:] = np.where(np.tri(scores.shape[-1], dtype=bool), scores, 0)


@op
def attention_forward(out, lse, qkv, *, NH):
    """Let each position attend to itself and to those before it, in each head.

    out  f (B, T, C)    writes
    lse  f (B, NH, T)   writes  log-sum-exp of each row of scores, kept for the backward pass
    qkv  f (B, T, 3C)   reads   query, key, value
    """
    query, key, value = _queries_keys_values(qkv, NH)
    scores = _masked_scores(query, key)
    largest = scores.max(-1, keepdims=True)  # finite: a position always sees itself
    exp = np.exp(scores - largest)
    total = exp.sum(-1, keepdims=True)
    lse[:] = (largest + np.log(total))[..., 0]
    out[:] = _merge_heads((exp / total) @ value)


@op
def attention_backward(dqkv, dout, out, lse, qkv, *, NH):
    """Give the gradient of `qkv`, given that of `out`.

    dqkv  f (B, T, 3C)   writes
    dout  f (B, T, C)    reads
    out   f (B, T, C)    reads  as the forward pass wrote it
    lse   f (B, NH, T)   reads
    qkv   f (B, T, 3C)   reads
    """
    query, key, value = _queries_keys_values(qkv, NH)
    dout_heads, out_heads = split_heads(dout, NH), split_heads(out, NH)
    scale = 1 / math.sqrt(query.shape[-1])
    att = np.exp(_masked_scores(query, key) - lse[..., None])  # 0 above the diagonal
    # forward was: out = att @ value
    dvalue = att.swapaxes(-1, -2) @ dout_heads
    datt = dout_heads @ value.swapaxes(-1, -2)
    # forward was: att = softmax(preatt)
    dpreatt = att * (datt - (dout_heads * out_heads).sum(-1, keepdims=True))
    # forward was: preatt = query @ key.T * scale
    dquery = dpreatt @ key * scale
    dkey = dpreatt.swapaxes(-1, -2) @ query * scale
    dqkv[:] = np.concatenate([_merge_heads(x) for x in (dquery, dkey, dvalue)], axis=-1)
