"""Global norm on the CPU. The maths and the contract are in ops/global_norm.py."""

import math

import numpy as np
from numba import prange

from .jit import parallel
from .vector_math import square_sum_float64

CHUNK = 16384  # elements of a task


@parallel
def sum_of_squares(grads):
    N = grads.shape[0]
    sums = np.empty(-(-N // CHUNK), np.float64)
    for task in prange(sums.shape[0]):
        sums[task] = square_sum_float64(grads[task * CHUNK : min(N, task * CHUNK + CHUNK)])
    total = 0.0
    for task in range(sums.shape[0]):  # in their order
        total += sums[task]
    return total


def global_norm(outcome, grads):
    outcome[1] = math.sqrt(sum_of_squares(grads))
