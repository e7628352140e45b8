"""Matmul on the CPU. The maths and the contract are in ops/matmul.py, the method in gemm.py."""

from ..ops.memory import view
from .gemm import GELU, GELU_DERIVATIVE, gemm, piece_of
from .jit import serial
from .memory import scratch
from .tile import ADD, BIAS, WRITE


def matrix(array):
    """View an array as a matrix of its last axis."""
    return array.reshape(-1, array.shape[-1])


def matmul_forward(out, inp, weight, bias, *, bf16=False):
    gemm(
        matrix(out), matrix(inp), weight, a_unit_k=True, b_unit_k=True, K=weight.shape[1],
        bf16=bf16, mode=WRITE if bias is None else BIAS, bias=bias,
    )  # fmt: skip


def matmul_gelu_forward(out, pre, inp, weight, bias, *, bf16=False):
    gemm(
        matrix(pre), matrix(inp), weight, a_unit_k=True, b_unit_k=True, K=weight.shape[1],
        bf16=bf16, mode=WRITE if bias is None else BIAS, bias=bias, epilogue=GELU, out=matrix(out),
    )  # fmt: skip


def matmul_backward(dinp, dweight, dbias, dout, inp, weight, *, accumulate, bf16=False):
    gemm(
        matrix(dinp), matrix(dout), weight, a_unit_k=True, b_unit_k=False, K=weight.shape[0],
        bf16=bf16,
    )  # fmt: skip
    weight_gradients(dweight, dbias, matrix(dout), matrix(inp), accumulate, bf16)


def matmul_gelu_backward(dpre, dweight, dbias, dout, out, weight, pre, *, accumulate, bf16=False):
    gemm(
        matrix(dpre), matrix(dout), weight, a_unit_k=True, b_unit_k=False, K=weight.shape[0],
        bf16=bf16, epilogue=GELU_DERIVATIVE, out=matrix(out), pre=matrix(pre),
    )  # fmt: skip
    weight_gradients(dweight, dbias, matrix(dout), matrix(out), accumulate, bf16)


def weight_gradients(dweight, dbias, dout, inp, accumulate, bf16=False):
    """Write dout.T inp and the column sums of dout, or add them."""
    N, OC = dout.shape
    if N == 0:  # no position: gemm visits nothing
        for gradient in (dweight, dbias):
            if gradient is not None and not accumulate:
                gradient[...] = 0
        return
    pieces, sums = -(-N // piece_of(bf16)), None
    if dbias is not None:
        sums = view(scratch("sums", pieces * OC), 0, (pieces, OC))
    gemm(
        dweight, dout, inp, a_unit_k=False, b_unit_k=False, K=N, bf16=bf16,
        mode=ADD if accumulate else WRITE, sums=sums,
    )  # fmt: skip
    if dbias is not None:
        add_pieces(dbias, sums, accumulate)


@serial
def add_pieces(out, sums, accumulate):
    """Add up the sums over the pieces of k, in their order."""
    pieces, C = sums.shape
    for c in range(C):
        total = sums[0, c]
        for q in range(1, pieces):
            total += sums[q, c]
        out[c] = out[c] + total if accumulate else total
