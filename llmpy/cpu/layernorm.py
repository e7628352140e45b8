"""LayerNorm on the CPU. The maths and the contract are in ops/layernorm.py."""

import numpy as np

from .jit import kernel, part
from .memory import data, scratch_at
from .residual import add_rows
from .simd import floats
from .tasks import integers, run
from .vector_math import SUM, row_sum, square_sum

EPS = np.float32(1e-5)  # same as ops/layernorm.py
ROWS = 16  # rows of a task; the backward pass adds up the sums over so many
CHANNELS = 64  # channels whose sums a task adds up

f32 = np.float32


@part
def normalize_row(out, inp, weight, bias):
    """Normalize, scale and shift one row; give its mean and rstd."""
    C = inp.shape[0]
    m = row_sum(inp) / f32(C)
    s = f32(1) / np.sqrt(square_sum(inp, m) / f32(C) + EPS)
    for c in range(C):
        out[c] = (inp[c] - m) * s * weight[c] + bias[c]
    return m, s


@kernel
def forward_task(arguments, task, thread):
    """Normalize some rows: every one is independent."""
    out, mean, rstd, inp, weight, bias, N, C = integers(arguments, 8)
    w, b, m, s = floats(weight, C), floats(bias, C), floats(mean, N), floats(rstd, N)
    for n in range(task * ROWS, min(N, task * ROWS + ROWS)):
        at = 4 * n * C
        m[n], s[n] = normalize_row(floats(out + at, C), floats(inp + at, C), w, b)


def layernorm_forward(out, mean, rstd, inp, weight, bias):
    bias = np.zeros_like(weight) if bias is None else bias
    arrays = map(data, (out, mean, rstd, inp, weight, bias))
    run(forward_task, -(-mean.size // ROWS), *arrays, mean.size, len(weight))


@kernel
def residual_forward_task(arguments, task, thread):
    """Add, and normalize, some rows."""
    residual, out, mean, rstd, inp1, inp2, weight, bias, N, C = integers(arguments, 10)
    w, b, m, s = floats(weight, C), floats(bias, C), floats(mean, N), floats(rstd, N)
    for n in range(task * ROWS, min(N, task * ROWS + ROWS)):
        at = 4 * n * C
        added = floats(residual + at, C)
        add_rows(added, floats(inp1 + at, C), floats(inp2 + at, C))
        m[n], s[n] = normalize_row(floats(out + at, C), added, w, b)


def residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias):
    bias = np.zeros_like(weight) if bias is None else bias
    arrays = map(data, (residual, out, mean, rstd, inp1, inp2, weight, bias))
    run(residual_forward_task, -(-mean.size // ROWS), *arrays, mean.size, len(weight))


@part(fastmath=SUM)
def backward_means(dout, inp, weight, m, s):
    """Give the means over a row of dnorm and of dnorm * norm."""
    dnorm_mean, dnorm_norm_mean = f32(0), f32(0)
    for c in range(inp.shape[0]):
        dnorm = dout[c] * weight[c]
        dnorm_mean += dnorm
        dnorm_norm_mean += dnorm * ((inp[c] - m) * s)
    return dnorm_mean / f32(inp.shape[0]), dnorm_norm_mean / f32(inp.shape[0])


@part
def backward_row(dinp, dweight, dbias, dout, inp, weight, m, s):
    """Add one row's gradients."""
    dnorm_mean, dnorm_norm_mean = backward_means(dout, inp, weight, m, s)
    for c in range(inp.shape[0]):
        norm = (inp[c] - m) * s
        dbias[c] += dout[c]
        dweight[c] += dout[c] * norm
        dinp[c] += (dout[c] * weight[c] - dnorm_mean - norm * dnorm_norm_mean) * s


@kernel
def backward_task(arguments, task, thread):
    """Pass 1: add dinp of some rows, and write their sums, weight's before bias's."""
    dinp, dout, inp, weight, mean, rstd, sums, N, C = integers(arguments, 9)
    w, m, s = floats(weight, C), floats(mean, N), floats(rstd, N)
    dw, db = floats(sums + 8 * task * C, C), floats(sums + 8 * task * C + 4 * C, C)
    dw[:] = f32(0)
    db[:] = f32(0)
    for n in range(task * ROWS, min(N, task * ROWS + ROWS)):
        at = 4 * n * C
        dx, dy, x = floats(dinp + at, C), floats(dout + at, C), floats(inp + at, C)
        backward_row(dx, dw, db, dy, x, w, m[n], s[n])


@kernel
def sums_task(arguments, task, thread):
    """Pass 2: add up the sums of some channels, in the order of the rows."""
    dweight, dbias, sums, count, C, accumulate = integers(arguments, 6)
    first, channels = 4 * task * CHANNELS, min(CHANNELS, C - task * CHANNELS)
    for kind in range(2):
        out = floats((dbias if kind else dweight) + first, channels)
        total = floats(sums + 4 * kind * C + first, channels)
        for i in range(1, count):
            more = floats(sums + 4 * (2 * i + kind) * C + first, channels)
            for c in range(channels):
                total[c] += more[c]
        for c in range(channels):
            out[c] = out[c] + total[c] if accumulate else total[c]


def layernorm_backward(dinp, dweight, dbias, dout, inp, weight, mean, rstd, *, accumulate):
    dbias = np.zeros_like(weight) if dbias is None else dbias
    N, C = mean.size, len(weight)
    tasks = max(1, -(-N // ROWS))  # of no row, the sums are 0
    sums = scratch_at("layernorm", tasks * 2 * C)
    arrays = map(data, (dinp, dout, inp, weight, mean, rstd))
    run(backward_task, tasks, *arrays, sums, N, C)
    run(sums_task, -(-C // CHANNELS), data(dweight), data(dbias), sums, tasks, C, accumulate)
