"""Softmax on the CPU. The maths and the contract are in ops/softmax.py."""

import numpy as np
from numba import prange

from .jit import parallel, serial
from .matmul import matrix
from .simd import row_max
from .vector_math import exp_row


@serial
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


@parallel
def forward_kernel(probs, logits, V):
    for n in prange(logits.shape[0]):  # every position is independent
        row = probs[n]
        for v in range(V):
            row[v] = logits[n, v]
        softmax_row(row[:V])
        for v in range(V, row.shape[0]):
            row[v] = np.float32(0)


def softmax_forward(probs, logits, *, V):
    forward_kernel(matrix(probs), matrix(logits), V)
