"""AdamW on the CPU. The maths and the contract are in ops/adamw.py."""

import numpy as np

from ..ops.adamw import scale_of
from .jit import kernel
from .memory import data
from .simd import floats
from .tasks import integers, numbers, run

CHUNK = 16384  # elements of a task


@kernel
def adamw_task(arguments, task, thread):
    """Update a chunk: every element is independent."""
    params, grads, m, v, N, settings = integers(arguments, 6)
    lr, beta1, rest1, beta2, rest2, eps, weight_decay, scale1, scale2, grad_scale = numbers(
        settings, 10
    )
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    p, g = floats(params + at, count), floats(grads + at, count)
    mm, vv = floats(m + at, count), floats(v + at, count)
    for i in range(count):
        gi = g[i] * grad_scale
        mi = beta1 * mm[i] + rest1 * gi
        vi = beta2 * vv[i] + rest2 * gi * gi
        mm[i] = mi
        vv[i] = vi
        update = mi * scale1 / (np.sqrt(vi * scale2) + eps) + weight_decay * p[i]
        p[i] -= lr * update


def adamw(
    params, grads, m, v, outcome,
    *, lr, beta1, beta2, eps, weight_decay, decay, step, grad_scale, max_norm,
):  # fmt: skip
    if outcome is not None:
        grad_scale = scale_of(outcome, grad_scale, max_norm)
        if grad_scale is None:
            return
    scale1, scale2 = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
    arrays = data(params), data(grads), data(m), data(v)
    for start, stop, decays in segments(len(params), decay):
        settings = np.array([
            lr, beta1, 1 - beta1, beta2, 1 - beta2, eps, weight_decay if decays else 0,
            scale1, scale2, grad_scale,
        ], np.float32)  # fmt: skip
        N, tasks = stop - start, -(-(stop - start) // CHUNK)
        run(adamw_task, tasks, *(at + 4 * start for at in arrays), N, data(settings))


def segments(N, decay):
    """Cut N elements into (start, stop, decays), given the ranges that decay; None is all."""
    if decay is None:
        yield 0, N, True
        return
    end = 0
    for start, stop in sorted(decay):
        if start > end:
            yield end, start, False
        if stop > max(start, end):
            yield max(start, end), stop, True
        end = max(end, stop)
    if end < N:
        yield end, N, False
