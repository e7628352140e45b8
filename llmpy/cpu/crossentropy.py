"""Cross-entropy on the CPU. The maths and the contract are in ops/crossentropy.py."""

import numpy as np
from numba import prange

from .jit import parallel, serial
from .matmul import matrix
from .simd import row_max
from .vector_math import sum_exp


@serial
def row_loss(row, target):
    """Give the loss of a row of logits: log of the sum of exp, minus the target's logit.

    Both relative to the maximum, since logits may be large and their differences small.
    """
    largest = row_max(row)
    return np.log(sum_exp(row, largest)) - (row[target] - largest)


@parallel
def forward_kernel(losses, logits, targets, V):
    for n in prange(logits.shape[0]):  # every position is independent
        losses[n] = row_loss(logits[n, :V], targets[n])


def crossentropy_forward(losses, logits, targets, *, V):
    forward_kernel(losses.reshape(-1), matrix(logits), targets.reshape(-1), V)


@parallel
def backward_kernel(dlogits, dlosses, probs, targets, V):
    for n in prange(probs.shape[0]):  # every position is independent
        d, p, dloss = dlogits[n], probs[n], dlosses[n]
        for v in range(V):
            onehot = np.float32(1) if v == targets[n] else np.float32(0)
            d[v] += (p[v] - onehot) * dloss


def crossentropy_softmax_backward(dlogits, dlosses, probs, targets, *, V):
    backward_kernel(matrix(dlogits), dlosses.reshape(-1), matrix(probs), targets.reshape(-1), V)
