"""GELU on the CPU. The maths and the contract are in ops/gelu.py."""

from numba import prange

from .jit import parallel
from .vector_math import gelu_backward_row, gelu_row

CHUNK = 4096  # elements of a task


@parallel
def forward_kernel(out, inp):
    N = inp.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        last = min(N, task * CHUNK + CHUNK)
        gelu_row(out[task * CHUNK : last], inp[task * CHUNK : last])


def gelu_forward(out, inp):
    forward_kernel(out.reshape(-1), inp.reshape(-1))


@parallel
def backward_kernel(dinp, inp, dout):
    N = inp.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        gelu_backward_row(dinp[first:last], inp[first:last], dout[first:last])


def gelu_backward(dinp, inp, dout):
    backward_kernel(dinp.reshape(-1), inp.reshape(-1), dout.reshape(-1))
