"""Residual on the CPU. The maths and the contract are in ops/residual.py."""

from numba import prange

from .jit import parallel

CHUNK = 4096  # elements of a task


@parallel
def forward_kernel(out, inp1, inp2):
    N = out.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        y, x1, x2 = out[first:last], inp1[first:last], inp2[first:last]
        for i in range(y.shape[0]):
            y[i] = x1[i] + x2[i]


def residual_forward(out, inp1, inp2):
    forward_kernel(out.reshape(-1), inp1.reshape(-1), inp2.reshape(-1))


@parallel
def backward_kernel(dinp1, dinp2, dout):
    N = dout.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        dx1, dx2, dy = dinp1[first:last], dinp2[first:last], dout[first:last]
        for i in range(dy.shape[0]):
            dx1[i] += dy[i]
            dx2[i] += dy[i]


def residual_backward(dinp1, dinp2, dout):
    backward_kernel(dinp1.reshape(-1), dinp2.reshape(-1), dout.reshape(-1))
