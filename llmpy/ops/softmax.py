"""Softmax: make probabilities of the V logits of each position.

    probs[b,t,v] = exp(logits[b,t,v] - max) / (sum over v of exp(logits[b,t,v] - max))    for v < V
    probs[b,t,v] = 0                                                                      for v >= V

with max the true maximum over v < V, so that no exponential overflows and at least one is 1. The
columns from V to Vp are padding: whatever they hold takes no part. Its backward pass is fused with
that of the loss, in crossentropy.py.

Sources: llm.c, train_gpt2.c.
"""

import numpy as np

from .contract import op


@op
def softmax_forward(probs, logits, *, V):
    """Turn logits into probabilities.

    probs   f (B, T, Vp)  writes  sum to 1 over the first V columns; 0 in the padded ones
    logits  f (B, T, Vp)  reads
    """
    exp = np.exp(logits[..., :V] - logits[..., :V].max(-1, keepdims=True))
    probs[..., :V] = exp / exp.sum(-1, keepdims=True)
    probs[..., V:] = 0
