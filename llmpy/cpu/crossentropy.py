"""Cross-entropy on the CPU. The maths and the contract are in ops/crossentropy.py."""

import numpy as np

from .jit import kernel, part
from .memory import data
from .simd import floats, ints, row_max
from .tasks import integers, run
from .vector_math import sum_exp


@part
def row_loss(row, target):
    """Give the loss of a row of logits: log of the sum of exp, minus the target's logit.

    Both relative to the maximum, since logits may be large and their differences small.
    """
    largest = row_max(row)
    return np.log(sum_exp(row, largest)) - (row[target] - largest)


@kernel
def forward_task(arguments, task, thread):
    """Give the loss of one position: every one is independent."""
    losses, logits, targets, V, Vp = integers(arguments, 5)
    target = ints(targets + 4 * task, 1)[0]
    floats(losses + 4 * task, 1)[0] = row_loss(floats(logits + 4 * task * Vp, V), target)


def crossentropy_forward(losses, logits, targets, *, V):
    Vp = logits.shape[-1]
    run(forward_task, losses.size, data(losses), data(logits), data(targets), V, Vp)


@kernel
def backward_task(arguments, task, thread):
    """Add the gradient of one position."""
    dlogits, dlosses, probs, targets, V, Vp = integers(arguments, 6)
    row, at = 4 * task * Vp, 4 * task
    d, p = floats(dlogits + row, V), floats(probs + row, V)
    dloss, target = floats(dlosses + at, 1)[0], ints(targets + at, 1)[0]
    for v in range(V):
        onehot = np.float32(1) if v == target else np.float32(0)
        d[v] += (p[v] - onehot) * dloss


def crossentropy_softmax_backward(dlogits, dlosses, probs, targets, *, V):
    arrays = data(dlogits), data(dlosses), data(probs), data(targets)
    run(backward_task, dlosses.size, *arrays, V, dlogits.shape[-1])
