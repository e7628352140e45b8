"""Global norm: the length of the gradient of all parameters together, for clipping.

    norm = sqrt(sum of grads[n]^2)

The squares are summed in float64, chunk by chunk and the chunks in order, so that the norm of a
model of any size is exact to float32 and has the same bits in every run. NaN or infinity in any
element makes the norm NaN or infinite. It goes where the loss of the step is (mean_loss.py), for
AdamW to look at both.

Sources: Pascanu et al. 2012, https://arxiv.org/abs/1211.5063; llm.c, llmc/global_norm.cuh.
"""

import math

import numpy as np

from .contract import op

CHUNK = 1 << 16  # elements: bounds the float64 copy


@op
def global_norm(outcome, grads):
    """Put the L2 norm of all gradients beside the loss.

    outcome  f (2)  updates  the loss stays; the norm is written
    grads    f (N)  reads
    """
    total = 0.0
    for start in range(0, len(grads), CHUNK):
        chunk = grads[start : start + CHUNK].astype(np.float64)
        total += float(np.sum(chunk * chunk))
    outcome[1] = math.sqrt(total)
