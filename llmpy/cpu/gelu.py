"""GELU on the CPU. The maths and the contract are in ops/gelu.py."""

from .jit import kernel
from .memory import data
from .simd import floats
from .tasks import integers, run
from .vector_math import gelu_backward_row, gelu_row

CHUNK = 4096  # elements of a task


@kernel
def forward_task(arguments, task, thread):
    out, inp, N = integers(arguments, 3)
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    gelu_row(floats(out + at, count), floats(inp + at, count))


def gelu_forward(out, inp):
    run(forward_task, -(-inp.size // CHUNK), data(out), data(inp), inp.size)


@kernel
def backward_task(arguments, task, thread):
    dinp, inp, dout, N = integers(arguments, 4)
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    gelu_backward_row(floats(dinp + at, count), floats(inp + at, count), floats(dout + at, count))


def gelu_backward(dinp, inp, dout):
    run(backward_task, -(-inp.size // CHUNK), data(dinp), data(inp), data(dout), inp.size)
