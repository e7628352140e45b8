"""Classifier: the head and the loss in one, so that the logits need not be kept.

    logits = lnf @ wte.T             (B, T, V)
    losses = crossentropy(logits)

Backward, with dlosses = dloss at every position:

    dlogits = (softmax(logits) - onehot) * dloss
    dlnf    = dlogits @ wte
    dwte    = dlogits.T @ lnf

With bf16=True the operands of the three products are rounded (bfloat16.py), as in matmul.py:
r(lnf) r(wte), r(dlogits) r(wte), r(dlogits) r(lnf). Softmax and losses are as without it.

The weight is the token embedding, tied. Only its first V rows take part; the padded ones have
gradient 0. This reference makes all logits at once; a backend works in chunks of positions.

Sources: llm.c, train_gpt2.c; Press and Wolf 2016, https://arxiv.org/abs/1608.05859.
"""

import numpy as np

from ..bfloat16 import operands
from .contract import op
from .crossentropy import crossentropy_forward, crossentropy_softmax_backward
from .matmul import matmul_backward, matmul_forward
from .softmax import softmax_forward


@op
def logits_forward(logits, lnf, wte, *, bf16=False):
    """Give the logits of N positions, to sample from or to look at.

    logits  f (N, Vp)  writes  also the padded columns: leave them out
    lnf     f (N, C)   reads
    wte     f (Vp, C)  reads
    """
    r_lnf, r_wte = operands(bf16, lnf, wte)
    logits[:] = r_lnf @ r_wte.T


@op
def classifier_forward(losses, lnf, wte, targets, *, V, bf16=False):
    """Give the loss of each position: matmul_forward, then crossentropy_forward.

    losses   f   (B, T)     writes
    lnf      f   (B, T, C)  reads   the last LayerNorm's output
    wte      f   (Vp, C)    reads   the first V rows
    targets  i32 (B, T)     reads   in [0, V)
    """
    logits = np.empty((*losses.shape, V), lnf.dtype)
    matmul_forward(logits, lnf, wte[:V], None, bf16=bf16)
    crossentropy_forward(losses, logits, targets, V=V)


@op
def classifier_forward_backward(
    losses, dlnf, dwte, lnf, wte, targets, *, V, dloss, accumulate, bf16=False
):
    """Give the losses and, given `dloss` for each of them, the gradients of `lnf` and `wte`.

    matmul_forward, crossentropy_forward, softmax_forward, crossentropy_softmax_backward and
    matmul_backward, one after the other.

    losses   f   (B, T)     writes
    dlnf     f   (B, T, C)  writes
    dwte     f   (Vp, C)    accumulates  padded rows get 0
    lnf      f   (B, T, C)  reads        the last LayerNorm's output
    wte      f   (Vp, C)    reads        the first V rows
    targets  i32 (B, T)     reads        in [0, V)
    """
    logits = np.empty((*losses.shape, V), lnf.dtype)
    probs = np.empty_like(logits)
    matmul_forward(logits, lnf, wte[:V], None, bf16=bf16)
    crossentropy_forward(losses, logits, targets, V=V)
    softmax_forward(probs, logits, V=V)
    dlosses = np.full_like(losses, dloss)
    dlogits = np.zeros_like(logits)
    crossentropy_softmax_backward(dlogits, dlosses, probs, targets, V=V)
    a = (dlnf, dwte[:V], None, dlogits, lnf, wte[:V])
    matmul_backward(*a, accumulate=accumulate, bf16=bf16)
    if not accumulate:
        dwte[V:] = 0
