"""Matrix multiplication: three loops, made fast in four steps.

    c[m, n] = sum over k of a[m, k] b[k, n]

1. Tile. `simd.tile` keeps MR x NR sums in registers while k runs: 2 MR NR operations for MR + NR
   floats read.
2. Packing. The tile reads B as a panel, B[k][NR], from front to back: `pack_panel_b` copies it so,
   transposing where memory runs along k. Of A it wants MR values for each k, and takes them where
   they lie if memory runs along k; `pack_panel_a` makes panels A[k][MR] where it does not. So one
   kernel serves the three products of a layer: NT (forward), NN (dinp), TN (dweight).
3. Blocking. k is cut into pieces of KC, so that a panel of B stays in the first cache (L1) and a
   block of A in the second, while c is visited once a piece.
4. Splitting. A is packed once, by all threads, if at all; then blocks of c are shared out. Each
   packs its own piece of B.

A sum is made in the order of k, in pieces of KC, by one thread: its bits depend on neither the
number of threads, nor the place of the element in c, nor the other rows.

All arguments are addresses and integers, so there is one compiled version. Rows of a, b and c are
contiguous or strided by ld floats.
"""

import numpy as np
from numba import get_thread_id, prange

from .jit import parallel, serial
from .memory import data, max_threads, row, scratch
from .simd import (
    ADD,
    BIAS,
    MR,
    NR,
    WRITE,
    W,
    copy_mr,
    copy_nr,
    floats,
    tile,
    transpose_mr,
    transpose_nr,
)
from .vector_math import gelu_row, scale_by_gelu_derivative

KC = 256  # terms of a sum between two visits to c
MB_PANELS = 288 // MR  # panels of A in a block: 288 * KC floats are 288 KiB, for the L2 cache
NB_PANELS = 4  # panels of B in a block, for an epilogue on whole vectors
A_GROUP = 8  # panels of A that a task packs together, so that it reads whole cache lines

A_PANEL = KC * MR + W  # floats of a packed panel; W spare ones, see simd._define_transpose
B_PANEL = KC * NR
OWN = B_PANEL + A_PANEL + MR * NR  # scratch of a thread: a panel of B, one of A, a tile

NOTHING, GELU, GELU_DERIVATIVE = 0, 1, 2  # epilogues


@serial
def pack_rest(dst, R, src, step_r, step_j, rows, j, k):
    """Pack columns j to k one by one: dst[j * R + r] = src[r * step_r + j * step_j].

    `rows` <= R are there; the missing ones are zero.
    """
    if j >= k:
        return
    out, inp = floats(dst, k * R), floats(src, (rows - 1) * step_r + (k - 1) * step_j + 1)
    while j < k:
        for r in range(rows):
            out[j * R + r] = inp[r * step_r + j * step_j]
        for r in range(rows, R):
            out[j * R + r] = np.float32(0)
        j += 1


@serial
def pack_panel_a(dst, src, ld, unit_k, rows, k):
    """Pack `rows` <= MR rows of A over k columns: dst[j * MR + r] = A[r, j], missing rows zero.

    unit_k  1 where memory runs along k (element r, j at r * ld + j), 0 where along the rows
    """
    j = 0
    if rows == MR:
        if unit_k:
            while j + W <= k:
                transpose_mr(dst + 4 * j * MR, src + 4 * j, ld)
                j += W
        else:
            while j < k:
                copy_mr(dst + 4 * j * MR, src + 4 * j * ld)
                j += 1
    pack_rest(dst, MR, src, ld if unit_k else 1, 1 if unit_k else ld, rows, j, k)


@serial
def pack_group_a(dst, a, ld, unit_k, first, piece, M, K):
    """Pack up to A_GROUP panels of A from row `first` on, KC columns from `piece` on.

    One A_PANEL lies behind the other.
    """
    src = a + 4 * (first * ld + piece if unit_k else first + piece * ld)
    rows, k = min(A_GROUP * MR, M - first), min(KC, K - piece)
    full = rows // MR
    if unit_k:
        for t in range(full):
            pack_panel_a(dst + 4 * t * A_PANEL, src + 4 * t * MR * ld, ld, unit_k, MR, k)
    else:
        for j in range(k):  # a row of all panels at once: whole cache lines
            for t in range(full):
                copy_mr(dst + 4 * (t * A_PANEL + j * MR), src + 4 * (t * MR + j * ld))
    if full * MR < rows:
        last = src + 4 * full * MR * (ld if unit_k else 1)
        pack_panel_a(dst + 4 * full * A_PANEL, last, ld, unit_k, rows - full * MR, k)


@serial
def pack_panel_b(dst, src, ld, unit_k, cols, k):
    """Pack `cols` <= NR columns of B over k rows: dst[j * NR + c] = B[j, c], missing ones zero.

    unit_k  1 where memory runs along k (element j, c at c * ld + j), 0 where along the columns
    """
    j = 0
    if cols == NR:
        if unit_k:
            while j + W <= k:
                transpose_nr(dst + 4 * j * NR, src + 4 * j, ld)
                j += W
        else:
            while j < k:
                copy_nr(dst + 4 * j * NR, src + 4 * j * ld)
                j += 1
    pack_rest(dst, NR, src, ld if unit_k else 1, 1 if unit_k else ld, cols, j, k)


