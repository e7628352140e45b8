"""Global norm on the CPU. The maths and the contract are in ops/global_norm.py."""

import math

import numpy as np
from numba import prange

from .jit import parallel
from .vector_math import square_sum_float64

CHUNK = 16384  # elements of a task: the partial sums are added in their order


@parallel
def partial_sums(sums, grads):
    N = grads.shape[0]
    for task in prange(sums.shape[0]):
        sums[task] = square_sum_float64(grads[task * CHUNK : min(N, task * CHUNK + CHUNK)])


def global_norm(grads):
    sums = np.empty(-(-len(grads) // CHUNK), np.float64)
    partial_sums(sums, grads)
    return math.sqrt(float(np.sum(sums)))
