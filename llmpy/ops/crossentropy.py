"""Cross-entropy: the loss of a position is minus the log of the target's probability.

    losses[b,t] = -log(softmax(logits[b,t])[target])
                = log(sum over v < V of exp(logits[b,t,v] - max)) - (logits[b,t,target] - max)

The second form is what is computed: in the first the probability of an unlikely target rounds to 0
and its loss to infinity. (llm.c takes `probs` here; otherwise the same.)

Backward, through loss and softmax in one step, where most terms cancel:

    dlogits[b,t,v] = (probs[b,t,v] - (v == target)) * dlosses[b,t]    for v < V

Sources: llm.c, train_gpt2.c.
"""

import numpy as np

from .contract import op


@op
def crossentropy_forward(losses, logits, targets, *, V):
    """Give the loss of each position.

    losses   f   (B, T)      writes
    logits   f   (B, T, Vp)  reads
    targets  i32 (B, T)      reads   in [0, V)
    """
    shifted = logits[..., :V] - logits[..., :V].max(-1, keepdims=True)
    target_logit = np.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]
    losses[:] = np.log(np.exp(shifted).sum(-1)) - target_logit


@op
def crossentropy_softmax_backward(dlogits, dlosses, probs, targets, *, V):
    """Add the gradient of the logits, given that of the losses.

    dlogits  f   (B, T, Vp)  adds   padded columns are left as they are
    dlosses  f   (B, T)      reads
    probs    f   (B, T, Vp)  reads  as softmax_forward wrote them
    targets  i32 (B, T)      reads  in [0, V)
    """
    onehot = targets[..., None] == np.arange(V)
    dlogits[..., :V] += (probs[..., :V] - onehot) * dlosses[..., None]