@serial
def edge_tile(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols, edge):
    """Do what `tile` does for a tile that sticks out of c, by way of `edge`, MR x NR floats."""
    tile(edge, NR, a, a_row, a_k, b, k, WRITE, bias)
    made = floats(edge, MR * NR)
    for i in range(rows):
        row = floats(c + 4 * i * ldc, cols)
        if mode == ADD:
            for j in range(cols):
                row[j] += made[i * NR + j]
        elif mode == BIAS:
            add = floats(bias, cols)
            for j in range(cols):
                row[j] = add[j] + made[i * NR + j]
        else:
            for j in range(cols):
                row[j] = made[i * NR + j]


@serial
def finish(epilogue, c, ldc, aux, ldaux, rows, cols):
    """Do the epilogue on a block of c."""
    for i in range(rows):
        row, other = floats(c + 4 * i * ldc, cols), floats(aux + 4 * i * ldaux, cols)
        if epilogue == GELU:
            gelu_row(other, row)
        else:
            scale_by_gelu_derivative(row, other)


@parallel
def gemm_kernel(
    c, ldc, a, lda, a_unit_k, pack_a, b, ldb, b_unit_k, M, N, K, mode, bias, epilogue, aux, ldaux,
    a_packed, own,
):  # fmt: skip
    """Compute c = or += a b, then the epilogue; see `gemm`."""
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // KC)
    b_step, b_piece = (ldb, KC) if b_unit_k else (1, KC * ldb)

    # pass 1: pack A, panel after panel within each piece of k
    if pack_a:
        groups = -(-m_panels // A_GROUP)
        for task in prange(groups * k_blocks):
            q, t = task // groups, task % groups * A_GROUP
            dst = a_packed + 4 * (q * m_panels + t) * A_PANEL
            pack_group_a(dst, a, lda, a_unit_k, t * MR, q * KC, M, K)

    # pass 2: blocks of c
    m_blocks, n_blocks = -(-m_panels // MB_PANELS), -(-n_panels // NB_PANELS)
    for task in prange(m_blocks * n_blocks):
        mb, nb = task // n_blocks, task % n_blocks
        t0, t1 = mb * m_panels // m_blocks, (mb + 1) * m_panels // m_blocks
        p0, p1 = nb * NB_PANELS, min(n_panels, nb * NB_PANELS + NB_PANELS)
        panel_b = own + 4 * get_thread_id() * OWN
        panel_a, edge = panel_b + 4 * B_PANEL, panel_b + 4 * (B_PANEL + A_PANEL)
        for q in range(k_blocks):
            k, now = min(KC, K - q * KC), mode if q == 0 else ADD
            if not pack_a and t1 * MR > M:  # a panel that sticks out of A can't be read as it lies
                m = (t1 - 1) * MR
                pack_panel_a(panel_a, a + 4 * (m * lda + q * KC), lda, 1, M - m, k)
            for p in range(p0, p1):
                cols = min(NR, N - p * NR)
                at_b = b + 4 * (p * NR * b_step + q * b_piece)
                pack_panel_b(panel_b, at_b, ldb, b_unit_k, cols, k)
                for t in range(t0, t1):
                    rows = min(MR, M - t * MR)
                    pa, a_row, a_k = panel_a, 1, MR
                    if pack_a:
                        pa = a_packed + 4 * (q * m_panels + t) * A_PANEL
                    elif rows == MR:
                        pa, a_row, a_k = a + 4 * (t * MR * lda + q * KC), lda, 1
                    at, add = c + 4 * (t * MR * ldc + p * NR), bias + 4 * p * NR
                    if rows == MR and cols == NR:
                        tile(at, ldc, pa, a_row, a_k, panel_b, k, now, add)
                    else:
                        edge_tile(at, ldc, pa, a_row, a_k, panel_b, k, now, add, rows, cols, edge)
        if epilogue != NOTHING:
            rows, cols = min(M, t1 * MR) - t0 * MR, min(N, p1 * NR) - p0 * NR
            at = c + 4 * (t0 * MR * ldc + p0 * NR)
            finish(epilogue, at, ldc, aux + 4 * (t0 * MR * ldaux + p0 * NR), ldaux, rows, cols)


def gemm(c, a, b, *, a_unit_k, b_unit_k, K, mode=WRITE, bias=None, epilogue=NOTHING, aux=None):
    """Compute c = a b, c += a b or c = a b + bias, then an epilogue on each finished block.

    c         f32 (M, N)  written, or added to
    a         f32 (M, K), or (K, M) without a_unit_k
    b         f32 (N, K), or (K, N) without b_unit_k
    mode      WRITE, ADD or BIAS
    bias      f32 (N), read by BIAS
    epilogue  GELU: aux = gelu(c); GELU_DERIVATIVE: c *= gelu'(aux)
    aux       f32 (M, N)

    Matrices may be slices of wider ones: their last axis is contiguous.
    """
    M, N = c.shape
    # rows a multiple of 4 KiB apart would meet in the same few lines of the first cache
    pack_a = not a_unit_k or row(a) % 1024 == 0
    panels = -(-M // MR) * -(-K // KC) if pack_a else 0
    gemm_kernel(
        data(c), row(c), data(a), row(a), int(a_unit_k), int(pack_a), data(b), row(b),
        int(b_unit_k), M, N, K, mode, 0 if bias is None else data(bias),
        epilogue, 0 if aux is None else data(aux), 0 if aux is None else row(aux),
        data(scratch("a_packed", panels * A_PANEL)),
        data(scratch("gemm", max_threads() * OWN)),
    )  # fmt: skip
