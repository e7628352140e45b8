"""Matmul on the CPU. The maths and the contract are in ops/matmul.py, the method in gemm.py."""

import numpy as np
from numba import prange

from ..errors import UsageError
from .gemm import GELU, GELU_DERIVATIVE, gemm
from .jit import parallel
from .simd import ADD, BIAS, WRITE

COLUMNS = 64  # columns that a task sums


def matrix(array):
    """View an array as a matrix of its last axis."""
    return array.reshape(-1, array.shape[-1])


def matmul_forward(out, inp, weight, bias, *, bf16=False):
    if bf16:
        raise UsageError("matmul_forward: bf16 is True, expected False: not built yet on the CPU")
    gemm(
        matrix(out), matrix(inp), weight, a_unit_k=True, b_unit_k=True, K=weight.shape[1],
        mode=WRITE if bias is None else BIAS, bias=bias,
    )  # fmt: skip


def matmul_gelu_forward(out, pre, inp, weight, bias, *, bf16=False):
    if bf16:
        raise UsageError(
            "matmul_gelu_forward: bf16 is True, expected False: not built yet on the CPU"
        )
    gemm(
        matrix(pre), matrix(inp), weight, a_unit_k=True, b_unit_k=True, K=weight.shape[1],
        mode=WRITE if bias is None else BIAS, bias=bias, epilogue=GELU, aux=matrix(out),
    )  # fmt: skip


def matmul_backward(dinp, dweight, dbias, dout, inp, weight, *, accumulate, bf16=False):
    if bf16:
        raise UsageError("matmul_backward: bf16 is True, expected False: not built yet on the CPU")
    gemm(matrix(dinp), matrix(dout), weight, a_unit_k=True, b_unit_k=False, K=weight.shape[0])
    weight_gradients(dweight, dbias, matrix(dout), matrix(inp), accumulate)


def matmul_gelu_backward(dpre, dweight, dbias, dout, out, weight, pre, *, accumulate, bf16=False):
    if bf16:
        raise UsageError(
            "matmul_gelu_backward: bf16 is True, expected False: not built yet on the CPU"
        )
    gemm(
        matrix(dpre), matrix(dout), weight, a_unit_k=True, b_unit_k=False, K=weight.shape[0],
        epilogue=GELU_DERIVATIVE, aux=matrix(pre),
    )  # fmt: skip
    weight_gradients(dweight, dbias, matrix(dout), matrix(out), accumulate)


def weight_gradients(dweight, dbias, dout, inp, accumulate):
    """Write dout.T inp and the column sums of dout, or add them."""
    mode = ADD if accumulate else WRITE
    gemm(dweight, dout, inp, a_unit_k=False, b_unit_k=False, K=len(dout), mode=mode)
    if dbias is not None:
        column_sums(dbias, dout, accumulate)


@parallel
def column_sums(out, inp, accumulate):
    """Sum each column of inp, from the first row to the last."""
    N, C = inp.shape
    for task in prange(-(-C // COLUMNS)):  # every column is independent
        first = task * COLUMNS
        last = min(C, first + COLUMNS)
        sums = np.zeros(COLUMNS, np.float32)
        for n in range(N):
            row = inp[n, first:last]
            for c in range(row.shape[0]):
                sums[c] += row[c]
        for c in range(first, last):
            out[c] = out[c] + sums[c - first] if accumulate else sums[c - first]
