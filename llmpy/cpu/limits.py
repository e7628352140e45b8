"""What the machine can do at best: the peak of the register tile, and the memory's bandwidth.

No step is faster than its multiplications at the peak and its optimizer's traffic at the bandwidth,
so `llmpy bench` measures both first.
"""

import time

import numba
import numpy as np
from numba import prange

from .adamw import CHUNK
from .caches import first_cache_bytes, last_cache_bytes
from .jit import parallel
from .memory import alloc, data
from .packing import STEP
from .simd import MR, NR
from .tile import WRITE, tile

# the best trial counts: what else the machine does only slows one, and a short one may be spared
TRIALS, TRIAL_S = 300, 0.002  # of the tile
PASSES = 20  # over memory

f32 = np.float32


@parallel
def tile_kernel(tasks, times, operands, stride, k, bf16):
    """Multiply the same panels `times` times in each task; a task has `stride` floats of its own.

    They hold a panel of B, then one of A, then the product.
    """
    for task in prange(tasks):
        b = operands + 4 * task * stride
        a, c = b + 4 * k * NR, b + 4 * k * (NR + MR)
        for _ in range(times):
            tile(bf16, c, NR, a, 1, MR, b, k, WRITE, 0)


def peak_gflops(bf16: bool = False, l1_bytes: int | None = None) -> float:
    """Measure the multiplications and additions of the tile on all threads, in 1e9 a second.

    Its panels fill three quarters of the first cache, of `l1_bytes`.
    """
    k = max(16, (l1_bytes or first_cache_bytes()) * 3 // 4 // (4 * (MR + NR)) // 16 * 16)
    threads, stride = numba.get_num_threads(), k * (MR + NR) + MR * NR
    operands = alloc((threads * stride,))
    operands[:] = np.random.default_rng(0).standard_normal(operands.size, np.float32)
    operations = 2 * MR * NR * k * threads * (STEP if bf16 else 1)

    def run(times):
        return seconds_of(tile_kernel, threads, times, data(operands), stride, k, int(bf16))

    times = 1
    run(times)  # compiled, and in the cache
    while run(times) < TRIAL_S:
        times *= 2
    best = min(run(times) for _ in range(TRIALS))
    return operations * times / best / 1e9


@parallel
def fill_kernel(array, value):
    """Set all elements, so that each thread is the first to touch the pages that it will use."""
    N = array.shape[0]
    for task in prange(-(-N // CHUNK)):
        array[task * CHUNK : min(N, task * CHUNK + CHUNK)] = value


@parallel
def update_kernel(params, grads, m, v):
    """Read and write what AdamW does, with hardly any arithmetic."""
    N = params.shape[0]
    for task in prange(-(-N // CHUNK)):
        first, last = task * CHUNK, min(N, task * CHUNK + CHUNK)
        p, g, mm, vv = params[first:last], grads[first:last], m[first:last], v[first:last]
        for i in range(p.shape[0]):
            mm[i] = f32(0.5) * (mm[i] + g[i])
            vv[i] = f32(0.5) * (vv[i] + g[i])
            p[i] = f32(0.5) * (p[i] + mm[i])


def bandwidth_gbs(count: int | None = None) -> float:
    """Measure AdamW's traffic, bytes read plus bytes written, on all threads, in 1e9 a second.

    count  elements of each of the four arrays; None makes them far larger than the last cache
    """
    count = count or 4 * last_cache_bytes() // 4
    arrays = [alloc((count,)) for _ in range(4)]
    for i, array in enumerate(arrays):
        fill_kernel(array, f32(i + 1))
    update_kernel(*arrays)  # compiled
    best = min(seconds_of(update_kernel, *arrays) for _ in range(PASSES))
    return 7 * 4 * count / best / 1e9


def seconds_of(kernel, *args):
    """Time one call."""
    start = time.perf_counter()
    kernel(*args)
    return time.perf_counter() - start
