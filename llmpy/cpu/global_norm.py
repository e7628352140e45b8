"""Global norm on the CPU. The maths and the contract are in ops/global_norm.py."""

import math

import numpy as np

from .jit import kernel
from .memory import data
from .simd import doubles, floats
from .tasks import integers, run
from .vector_math import square_sum_float64

CHUNK = 16384  # elements of a task


@kernel
def squares_task(arguments, task, thread):
    """Sum the squares of a chunk."""
    sums, grads, N = integers(arguments, 3)
    chunk = floats(grads + 4 * task * CHUNK, min(CHUNK, N - task * CHUNK))
    doubles(sums + 8 * task, 1)[0] = square_sum_float64(chunk)


def global_norm(outcome, grads):
    tasks = -(-grads.size // CHUNK)
    sums, total = np.empty(tasks), 0.0
    run(squares_task, tasks, data(sums), data(grads), grads.size)
    for square in sums.tolist():  # in their order
        total += square
    outcome[1] = math.sqrt(total)
