"""Encoder: each position starts as the sum of a token's embedding and its own.

    out[b,t,c] = wte[tokens[b,t],c] + wpe[t,c]

Backward, each row of a table gathers from wherever it was used:

    dwte[v,c] = sum of dout[b,t,c] over the (b,t) with tokens[b,t] = v
    dwpe[t,c] = sum of dout[b,t,c] over b

Sources: Radford et al. 2019 (GPT-2); llm.c, train_gpt2.c.
"""

import numpy as np

from .contract import op


@op
def encoder_forward(out, tokens, wte, wpe):
    """Look up the embeddings of tokens and positions, and add them.

    out     f   (B, T, C)  writes
    tokens  i32 (B, T)     reads   in [0, Vp)
    wte     f   (Vp, C)    reads   token embeddings
    wpe     f   (maxT, C)  reads   position embeddings, T <= maxT
    """
    T = out.shape[1]
    out[:] = wte[tokens] + wpe[:T]


@op
def encoder_backward(dwte, dwpe, dout, tokens, *, accumulate):
    """Give the gradients of both tables, given that of `out`.

    In GPT-2 `wte` is also the classifier's weight, so that `dwte` already holds a part: call with
    accumulate=True then, after zeroing `dwpe` if it is new.

    dwte    f   (Vp, C)    accumulates  rows of unused tokens get 0
    dwpe    f   (maxT, C)  accumulates  rows from T on get 0
    dout    f   (B, T, C)  reads
    tokens  i32 (B, T)     reads
    """
    T, C = dout.shape[1:]
    if not accumulate:
        dwte[:] = 0
        dwpe[:] = 0
    np.add.at(dwte, tokens.reshape(-1), dout.reshape(-1, C))  # a token may occur many times
    dwpe[:T] += dout.sum(0)
