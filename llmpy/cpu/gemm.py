"""Matrix multiplication: three loops, made fast in four steps.

    c[m, n] = sum over k of a[m, k] b[k, n]

1. Tile. `tile.tile` keeps MR x NR sums in registers while k runs: 2 MR NR operations for MR + NR
   words read.
2. Packing. The tile reads A and B from front to back as panels, A[k][MR] and B[k][NR], copied so
   that one kernel serves the three products of a layer: NT (forward), NN (dinp), TN (dweight). For
   bfloat16, numbers are rounded while they are packed. Where few panels of B would use it, A is
   taken from its rows as they lie.
3. Blocking. k is cut into pieces of KC. Within a piece, a panel of B stays in the first cache (L1),
   and a block of A, as many rows as half of the second cache (L2) holds, is read once for each
   panel; c is visited once a piece. While a panel is at work, the next is asked for from memory.
4. Splitting. Blocks of c, cut along both of its sides, are shared out among the threads.

A sum is made in the order of k, in pieces of KC, by one thread: its bits depend on neither the
number of threads, nor the machine's caches, nor the place of the element in c, nor the other rows.

All arguments of the kernel are addresses and integers, so there is one compiled version. Rows of a,
b and c are contiguous or strided by ld floats.
"""

import math
from functools import cache

from numba import get_num_threads, get_thread_id, prange

from .caches import second_cache_bytes
from .jit import parallel, serial
from .memory import data, max_threads, row, scratch_at
from .packing import A_GROUP, GROUP, column_sums, copy_mr, pack_panel_a, pack_panel_b, words
from .simd import MR, NR, W, floats, prefetch
from .tile import ADD, WRITE, edge_tile, tile
from .vector_math import gelu_row, scale_by_gelu_derivative

