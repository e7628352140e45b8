#!/usr/bin/env python3
"""The matrix product from three loops to the peak, in steps that can be run and timed.

    python bench/matmul_steps.py [--size M N K] [--step 0 1 ...] [--threads N]

Each step computes c = a b, with a (M, K), b (K, N) and c (M, N) in float32. It is compared with
NumPy in float64 before it is timed. docs/matmul.md explains each step and quotes it.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, set_num_threads, types
from numba.core import cgutils

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.performance.machine import describe
from llmpy.cpu.caches import second_cache_bytes
from llmpy.cpu.gemm import KC, gemm
from llmpy.cpu.limits import peak_gflops
from llmpy.cpu.memory import alloc, data, row, scratch_at
from llmpy.cpu.simd import (
    MR,
    NR,
    NV,
    W,
    at,
    declare,
    f32,
    floats,
    floats_at,
    load,
    splat,
    store,
    vector,
    with_twin,
)
from llmpy.cpu.tasks import integers, run
from llmpy.cpu.threads import set_threads

SIZE = (1024, 3072, 768)  # GPT-2 124M: 1024 tokens through the first matrix of the MLP
ENOUGH_S, RUNS = 1.5, 3  # a step is run for so long, and at least so often
LIMIT = 1e-5  # of the relative L2 norm of the error

kernel = njit(error_model="numpy")  # an error cannot leave a kernel that other threads run, too


# ----------------------------------------------------------------------------------------------
# 0 to 2: the loops


def loops(c, a, b):
    """Write c = a b by the definition."""
    M, N = c.shape
    K = a.shape[1]
    for m in range(M):
        for n in range(N):
            total = np.float32(0)
            for k in range(K):
                total += a[m, k] * b[k, n]
            c[m, n] = total


compiled_loops = kernel(loops)


@kernel
def rows_of_b(c, a, b):
    """Write c = a b row by row: to a row of c, add each row of b, scaled."""
    M, N = c.shape
    K = a.shape[1]
    for m in range(M):
        c[m] = 0
        for k in range(K):
            for n in range(N):
                c[m, n] += a[m, k] * b[k, n]


# ----------------------------------------------------------------------------------------------
# 3: the register tile


def tile_twin(c, ldc, a, a_row, a_k, b, b_k, k):
    """Do what `tile` does, in Python."""
    for i in range(MR):
        total = np.zeros(NR, np.float32)
        for j in range(k):
            total += floats_at(a + 4 * (i * a_row + j * a_k), 1) * floats_at(b + 4 * j * b_k, NR)
        floats_at(c + 4 * i * ldc, NR)[:] += total


@with_twin(tile_twin)
def tile(typingctx, c, ldc, a, a_row, a_k, b, b_k, k):
    """Add to MR rows and NR columns of c their sums over k, kept in registers meanwhile.

    c, a, b        addresses
    ldc            floats from one row of c to the next
    a_row, a_k     floats from one row of a to the next, and from one k to the next
    b_k            floats from one k to the next in b
    """

    def codegen(context, builder, signature, args):
        c, ldc, a, a_row, a_k, b, b_k, k = args
        c, a, b = (builder.inttoptr(x, f32.as_pointer()) for x in (c, a, b))
        fma = declare(builder, f"llvm.fma.v{W}f32", vector, [vector] * 3)
        zeros, i64 = ir.Constant(vector, [0.0] * W), k.type
        sums = [[cgutils.alloca_once_value(builder, zeros) for _ in range(NV)] for _ in range(MR)]
        with cgutils.for_range(builder, k) as loop:
            at_b = at(builder, b, builder.mul(loop.index, b_k))
            b_row = [load(builder, at(builder, at_b, j * W)) for j in range(NV)]
            at_a = at(builder, a, builder.mul(loop.index, a_k))
            for i in range(MR):
                to_row = builder.mul(a_row, ir.Constant(i64, i))
                a_value = splat(builder, builder.load(at(builder, at_a, to_row)))
                for j in range(NV):
                    total = builder.load(sums[i][j])
                    builder.store(builder.call(fma, [a_value, b_row[j], total]), sums[i][j])
        for i in range(MR):
            at_c = at(builder, c, builder.mul(ldc, ir.Constant(i64, i)))
            for j in range(NV):
                to = at(builder, at_c, j * W)
                store(builder, builder.fadd(load(builder, to), builder.load(sums[i][j])), to)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8), codegen


@kernel
def tiles_as_they_lie(c, a, b, ld, M, N, K):
    """Add a b to c, for M and N of whole tiles; rows of b and c are ld floats apart."""
    for n in range(0, N, NR):
        for m in range(0, M, MR):
            tile(c + 4 * (m * ld + n), ld, a + 4 * m * K, K, 1, b + 4 * n, ld, K)


def register_tile(c, a, b):
    """Write c = a b in tiles, and what is left over in rows."""
    c[:] = 0
    (M, N), K = c.shape, a.shape[1]
    m, n = M // MR * MR, N // NR * NR
    tiles_as_they_lie(data(c), data(a), data(b), N, m, n, K)
    rows_of_b(c[m:], a[m:], b)  # the rows and columns that are left over
    rows_of_b(c[:m, n:], a[:m], b[:, n:])


# ----------------------------------------------------------------------------------------------
# 4: packing


@kernel
def pack_b(dst, b, ldb, cols, k):
    """Copy `cols` <= NR columns of b as a panel [k][NR]; columns that are not there are zero."""
    panel = floats(dst, k * NR)
    for j in range(k):
        numbers = floats(b + 4 * j * ldb, cols)
        for n in range(cols):
            panel[j * NR + n] = numbers[n]
        for n in range(cols, NR):
            panel[j * NR + n] = 0


@kernel
def tiles_of_panels(c, a, b, ld, M, N, K, panel_b):
    """Add a b to c, a column of tiles for each panel of b."""
    for n in range(0, N, NR):
        pack_b(panel_b, b + 4 * n, ld, NR, K)
        for m in range(0, M, MR):
            tile(c + 4 * (m * ld + n), ld, a + 4 * m * K, K, 1, panel_b, NR, K)


def packing(c, a, b):
    """Write c = a b, with memory for a panel of b."""
    c[:] = 0
    (M, N), K = c.shape, a.shape[1]
    m, n = M // MR * MR, N // NR * NR
    tiles_of_panels(data(c), data(a), data(b), N, m, n, K, scratch_at("steps_b", NR * K))
    rows_of_b(c[m:], a[m:], b)
    rows_of_b(c[:m, n:], a[:m], b[:, n:])


# ----------------------------------------------------------------------------------------------
# 5: blocking


@kernel
def pack_a(dst, a, lda, rows, k):
    """Copy `rows` <= MR rows of a as a panel [k][MR]; rows that are not there are zero."""
    panel = floats(dst, k * MR)
    for r in range(rows):
        numbers = floats(a + 4 * r * lda, k)
        for j in range(k):
            panel[j * MR + r] = numbers[j]
    for r in range(rows, MR):
        for j in range(k):
            panel[j * MR + r] = 0


@kernel
def packed_tile(c, ldc, panel_a, panel_b, k, rows, cols, edge):
    """Add the product of two panels to c; where it is cut off, by way of a tile elsewhere."""
    if rows == MR and cols == NR:
        tile(c, ldc, panel_a, 1, MR, panel_b, NR, k)
        return
    sums = floats(edge, MR * NR)
    sums[:] = 0
    tile(edge, NR, panel_a, 1, MR, panel_b, NR, k)
    for i in range(rows):
        numbers = floats(c + 4 * i * ldc, cols)
        for j in range(cols):
            numbers[j] += sums[i * NR + j]


@kernel
def blocked_panels(c, a, b, ld, M, N, K, MC, block_a, panels_b, edge):
    """Add a b to c, piece of k by piece, and block of a by block."""
    for q in range(0, K, KC):  # a piece of k: a panel of b fits the first cache
        k = min(KC, K - q)
        for n in range(0, N, NR):
            pack_b(panels_b + 4 * n * KC, b + 4 * (q * ld + n), ld, min(NR, N - n), k)
        for first in range(0, M, MC):  # a block of a: it fits the second cache
            last = min(M, first + MC)
            for m in range(first, last, MR):
                pack_a(block_a + 4 * (m - first) * KC, a + 4 * (m * K + q), K, min(MR, M - m), k)
            for n in range(0, N, NR):
                panel_b, cols = panels_b + 4 * n * KC, min(NR, N - n)
                for m in range(first, last, MR):
                    at_c, panel_a = c + 4 * (m * ld + n), block_a + 4 * (m - first) * KC
                    packed_tile(at_c, ld, panel_a, panel_b, k, min(MR, M - m), cols, edge)


def block_rows():
    """Give the rows of a that fill half of the second cache with KC numbers each."""
    return second_cache_bytes() // 2 // (4 * KC) // MR * MR


def blocking(c, a, b):
    """Write c = a b, with memory for a block of a, and for all panels of a piece of b."""
    c[:] = 0
    (M, N), K = c.shape, a.shape[1]
    MC = block_rows()
    block_a, panels_b = scratch_at("steps_a", MC * KC), scratch_at("steps_b", (N + NR) * KC)
    edge = scratch_at("steps_edge", MR * NR)
    blocked_panels(data(c), data(a), data(b), row(c), M, N, K, MC, block_a, panels_b, edge)


# ----------------------------------------------------------------------------------------------
# 6: threads


@kernel
def some_columns(arguments, task, thread):
    """Compute the columns of c that fall to a task of `tasks`, with scratch of the thread."""
    c, a, b, ld, M, N, K, MC, tasks, blocks_a, panels_b, edges = integers(arguments, 12)
    panels = -(-N // NR)
    first, last = task * panels // tasks * NR, min(N, (task + 1) * panels // tasks * NR)
    blocked_panels(
        c + 4 * first, a, b + 4 * first, ld, M, last - first, K, MC,
        blocks_a + 4 * thread * MC * KC, panels_b + 4 * first * KC, edges + 4 * thread * MR * NR,
    )  # fmt: skip


def threads(c, a, b):
    """Write c = a b, an equal share of its columns by each thread."""
    c[:] = 0
    (M, N), K = c.shape, a.shape[1]
    MC, tasks = block_rows(), get_num_threads()
    blocks_a = scratch_at("steps_a", tasks * MC * KC)
    panels_b = scratch_at("steps_b", (N + NR) * KC)
    edges = scratch_at("steps_edge", tasks * MR * NR)
    run(
        some_columns, tasks, data(c), data(a), data(b), row(c), M, N, K, MC, tasks, blocks_a,
        panels_b, edges,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------
# 7: llmpy's own


def llmpy_gemm(c, a, b):
    """Write c = a b as the ops of llmpy do."""
    gemm(c, a, b, a_unit_k=True, b_unit_k=False, K=a.shape[1])


# ----------------------------------------------------------------------------------------------
# run them


class Step(NamedTuple):
    """A step: what it is called, what it runs, and how."""

    name: str
    run: object
    rows: int | None = None  # of a that are timed, where all would take too long: each costs alike
    parallel: bool = False


STEPS = (
    Step("three loops in Python", loops, rows=1),
    Step("three loops, compiled", compiled_loops, rows=8),
    Step("n inside: along the rows of b", rows_of_b),
    Step("register tile", register_tile),
    Step("packing", packing),
    Step("blocking", blocking),
    Step("threads", threads, parallel=True),
    Step("llmpy's gemm", llmpy_gemm, parallel=True),
)


def check(name, c, want):
    """Stop if c is off: float32 sums of K terms lie far below the limit, a wrong element above."""
    off = np.linalg.norm(c - want) / np.linalg.norm(want)
    if not off <= LIMIT:  # NaN fails, too
        raise SystemExit(f"{name}: relative L2 norm of the error is {off:.3g}, expected {LIMIT:g}")


def gflops(step, a, b, want):
    """Check a step, then time it; give the best rate, in 1e9 operations a second."""
    (M, K), N = a[: step.rows].shape, b.shape[1]
    a, c = a[:M], alloc((M, N))
    c[:] = np.nan
    step.run(c, a, b)  # compiled, and its scratch memory there
    check(step.name, c, want[:M])
    best, runs, end = np.inf, 0, time.perf_counter() + ENOUGH_S
    while runs < RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        step.run(c, a, b)
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return 2 * M * N * K / best / 1e9


def positive(word):
    """Read a number from 1 on."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}, expected at least 1")
    return number


