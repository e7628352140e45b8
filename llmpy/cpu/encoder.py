"""Encoder on the CPU. The maths and the contract are in ops/encoder.py."""

import numpy as np
from numba import prange

from .jit import parallel
from .residual import add_rows

CHANNELS = 64  # channels of a task of the backward pass


@parallel
def encoder_forward(out, tokens, wte, wpe):
    B, T, _ = out.shape
    for bt in prange(B * T):  # every position is independent
        b, t = bt // T, bt % T
        add_rows(out[b, t], wte[tokens[b, t]], wpe[t])


@parallel
def backward_kernel(dwte, dwpe, dout, tokens, accumulate):
    B, T, C = dout.shape
    for task in prange(-(-C // CHANNELS)):  # a channel is summed by one thread, in order
        first, last = task * CHANNELS, min(C, task * CHANNELS + CHANNELS)
        if not accumulate:
            for v in range(dwte.shape[0]):
                dwte[v, first:last] = np.float32(0)
            for t in range(dwpe.shape[0]):
                dwpe[t, first:last] = np.float32(0)
        for b in range(B):
            for t in range(T):
                d = dout[b, t, first:last]
                by_token, by_position = dwte[tokens[b, t], first:last], dwpe[t, first:last]
                for c in range(d.shape[0]):
                    by_token[c] += d[c]
                    by_position[c] += d[c]


def encoder_backward(dwte, dwpe, dout, tokens, *, accumulate):
    backward_kernel(dwte, dwpe, dout, tokens, accumulate)
