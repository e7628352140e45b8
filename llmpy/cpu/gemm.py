"""Matrix multiplication: three loops, made fast in four steps.

    c[m, n] = sum over k of a[m, k] b[k, n]

1. Tile. `tile.tile` keeps MR x NR sums in registers while k runs: 2 MR NR operations for MR + NR
   words read.
2. Packing. The tile reads A and B from front to back as panels, A[k][MR] and B[k][NR], copied so
   that one kernel serves the three products of a layer: NT (forward), NN (dinp), TN (dweight). For
   bfloat16, numbers are rounded while they are packed. Where few panels of B would use it, A is
   taken from its rows as they lie.
3. Blocking. k is cut into pieces of KC words. Within a piece, a panel of B stays in the first cache
   (L1), and a block of A, which fits the second (L2) beside what else is used, is read once for
   each panel. c is visited once a piece, where that pays in strips of columns, which stay in L2
   from one piece to the next. While a panel is at work, the next is asked for from memory.
4. Splitting. Blocks of c, cut along both of its sides, are shared out among the threads.

A sum is made in the order of k, in pieces, by one thread: its bits depend on neither the
number of threads, nor the machine's caches, nor the place of the element in c, nor the other rows.

What runs in parallel takes addresses and integers (tasks.py), so there is one compiled version.
Rows of a, b and c are contiguous or strided by ld floats.
"""

import math
from collections import namedtuple
from functools import cache

from numba import get_num_threads

from .caches import second_cache_bytes
from .column_panels import GROUP, pack_columns
from .jit import kernel, part
from .memory import data, max_threads, row, scratch_at
from .packing import LINE, STEP, pack_panel, words
from .simd import MR, NR, W, floats, prefetch
from .tasks import integers, run
from .tile import ADD, WRITE, edge_tile, tile
from .vector_math import gelu_both_rows, gelu_row