def arguments(words=None):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    size = {"type": positive, "nargs": 3, "default": SIZE, "metavar": ("M", "N", "K")}
    parser.add_argument("--size", **size, help="c is (M, N), a sum has K terms (%(default)s)")
    parser.add_argument(
        "--step", type=int, nargs="+", choices=range(len(STEPS)), default=range(len(STEPS)),
        help="which steps (all)",
    )  # fmt: skip
    parser.add_argument("--threads", type=positive, help="of steps 6 and 7 (all processors)")
    return parser.parse_args(words)


def main(words=None):
    """Print a table of the steps."""
    args = arguments(words)
    count, machine = set_threads(args.threads), describe()
    M, N, K = args.size
    rng = np.random.default_rng(0)
    a, b = alloc((M, K)), alloc((K, N))
    a[:], b[:] = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    want = a.astype(np.float64) @ b
    print(f"{machine['cpu']}, {', '.join(machine['caches'])}, tile {machine['tile']}")
    peaks = {}
    for n in sorted({1, count}):
        set_num_threads(n)
        peaks[n] = peak_gflops()
        print(f"peak of the tile, {n} thread{'s' * (n > 1)}: {peaks[n]:.0f} GFLOP/s")
    print(f"c ({M}, {N}) = a ({M}, {K}) b ({K}, {N}), {2e-9 * M * N * K:.2f} GFLOP\n")
    print("| step | | threads | GFLOP/s | share of the peak |\n|---|---|---|---|---|")
    for i in args.step:
        step, n = STEPS[i], count if STEPS[i].parallel else 1
        set_num_threads(n)
        rate = gflops(step, a, b, want)
        print(
            f"| {i} | {step.name} | {n} | {rate:.3g} | {100 * rate / peaks[n]:.2g}% |", flush=True
        )


if __name__ == "__main__":
    main()
