"""Softmax on the CPU. The maths and the contract are in ops/softmax.py."""

import numpy as np

from .jit import kernel, part
from .memory import data
from .simd import floats, row_max
from .tasks import integers, run
from .vector_math import exp_row


@part
def softmax_row(row):
    """Turn a row of logits into probabilities, in place; give their maximum, and the log of the
    sum of exp(logit - maximum).
    """
    largest = row_max(row)
    total = exp_row(row, np.float32(1), largest)
    inverse = np.float32(1) / total
    for v in range(row.shape[0]):
        row[v] = row[v] * inverse
    return largest, np.log(total)


@kernel
def forward_task(arguments, task, thread):
    """Write the probabilities of one position: every one is independent."""
    probs, logits, V, Vp = integers(arguments, 4)
    row, inp = floats(probs + 4 * task * Vp, Vp), floats(logits + 4 * task * Vp, V)
    for v in range(V):
        row[v] = inp[v]
    softmax_row(row[:V])
    for v in range(V, Vp):
        row[v] = np.float32(0)


def softmax_forward(probs, logits, *, V):
    Vp = probs.shape[-1]
    run(forward_task, probs.size // Vp, data(probs), data(logits), V, Vp)
