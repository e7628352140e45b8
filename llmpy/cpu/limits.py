"""What the machine can do at best: the peak of the register tile, and the memory's bandwidth.

No step is faster than its multiplications at the peak and its optimizer's traffic at the bandwidth,
so `llmpy bench` measures both first.
"""

import time

import numba
import numpy as np

from .adamw import CHUNK
from .caches import first_cache_bytes, last_cache_bytes
from .jit import kernel
from .memory import alloc, data
from .packing import STEP
from .simd import MR, NR, floats
from .tasks import integers, run
from .tile import WRITE, tile

# the best trial counts: what else the machine does only slows one, and a short one may be spared
TRIALS, TRIAL_S = 300, 0.002  # of the tile
FIRST = 5  # trials to find out how long they are
PASSES = 20  # over memory

f32 = np.float32


@kernel
def tile_task(arguments, task, thread):
    """Multiply the same panels `times` times; a task has `stride` floats of its own.

    They hold a panel of B, then one of A, then the product.
    """
    times, operands, stride, k, bf16 = integers(arguments, 5)
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

    def trial(times):
        return seconds_of(tile_task, threads, times, data(operands), stride, k, bf16)

    times = 1
    # the first compiles, and some wait for threads, so the best of several counts
    while min(trial(times) for _ in range(FIRST)) < TRIAL_S:
        times *= 2
    best = min(trial(times) for _ in range(TRIALS))
    return operations * times / best / 1e9


@kernel
def update_task(arguments, task, thread):
    """Read and write what AdamW does, with hardly any arithmetic."""
    params, grads, m, v, N = integers(arguments, 5)
    at, count = 4 * task * CHUNK, min(CHUNK, N - task * CHUNK)
    p, g = floats(params + at, count), floats(grads + at, count)
    mm, vv = floats(m + at, count), floats(v + at, count)
    for i in range(count):
        mm[i] = f32(0.5) * (mm[i] + g[i])
        vv[i] = f32(0.5) * (vv[i] + g[i])
        p[i] = f32(0.5) * (p[i] + mm[i])


def bandwidth_gbs(count: int | None = None) -> float:
    """Measure AdamW's traffic, bytes read plus bytes written, on all threads, in 1e9 a second.

    count  elements of each of the four arrays; None makes them far larger than the last cache
    """
    count = count or 4 * last_cache_bytes() // 4
    arrays = [alloc((count,)) for _ in range(4)]
    work = update_task, -(-count // CHUNK), *map(data, arrays), count
    run(*work)  # compiled, and each page first touched by the thread that will use it
    best = min(seconds_of(*work) for _ in range(PASSES))
    return 7 * 4 * count / best / 1e9


def seconds_of(kernel, tasks, *arguments):
    """Time one call."""
    start = time.perf_counter()
    run(kernel, tasks, *arguments)
    return time.perf_counter() - start
