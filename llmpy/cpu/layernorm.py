"""LayerNorm on the CPU. The maths and the contract are in ops/layernorm.py."""

import numpy as np
from numba import njit, prange

from ..ops.memory import view
from .jit import parallel, serial
from .matmul import matrix
from .memory import scratch
from .residual import add_rows
from .vector_math import SUM, row_sum, square_sum

EPS = np.float32(1e-5)  # same as ops/layernorm.py
ROWS = 16  # rows that a task of the backward pass sums before the sums are added up

f32 = np.float32


@serial
def normalize_row(out, inp, weight, bias):
    """Normalize, scale and shift one row; give its mean and rstd."""
    C = inp.shape[0]
    m = row_sum(inp) / f32(C)
    s = f32(1) / np.sqrt(square_sum(inp, m) / f32(C) + EPS)
    for c in range(C):
        out[c] = (inp[c] - m) * s * weight[c] + bias[c]
    return m, s


@parallel
def forward_kernel(out, mean, rstd, inp, weight, bias):
    for n in prange(inp.shape[0]):  # every position is independent
        mean[n], rstd[n] = normalize_row(out[n], inp[n], weight, bias)


def layernorm_forward(out, mean, rstd, inp, weight, bias):
    bias = np.zeros_like(weight) if bias is None else bias
    forward_kernel(matrix(out), mean.reshape(-1), rstd.reshape(-1), matrix(inp), weight, bias)


@parallel
def residual_forward_kernel(residual, out, mean, rstd, inp1, inp2, weight, bias):
    for n in prange(inp1.shape[0]):  # every position is independent
        add_rows(residual[n], inp1[n], inp2[n])
        mean[n], rstd[n] = normalize_row(out[n], residual[n], weight, bias)


def residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias):
    bias = np.zeros_like(weight) if bias is None else bias
    residual_forward_kernel(
        matrix(residual), matrix(out), mean.reshape(-1), rstd.reshape(-1), matrix(inp1),
        matrix(inp2), weight, bias,
    )  # fmt: skip


@njit(fastmath=SUM, error_model="numpy")
def backward_means(dout, inp, weight, m, s):
    """Give the means over a row of dnorm and of dnorm * norm."""
    dnorm_mean, dnorm_norm_mean = f32(0), f32(0)
    for c in range(inp.shape[0]):
        dnorm = dout[c] * weight[c]
        dnorm_mean += dnorm
        dnorm_norm_mean += dnorm * ((inp[c] - m) * s)
    return dnorm_mean / f32(inp.shape[0]), dnorm_norm_mean / f32(inp.shape[0])


@serial
def backward_row(dinp, dweight, dbias, dout, inp, weight, m, s):
    """Add one row's gradients."""
    dnorm_mean, dnorm_norm_mean = backward_means(dout, inp, weight, m, s)
    for c in range(inp.shape[0]):
        norm = (inp[c] - m) * s
        dbias[c] += dout[c]
        dweight[c] += dout[c] * norm
        dinp[c] += (dout[c] * weight[c] - dnorm_mean - norm * dnorm_norm_mean) * s


@parallel
def backward_kernel(
    dinp, dweight, dbias, dout, inp, weight, mean, rstd, partial_weight, partial_bias, accumulate
):
    N, C = inp.shape
    tasks = -(-N // ROWS)

    # pass 1: dinp, and the sums over ROWS rows
    for task in prange(tasks):
        dw, db = partial_weight[task], partial_bias[task]
        dw[:] = f32(0)
        db[:] = f32(0)
        for n in range(task * ROWS, min(N, task * ROWS + ROWS)):
            backward_row(dinp[n], dw, db, dout[n], inp[n], weight, mean[n], rstd[n])

    # pass 2: add them up in order
    for c in prange(C):
        sum_weight, sum_bias = f32(0), f32(0)
        for task in range(tasks):
            sum_weight += partial_weight[task, c]
            sum_bias += partial_bias[task, c]
        dweight[c] = dweight[c] + sum_weight if accumulate else sum_weight
        dbias[c] = dbias[c] + sum_bias if accumulate else sum_bias


def layernorm_backward(dinp, dweight, dbias, dout, inp, weight, mean, rstd, *, accumulate):
    dbias = np.zeros_like(weight) if dbias is None else dbias
    rows = matrix(inp)
    tasks, C = -(-len(rows) // ROWS), len(weight)
    backward_kernel(
        matrix(dinp), dweight, dbias, matrix(dout), rows, weight, mean.reshape(-1),
        rstd.reshape(-1), view(scratch("dweight", tasks * C), 0, (tasks, C)),
        view(scratch("dbias", tasks * C), 0, (tasks, C)), accumulate,
    )  # fmt: skip