KC = 256  # terms of a sum between two visits to c
LINE = 16  # floats of a cache line
FINISHED = -(-64 // NR)  # panels that get their epilogue together: rows long enough for vectors
SMALL = 1 << 16  # numbers
FEW_PANELS = 12  # panels of B that a block of A must meet for its packing to pay

A_PANEL = KC * MR + W  # words of a packed panel; W spare ones, see packing.py
B_PANEL = KC * NR

AS_IT_LIES, OWN, SHARED = 0, 1, 2  # A: in place; packed by each task for itself; once, for all
NOTHING, GELU, GELU_DERIVATIVE = 0, 1, 2  # epilogues


@serial
def pack_block_a(dst, a, ld, unit_k, first, rows, piece, k, bf16, sums):
    """Pack `rows` rows of A from row `first` on, k columns from `piece` on: MR rows an A_PANEL.

    sums  address of the floats that get the sum of each row over these columns; or 0
    """
    src, step = (a + 4 * (first * ld + piece), ld) if unit_k else (a + 4 * (first + piece * ld), 1)
    whole = 0
    if not unit_k and not bf16:  # a row of many panels at once: whole cache lines
        while (whole + A_GROUP) * MR <= rows:
            for j in range(k):
                at = src + 4 * (whole * MR + j * ld)
                for t in range(A_GROUP):
                    copy_mr(dst + 4 * ((whole + t) * A_PANEL + j * MR), at + 4 * t * MR, ld)
            whole += A_GROUP
    for t in range(whole, -(-rows // MR)):
        at = src + 4 * t * MR * step
        pack_panel_a(dst + 4 * t * A_PANEL, at, ld, unit_k, min(MR, rows - t * MR), k, bf16)
    if sums:
        for c in range(0, rows, GROUP):
            column_sums(sums + 4 * (first + c), src + 4 * c, ld, min(GROUP, rows - c), k)


@serial
def finish(epilogue, c, ldc, aux, ldaux, rows, cols):
    """Do the epilogue on some columns of a block of c."""
    for i in range(rows):
        row, other = floats(c + 4 * i * ldc, cols), floats(aux + 4 * i * ldaux, cols)
        if epilogue == GELU:
            gelu_row(other, row)
        else:
            scale_by_gelu_derivative(row, other)


@serial
def prefetch_panel(b, ld, unit_k, first, last, cols, k):
    """Ask for what the next panel of B is packed from: its columns `first` to `last`, or rows."""
    if unit_k:
        for c in range(first, min(last, cols)):
            for j in range(0, k, LINE):
                prefetch(b + 4 * (c * ld + j))
    else:
        for j in range(first, min(last, k)):
            for c in range(0, cols, LINE):
                prefetch(b + 4 * (j * ld + c))


@parallel
def gemm_kernel(
    c, ldc, a, lda, a_unit_k, a_form, b, ldb, b_unit_k, pack_b, M, N, K, bf16, mode, bias,
    epilogue, aux, ldaux, sums, m_blocks, n_blocks, a_packed, a_own, b_packed, b_own,
):  # fmt: skip
    """Compute c = or += a b, then the epilogue; see `gemm`."""
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // KC)
    b_step, b_piece = (ldb, KC) if b_unit_k else (1, KC * ldb)
    block_panels = -(-m_panels // m_blocks)

    # pass 1: pack what several blocks of c share
    groups = -(-m_panels // A_GROUP) if a_form == SHARED else 0
    a_tasks, b_tasks = groups * k_blocks, n_panels * k_blocks if pack_b else 0
    if a_tasks + b_tasks > 0:
        for task in prange(a_tasks + b_tasks):
            if task < a_tasks:
                q, first = task // groups, task % groups * A_GROUP * MR
                rows, k = min(A_GROUP * MR, M - first), min(KC, K - q * KC)
                dst = a_packed + 4 * (q * m_panels * A_PANEL + first // MR * A_PANEL)
                to = sums + 4 * q * M if sums else 0
                pack_block_a(dst, a, lda, a_unit_k, first, rows, q * KC, k, bf16, to)
            else:
                q, p = (task - a_tasks) // n_panels, (task - a_tasks) % n_panels
                cols, k = min(NR, N - p * NR), min(KC, K - q * KC)
                dst = b_packed + 4 * (q * n_panels + p) * B_PANEL
                at_b = b + 4 * (p * NR * b_step + q * b_piece)
                pack_panel_b(dst, at_b, ldb, b_unit_k, cols, k, bf16)

    # pass 2: blocks of c
    for task in prange(m_blocks * n_blocks):
        mb, nb, tid = task // n_blocks, task % n_blocks, get_thread_id()
        t0, t1 = mb * m_panels // m_blocks, (mb + 1) * m_panels // m_blocks
        p0, p1 = nb * n_panels // n_blocks, (nb + 1) * n_panels // n_blocks
        first, rows = t0 * MR, min(M, t1 * MR) - t0 * MR
        shares = -(-(NR if b_unit_k else KC) // (t1 - t0))  # of a panel, to ask for beside a tile
        for q in range(k_blocks):
            k, now = min(KC, K - q * KC), mode if q == 0 else ADD
            k_words = words(k, bf16)
            # the block of A: its address, words to its next panel, next row and next k
            at_a, a_step, a_row, a_k = a + 4 * (first * lda + q * KC), MR * lda, lda, 1
            if a_form == OWN:
                at_a, a_step, a_row, a_k = a_own + 4 * tid * block_panels * A_PANEL, A_PANEL, 1, MR
                to = sums + 4 * q * M if sums and nb == 0 else 0
                pack_block_a(at_a, a, lda, a_unit_k, first, rows, q * KC, k, bf16, to)
            elif a_form == SHARED:
                at_a, a_step = a_packed + 4 * (q * m_panels + t0) * A_PANEL, A_PANEL
                a_row, a_k = 1, MR
            for p in range(p0, p1):
                cols = min(NR, N - p * NR)
                at_b = b + 4 * (p * NR * b_step + q * b_piece)
                panel_b = b_own + 4 * tid * B_PANEL
                if pack_b:
                    panel_b = b_packed + 4 * (q * n_panels + p) * B_PANEL
                else:
                    pack_panel_b(panel_b, at_b, ldb, b_unit_k, cols, k, bf16)
                for t in range(t1 - t0):
                    at_c, pa = c + 4 * ((first + t * MR) * ldc + p * NR), at_a + 4 * t * a_step
                    there, add = min(MR, rows - t * MR), bias + 4 * p * NR
                    if there == MR and cols == NR:
                        tile(bf16, at_c, ldc, pa, a_row, a_k, panel_b, k_words, now, add)
                    else:
                        edge_tile(
                            bf16, at_c, ldc, pa, a_row, a_k, panel_b, k_words, now, add, there, cols
                        )
                    if not pack_b and p + 1 < p1:
                        after, left = at_b + 4 * NR * b_step, min(NR, N - p * NR - NR)
                        share = t * shares
                        prefetch_panel(after, ldb, b_unit_k, share, share + shares, left, k)
                done = (p - p0) % FINISHED + 1  # panels since the last epilogue
                if epilogue != NOTHING and q == k_blocks - 1 and (done == FINISHED or p + 1 == p1):
                    col = (p + 1 - done) * NR
                    at_c, other = c + 4 * (first * ldc + col), aux + 4 * (first * ldaux + col)
                    finish(epilogue, at_c, ldc, other, ldaux, rows, min(N, p * NR + NR) - col)


@cache
def blocks(M, N, K, threads):
    """Give the numbers of blocks along the rows and along the columns of c.

    A block of A fills at most five eighths of L2, and three where there are several. There is an
    equal number of blocks for each thread where the panels suffice.
    """
    m_panels, n_panels = -(-M // MR), -(-N // NR)
    eighths = m_panels * MR * min(K, KC) * 4 * 8 / second_cache_bytes()
    m_blocks = 1 if eighths <= 5 else min(m_panels, math.ceil(eighths / 3))
    while m_blocks < m_panels and m_blocks * n_panels < threads:
        m_blocks += 1
    n_blocks = 1
    while n_blocks < n_panels and m_blocks * n_blocks % threads:
        n_blocks += 1
    return m_blocks, n_blocks


def gemm(
    c, a, b, *, a_unit_k, b_unit_k, K, bf16=False, mode=WRITE, bias=None, epilogue=NOTHING,
    aux=None, sums=None,
):  # fmt: skip
    """Compute c = a b, c += a b or c = a b + bias, then an epilogue on each finished block.

    c         f32 (M, N)  written, or added to
    a         f32 (M, K), or (K, M) without a_unit_k
    b         f32 (N, K), or (K, N) without b_unit_k
    bf16      round a and b to bfloat16
    mode      WRITE, ADD or BIAS
    bias      f32 (N), read by BIAS
    epilogue  GELU: aux = gelu(c); GELU_DERIVATIVE: c *= gelu'(aux)
    aux       f32 (M, N)
    sums      f32 (pieces of KC, M), which gets the sums of a over each piece; without a_unit_k only

    Matrices may be slices of wider ones: their last axis is contiguous.
    """
    M, N = c.shape
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // KC)
    m_blocks, n_blocks = blocks(M, N, K, get_num_threads())
    # rows a multiple of 4 KiB apart meet in few sets of the caches
    in_place = a_unit_k and not bf16 and (row(a) % 1024 or m_panels == 1)
    a_form = OWN
    if n_panels // n_blocks < FEW_PANELS * (4 if K <= KC else 1):
        a_form = AS_IT_LIES if in_place else SHARED if n_blocks > 1 else OWN
    threads = max_threads()
    # for a small b, the wait until all is packed costs more than packing it in each block
    pack_b = (m_blocks - 1) * N * K > SMALL * threads
    a_packed = a_own = b_packed = 0
    if a_form == SHARED:
        a_packed = scratch_at("a_packed", m_panels * k_blocks * A_PANEL)
    elif a_form == OWN:
        a_own = scratch_at("a_own", threads * -(-m_panels // m_blocks) * A_PANEL)
    if pack_b:
        b_packed = scratch_at("b_packed", n_panels * k_blocks * B_PANEL)
    gemm_kernel(
        data(c), row(c), data(a), row(a), int(a_unit_k), a_form, data(b), row(b), int(b_unit_k),
        int(pack_b), M, N, K, int(bf16), mode, 0 if bias is None else data(bias), epilogue,
        0 if aux is None else data(aux), 0 if aux is None else row(aux),
        0 if sums is None else data(sums), m_blocks, n_blocks, a_packed, a_own, b_packed,
        scratch_at("b_own", threads * B_PANEL),
    )  # fmt: skip
