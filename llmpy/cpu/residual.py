"""Residual on the CPU. The maths and the contract are in ops/residual.py."""

from .jit import kernel, part
from .memory import data
from .simd import floats
from .tasks import integers, run

CHUNK = 4096  # elements of a task


@part
def add_rows(out, inp1, inp2):
    """Add two rows."""
    for c in range(out.shape[0]):
        out[c] = inp1[c] + inp2[c]


@kernel
def forward_task(arguments, task, thread):
    out, inp1, inp2, N = integers(arguments, 4)
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    add_rows(floats(out + at, count), floats(inp1 + at, count), floats(inp2 + at, count))


def residual_forward(out, inp1, inp2):
    run(forward_task, -(-out.size // CHUNK), data(out), data(inp1), data(inp2), out.size)


@kernel
def backward_task(arguments, task, thread):
    dinp1, dinp2, dout, N = integers(arguments, 4)
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    dx1, dx2, dy = floats(dinp1 + at, count), floats(dinp2 + at, count), floats(dout + at, count)
    for i in range(count):
        dx1[i] += dy[i]
        dx2[i] += dy[i]


def residual_backward(dinp1, dinp2, dout):
    run(backward_task, -(-dout.size // CHUNK), data(dinp1), data(dinp2), data(dout), dout.size)
