"""AdamW on the CPU. The maths and the contract are in ops/adamw.py."""

import numpy as np
from numba import prange

from ..ops.adamw import scale_of
from .jit import parallel

CHUNK = 16384  # elements of a task

f32 = np.float32


@parallel
def adamw_kernel(
    params,
    grads,
    m,
    v,
    lr,
    beta1,
    rest1,
    beta2,
    rest2,
    eps,
    weight_decay,
    scale1,
    scale2,
    grad_scale,
):
    N = params.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        # LLVM makes vectors of a loop over slices, not of one over [first + i]
        p, g, mm, vv = params[first:last], grads[first:last], m[first:last], v[first:last]
        for i in range(p.shape[0]):
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
    for start, stop, decays in segments(len(params), decay):
        part = slice(start, stop)
        adamw_kernel(
            params[part], grads[part], m[part], v[part], f32(lr), f32(beta1), f32(1 - beta1),
            f32(beta2), f32(1 - beta2), f32(eps), f32(weight_decay if decays else 0),
            f32(scale1), f32(scale2), f32(grad_scale),
        )  # fmt: skip


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
