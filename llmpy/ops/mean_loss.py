"""Mean loss: what a training step tells, beside the norm of its gradients.

    outcome = (loss, norm)        loss = scale * sum of losses[b,t], over all micro-batches

With scale = 1 / (B*T * micro-batches), it is the mean over the step. Both numbers stay where the
gradients are, so that AdamW can clip, and leave a step out that is not finite, before anybody here
has seen them.

Sources: llm.c, train_gpt2.c.
"""

import numpy as np

from .contract import op


@op
def mean_loss(outcome, losses, *, scale, accumulate):
    """Sum the losses of a micro-batch, scaled, and add them to those before with `accumulate`.

    outcome  f (2)     updates  the loss is written, or added to; the norm stays
    losses   f (B, T)  reads
    """
    total = scale * losses.sum(dtype=np.float64)
    outcome[0] = outcome[0] + total if accumulate else total
