"""What a device can do at best: the peak of its arithmetic, and the bandwidth of its memory.

As on the CPU (cpu/limits.py), no step is faster than its multiplications at the peak and its
optimizer's traffic at the bandwidth. The kernels are in peak.wgsl.
"""

import time
from collections.abc import Callable

import numpy as np

from .device import Device
from .kernels import run
from .memory import ITEM, Array, allocate, upload, view

WG = 256  # threads of a workgroup; same as peak.wgsl
VECTORS = 1 << 16  # threads of multiply_add: enough for any GPU
OPERATIONS = 2 * 4 * 32  # of a round of multiply_add
STREAMED = 64 << 20  # bytes of an array of stream, beyond all caches but the largest
TRIALS, TRIAL_S, MORE = 5, 0.05, 4  # the best counts; a long trial is MORE short ones


def peak_gflops(device: Device) -> float:
    """Measure multiplications and additions in registers, in 1e9 a second."""
    out, inp = _arrays(device, 4 * VECTORS)

    def trial(times: int) -> None:
        run("peak", "multiply_add", {0: out, 1: inp}, VECTORS // WG, (times,))

    return OPERATIONS * VECTORS / seconds_each(device, trial) / 1e9


def bandwidth_gbs(device: Device) -> float:
    """Measure bytes read plus bytes written, in 1e9 a second."""
    count = min(STREAMED, device.max_binding) // ITEM
    out, inp = _arrays(device, count)

    def trial(times: int) -> None:
        for _ in range(times):
            run("peak", "stream", {0: out, 1: inp}, -(-count // (4 * WG)))

    return 3 * ITEM * count / seconds_each(device, trial) / 1e9


def _arrays(device: Device, count: int) -> tuple[Array, Array]:
    both = allocate(device, [count, count], "float32", apart=True)
    out, inp = view(both, 0, (count,)), view(both, count, (count,))
    upload(inp, np.random.default_rng(0).uniform(0, 0.5, count).astype(np.float32))
    return out, inp


def seconds_each(device: Device, trial: Callable[[int], object], trials: int = TRIALS) -> float:
    """Give the seconds that each time of a trial adds: a submit costs the same for any number.

    trial   does so many times what is timed
    trials  of both lengths; the best counts
    """

    def seconds_of(times: int) -> float:
        start = time.perf_counter()
        trial(times)
        device.wait()
        return time.perf_counter() - start

    few = 1
    seconds_of(few)  # compiled
    while seconds_of(MORE * few) < TRIAL_S + 2 * seconds_of(few):
        few *= 2
    less, more = (min(seconds_of(n) for _ in range(trials)) for n in (few, MORE * few))
    return (more - less) / ((MORE - 1) * few)
