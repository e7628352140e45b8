"""Residual on the CPU. The maths and the contract are in ops/residual.py."""

from numba import prange

from .jit import parallel, serial

CHUNK = 4096  # elements of a task


@serial
def add_rows(out, inp1, inp2):
    """Add two rows."""
    for c in range(out.shape[0]):
        out[c] = inp1[c] + inp2[c]


@parallel
def forward_kernel(out, inp1, inp2):
    N = out.shape[0]
    for task in prange(-(-N // CHUNK)):  # every element is independent
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        add_rows(out[first:last], inp1[first:last], inp2[first:last])


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