KC = 256  # words of a sum between two visits to c
FINISHED = -(-64 // NR)  # panels that get their epilogue together: rows long enough for vectors
ROWS_AHEAD = 8  # between the one that gets its epilogue and the one that is asked for
SMALL = 1 << 16  # numbers of B packed more than once, by each thread, that cost less than a wait
FEW_PANELS = 12  # panels of B that a block of A must meet for its packing to pay
FEW_SHORT = 4  # times as many where k is one piece: whole rows are read, which is faster

A_PANEL = KC * MR + W  # words of a packed panel; W spare ones, see packing.py
B_PANEL = KC * NR

AS_IT_LIES, OWN, SHARED = 0, 1, 2  # A: in place; packed by each task for itself; once, for all
NOTHING, GELU, GELU_DERIVATIVE = 0, 1, 2  # epilogues


@part
def pack_block_a(dst, a, ld, unit_k, first, rows, piece, k, bf16, sums):
    """Pack `rows` rows of A from row `first` on, k columns from `piece` on: MR rows an A_PANEL.

    sums  address of the floats that get the sum of each row over these columns; 0 with unit_k
    """
    if not unit_k:
        pack_columns(dst, A_PANEL, a + 4 * (first + piece * ld), ld, rows, k, bf16, sums)
        return
    for t in range(-(-rows // MR)):
        src, there = a + 4 * ((first + t * MR) * ld + piece), min(MR, rows - t * MR)
        pack_panel(dst + 4 * t * A_PANEL, MR, src, ld, 1, there, k, bf16)


@part
def finish(epilogue, c, ldc, out, pre, ld, rows, cols):
    """Do the epilogue on some columns of a block of c."""
    for i in range(rows):
        for line in range(0, cols, LINE):
            ahead = 4 * ((i + ROWS_AHEAD) * ld + line)
            prefetch(out + ahead)
            if epilogue == GELU_DERIVATIVE:
                prefetch(pre + ahead)
        row, to = floats(c + 4 * i * ldc, cols), floats(out + 4 * i * ld, cols)
        if epilogue == GELU:
            gelu_row(to, row)
        else:
            gelu_both_rows(row, to, floats(pre + 4 * i * ld, cols))


@part
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


@kernel
def pack_shared(arguments, task, thread):
    """Pack what several blocks of c share: a group of panels of A, or a panel of B."""
    (
        a, lda, a_unit_k, a_tasks, b, ldb, b_unit_k, M, N, K, piece, bf16, sums, a_packed, b_packed,
    ) = integers(arguments, 15)  # fmt: skip
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // piece)
    if task < a_tasks:
        groups = a_tasks // k_blocks
        q, first = task // groups, task % groups * GROUP
        rows, k = min(GROUP, M - first), min(piece, K - q * piece)
        dst = a_packed + 4 * (q * m_panels + first // MR) * A_PANEL
        to = sums + 4 * (q * M + first) if sums else 0
        pack_block_a(dst, a, lda, a_unit_k, first, rows, q * piece, k, bf16, to)
        return
    q, p = (task - a_tasks) // n_panels, (task - a_tasks) % n_panels
    cols, k = min(NR, N - p * NR), min(piece, K - q * piece)
    at_b = b + 4 * (p * NR * ldb + q * piece if b_unit_k else p * NR + q * piece * ldb)
    dst = b_packed + 4 * (q * n_panels + p) * B_PANEL
    pack_panel(dst, NR, at_b, ldb, b_unit_k, cols, k, bf16)


@part
def column_of_tiles(
    bf16, c, ldc, a, a_step, a_row, a_k, rows, panel_b, cols, k, mode, bias, ahead, ldb, b_unit_k,
    cols_ahead,
):  # fmt: skip
    """Multiply a block of A, panel after panel, by a panel of B, and ask for what the next is of.

    a, a_step  the block of A; words from one panel to the next
    ahead      what the next panel of B is packed from, `cols_ahead` of its columns; 0 for none
    """
    panels, k_words = -(-rows // MR), words(k, bf16)
    share = -(-(NR if b_unit_k else k) // panels)
    for t in range(panels):
        there = min(MR, rows - t * MR)
        at_c, at_a = c + 4 * t * MR * ldc, a + 4 * t * a_step
        if there == MR and cols == NR:
            tile(bf16, at_c, ldc, at_a, a_row, a_k, panel_b, k_words, mode, bias)
        else:
            edge_tile(bf16, at_c, ldc, at_a, a_row, a_k, panel_b, k_words, mode, bias, there, cols)
        if ahead:
            prefetch_panel(ahead, ldb, b_unit_k, t * share, t * share + share, cols_ahead, k)


@kernel
def block_of_c(arguments, task, thread):
    """Compute a block of c, strip after strip, in each piece of k after piece, and the epilogue."""
    (
        c, ldc, a, lda, a_unit_k, a_form, b, ldb, b_unit_k, M, N, K, piece, bf16, mode, bias,
        epilogue, out, pre, ld, sums, m_blocks, n_blocks, strip, a_kept, a_packed, a_own, b_packed,
        b_own,
    ) = integers(arguments, 29)  # fmt: skip
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // piece)
    mb, nb = task // n_blocks, task % n_blocks
    t0, t1 = mb * m_panels // m_blocks, (mb + 1) * m_panels // m_blocks
    p0, p1 = nb * n_panels // n_blocks, (nb + 1) * n_panels // n_blocks
    first, rows = t0 * MR, min(M, t1 * MR) - t0 * MR
    to_panel = NR * ldb if b_unit_k else NR  # floats of B from one panel to the next
    to_piece = piece if b_unit_k else piece * ldb
    own_panels = -(-m_panels // m_blocks)
    for s0 in range(p0, max(p1, p0 + 1), strip):  # a c without columns has a strip, for the sums
        s1 = min(p1, s0 + strip)
        for q in range(k_blocks):
            k, now = min(piece, K - q * piece), mode if q == 0 else ADD
            at_a, a_step, a_row, a_k = a + 4 * (first * lda + q * piece), MR * lda, lda, 1
            if a_form == OWN:
                place = q % a_kept
                at_a = a_own + 4 * (thread * a_kept + place) * own_panels * A_PANEL
                a_step, a_row, a_k = A_PANEL, 1, MR
                if s0 == p0:
                    to = sums + 4 * (q * M + first) if sums and nb == 0 else 0
                    pack_block_a(at_a, a, lda, a_unit_k, first, rows, q * piece, k, bf16, to)
            elif a_form == SHARED:
                at_a, a_step = a_packed + 4 * (q * m_panels + t0) * A_PANEL, A_PANEL
                a_row, a_k = 1, MR
            for p in range(s0, s1):
                cols, at_c = min(NR, N - p * NR), c + 4 * (first * ldc + p * NR)
                at_b = b + 4 * (p * to_panel + q * to_piece)
                panel_b, ahead = b_packed + 4 * (q * n_panels + p) * B_PANEL, 0
                if not b_packed:
                    panel_b = b_own + 4 * thread * B_PANEL
                    pack_panel(panel_b, NR, at_b, ldb, b_unit_k, cols, k, bf16)
                    ahead = at_b + 4 * to_panel if p + 1 < s1 else 0
                column_of_tiles(
                    bf16, at_c, ldc, at_a, a_step, a_row, a_k, rows, panel_b, cols, k, now,
                    bias + 4 * p * NR, ahead, ldb, b_unit_k, min(NR, N - p * NR - NR),
                )  # fmt: skip
                done = (p - s0) % FINISHED + 1  # panels since the last epilogue
                if epilogue != NOTHING and q == k_blocks - 1 and (done == FINISHED or p + 1 == s1):
                    back = (done - 1) * NR
                    at = 4 * (first * ld + p * NR - back)
                    finish(
                        epilogue, at_c - 4 * back, ldc, out + at, pre + at, ld, rows, cols + back
                    )  # fmt: skip


@cache
def blocks(M, N, k, threads):
    """Give the numbers of blocks along the rows and along the columns of c; a piece has k words.

    A block of A fills at most five eighths of L2, and three where there are several. There is an
    equal number of blocks for each thread where the panels suffice.
    """
    m_panels, n_panels = -(-M // MR), -(-N // NR)
    eighths = m_panels * MR * k * 4 * 8 / second_cache_bytes()
    m_blocks = 1 if eighths <= 5 else min(m_panels, math.ceil(eighths / 3))
    while m_blocks < m_panels and m_blocks * n_panels < threads:
        m_blocks += 1
    even = -(-m_blocks // threads) * threads  # then the columns need no cut
    m_blocks = even if threads < m_blocks and even <= m_panels else m_blocks
    n_blocks = 1
    while n_blocks < n_panels and m_blocks * n_blocks % threads:
        n_blocks += 1
    return m_blocks, n_blocks


@cache
def strips(a_panels, b_panels, k_blocks):
    """Give the panels of B in a strip of a block of c, and the pieces of A that stay packed.

    Where k has several pieces, a strip fills three eighths of L2, and a block that is not half as
    wide again is one strip. All of A is read again for each: where it is more than three halves of
    L2, that costs more than c's visits from beyond, and the block is one strip, too.
    """
    cache, panel_of_c = second_cache_bytes(), 4 * max(1, a_panels) * MR * NR
    strip = max(1, cache * 3 // 8 // panel_of_c // FINISHED) * FINISHED
    all_of_a = 4 * a_panels * k_blocks * A_PANEL
    if k_blocks > 1 and 2 * b_panels >= 3 * strip and 2 * all_of_a <= 3 * cache:
        return strip, k_blocks
    return max(1, b_panels), 1


Plan = namedtuple("Plan", "m_blocks n_blocks strip a_kept a_form scratch")


def piece_of(bf16):
    """Give how many numbers the KC words of a piece are."""
    return KC * STEP if bf16 else KC


def plan(M, N, K, *, piece, bf16, in_place, threads, most):
    """Give the blocks of c, its strips, the form of A, and the words of scratch by use.

    piece     numbers of a piece, of at most KC words
    in_place  whether the tile can take A from its rows as they lie
    most      threads that there may be, each with scratch of its own
    """
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // piece)
    m_blocks, n_blocks = blocks(M, N, words(min(K, piece), bf16), threads)
    own_panels = -(-m_panels // m_blocks)
    strip, a_kept = strips(own_panels, -(-n_panels // n_blocks), k_blocks)
    a_form, scratch = OWN, {}
    if n_panels // n_blocks < FEW_PANELS * (FEW_SHORT if piece >= K else 1):
        a_form = AS_IT_LIES if in_place else SHARED if n_blocks > 1 else OWN
    if a_form == SHARED:
        scratch["a_packed"] = m_panels * k_blocks * A_PANEL
    elif a_form == OWN:
        scratch["a_own"] = most * a_kept * own_panels * A_PANEL
    # packing b for all blocks means a wait, and a way to memory and back: twice is cheaper
    if m_blocks > 2 and (m_blocks - 1) * N * K > SMALL * most:
        scratch["b_packed"] = n_panels * k_blocks * B_PANEL
    else:
        scratch["b_own"] = most * B_PANEL
    return Plan(m_blocks, n_blocks, strip, a_kept, a_form, scratch)


def can_lie(M, lda, bf16):
    """Tell whether A, with rows along k, can be read as it lies, where there are few panels of B.

    Rows a multiple of 4 KiB apart meet in few sets of the caches.
    """
    return not bf16 and (lda % 1024 != 0 or M <= MR)


def gemm(
    c, a, b, *, a_unit_k, b_unit_k, K, bf16=False, mode=WRITE, bias=None, epilogue=NOTHING,
    out=None, pre=None, sums=None, piece=None,
):  # fmt: skip
    """Compute c = a b, c += a b or c = a b + bias, then an epilogue on each finished block.

    c         f32 (M, N)  written, or added to
    a         f32 (M, K), or (K, M) without a_unit_k
    b         f32 (N, K), or (K, N) without b_unit_k
    bf16      round a and b to bfloat16
    mode      WRITE, ADD or BIAS
    bias      f32 (N), read by BIAS
    epilogue  GELU: out = gelu(c); GELU_DERIVATIVE: c *= gelu'(pre), and out = gelu(pre)
    out, pre  f32 (M, N), rows equally far apart
    sums      f32 (pieces, M), which gets the sums of a over each piece; without a_unit_k only
    piece     terms of a sum between two visits to c, at most `piece_of(bf16)`, which None means

    Matrices may be slices of wider ones: their last axis is contiguous.
    """
    M, N = c.shape
    piece = piece or piece_of(bf16)
    at_a, at_b, lda, ldb, at_sums = data(a), data(b), row(a), row(b), _at(sums)
    m_blocks, n_blocks, strip, a_kept, a_form, scratch = plan(
        M, N, K, piece=piece, bf16=bf16, in_place=a_unit_k and can_lie(M, lda, bf16),
        threads=get_num_threads(), most=max_threads(),
    )  # fmt: skip
    at = {use: scratch_at(use, count) for use, count in scratch.items()}
    a_packed, a_own, b_packed, b_own = (
        at.get(use, 0) for use in ("a_packed", "a_own", "b_packed", "b_own")
    )
    a_tasks = -(-M // GROUP) * -(-K // piece) if a_packed else 0
    b_tasks = -(-N // NR) * -(-K // piece) if b_packed else 0
    if a_tasks + b_tasks:
        run(
            pack_shared, a_tasks + b_tasks, at_a, lda, a_unit_k, a_tasks, at_b, ldb, b_unit_k,
            M, N, K, piece, bf16, at_sums, a_packed, b_packed,
        )  # fmt: skip
    run(
        block_of_c, m_blocks * n_blocks, data(c), row(c), at_a, lda, a_unit_k, a_form, at_b, ldb,
        b_unit_k, M, N, K, piece, bf16, mode, _at(bias), epilogue, _at(out), _at(pre),
        0 if out is None else row(out), at_sums, m_blocks, n_blocks, strip, a_kept, a_packed, a_own,
        b_packed, b_own,
    )  # fmt: skip


def _at(array):
    return 0 if array is None else data(array)
