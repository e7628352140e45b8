"""Encoder on the CPU. The maths and the contract are in ops/encoder.py."""

from .jit import kernel
from .memory import data
from .residual import add_rows
from .simd import floats, ints
from .tasks import integers, run

CHANNELS = 64  # channels of a task of the backward pass


@kernel
def forward_task(arguments, task, thread):
    """Write one position: every one is independent."""
    out, tokens, wte, wpe, T, C = integers(arguments, 6)
    token, row = int(ints(tokens + 4 * task, 1)[0]), 4 * C
    out, wte, wpe = out + task * row, wte + token * row, wpe + task % T * row
    add_rows(floats(out, C), floats(wte, C), floats(wpe, C))


def encoder_forward(out, tokens, wte, wpe):
    B, T, C = out.shape
    run(forward_task, B * T, data(out), data(tokens), data(wte), data(wpe), T, C)


@kernel
def backward_task(arguments, task, thread):
    """Gather the gradients of some channels: each is summed by one thread, in order."""
    dwte, dwpe, dout, tokens, B, T, C = integers(arguments, 7)
    first, row = 4 * task * CHANNELS, 4 * C
    count = min(CHANNELS, C - task * CHANNELS)
    for n in range(B * T):
        token, d = int(ints(tokens + 4 * n, 1)[0]), floats(dout + n * row + first, count)
        by_token = floats(dwte + token * row + first, count)
        by_position = floats(dwpe + n % T * row + first, count)
        for c in range(count):
            by_token[c] += d[c]
            by_position[c] += d[c]


def encoder_backward(dwte, dwpe, dout, tokens, *, accumulate):
    if not accumulate:
        dwte[...] = 0
        dwpe[...] = 0
    tasks, arrays = -(-dout.shape[2] // CHANNELS), (data(dwte), data(dwpe), data(dout))
    run(backward_task, tasks, *arrays, data(tokens), *dout.shape)
