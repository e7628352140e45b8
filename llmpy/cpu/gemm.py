"""Matrix multiplication: three loops, made fast in four steps.

    c[m, n] = sum over k of a[m, k] b[k, n]

1. Tile. `simd.tile` keeps MR x NR sums in registers while k runs: 2 MR NR operations for MR + NR
   floats read.
2. Packing. The tile wants its operands as panels, A[k][MR] and B[k][NR], read from front to back.
   `pack_a` and `pack_b` copy them so, transposing where memory runs along k. So one kernel serves
   the three products of a layer: NT (forward), NN (dinp), TN (dweight).
3. Blocking. k is cut into pieces of KC, so that a panel of B stays in the first cache (L1) and a
   block of A in the second, while c is visited once a piece.
4. Splitting. A is packed once, by all threads; then blocks of c, about MB x NB, are shared out.
   Each packs its own piece of B.

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
NB_PANELS = max(1, 96 // NR)  # panels of B in a block
A_GROUP = 8  # panels of A that a task packs together, so that it reads whole cache lines

A_PANEL = KC * MR + W  # floats of a packed panel; W spare ones, see simd._define_transpose
B_PANEL = KC * NR

NOTHING, GELU, GELU_DERIVATIVE = 0, 1, 2  # epilogues


@serial
def pack_panel_a(dst, src, ld, unit_k, rows, k):
    """Pack `rows` <= MR rows of A over k columns: dst[j * MR + r] = A[r, j], missing rows zero.

    unit_k  1 where memory runs along k (element r, j at r * ld + j), 0 where along the rows
    """
    j = 0
    if unit_k and rows == MR:
        while j + W <= k:
            transpose_mr(dst + 4 * j * MR, src + 4 * j, ld)
            j += W
    if not unit_k and rows == MR:
        while j < k:
            copy_mr(dst + 4 * j * MR, src + 4 * j * ld)
            j += 1
    if j < k:
        step_r, step_j = (ld, 1) if unit_k else (1, ld)
        out, inp = floats(dst, k * MR), floats(src, (rows - 1) * step_r + (k - 1) * step_j + 1)
        while j < k:
            for r in range(rows):
                out[j * MR + r] = inp[r * step_r + j * step_j]
            for r in range(rows, MR):
                out[j * MR + r] = np.float32(0)
            j += 1


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
    if j < k:
        step_c, step_j = (ld, 1) if unit_k else (1, ld)
        out = floats(dst, k * NR)
        inp = floats(src, (cols - 1) * step_c + (k - 1) * step_j + 1)
        while j < k:
            for c in range(cols):
                out[j * NR + c] = inp[c * step_c + j * step_j]
            for c in range(cols, NR):
                out[j * NR + c] = np.float32(0)
            j += 1


@serial
def edge_tile(c, ldc, a, b, k, mode, bias, rows, cols, edge):
    """Do what `tile` does for a tile that sticks out of c, by way of `edge`, MR x NR floats."""
    tile(edge, NR, a, b, k, WRITE, bias)
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


@parallel
def gemm_kernel(
    c, ldc, a, lda, a_unit_k, b, ldb, b_unit_k, M, N, K, mode, bias, epilogue, aux, ldaux,
    a_packed, b_packed, edge,
):  # fmt: skip
    """Compute c = or += a b, then the epilogue; see `gemm`."""
    m_panels, n_panels, k_blocks = -(-M // MR), -(-N // NR), -(-K // KC)

    # pass 1: pack A, panel after panel within each piece of k
    groups = -(-m_panels // A_GROUP)
    for task in prange(groups * k_blocks):
        q, group = task // groups, task % groups
        k = min(KC, K - q * KC)
        for t in range(group * A_GROUP, min(m_panels, group * A_GROUP + A_GROUP)):
            rows = min(MR, M - t * MR)
            step = lda if a_unit_k else 1
            src = a + 4 * (t * MR * step + q * KC * (1 if a_unit_k else lda))
            dst = a_packed + 4 * (q * m_panels + t) * A_PANEL
            pack_panel_a(dst, src, lda, a_unit_k, rows, k)

    # pass 2: blocks of c
    m_blocks, n_blocks = -(-m_panels // MB_PANELS), -(-n_panels // NB_PANELS)
    for task in prange(m_blocks * n_blocks):
        mb, nb = task // n_blocks, task % n_blocks
        t0, t1 = mb * m_panels // m_blocks, (mb + 1) * m_panels // m_blocks
        p0, p1 = nb * n_panels // n_blocks, (nb + 1) * n_panels // n_blocks
        my_b = b_packed + 4 * get_thread_id() * NB_PANELS * B_PANEL
        my_edge = edge + 4 * get_thread_id() * MR * NR
        for q in range(k_blocks):
            k = min(KC, K - q * KC)
            now = mode if q == 0 else ADD
            for p in range(p0, p1):
                step = ldb if b_unit_k else 1
                src = b + 4 * (p * NR * step + q * KC * (1 if b_unit_k else ldb))
                cols = min(NR, N - p * NR)
                pb = my_b + 4 * (p - p0) * B_PANEL
                pack_panel_b(pb, src, ldb, b_unit_k, cols, k)
                for t in range(t0, t1):
                    rows = min(MR, M - t * MR)
                    pa = a_packed + 4 * (q * m_panels + t) * A_PANEL
                    at = c + 4 * (t * MR * ldc + p * NR)
                    if rows == MR and cols == NR:
                        tile(at, ldc, pa, pb, k, now, bias + 4 * p * NR)
                    else:
                        edge_tile(at, ldc, pa, pb, k, now, bias + 4 * p * NR, rows, cols, my_edge)
        if epilogue != NOTHING:
            first, cols = p0 * NR, min(N, p1 * NR) - p0 * NR
            for m in range(t0 * MR, min(M, t1 * MR)):
                row = floats(c + 4 * (m * ldc + first), cols)
                other = floats(aux + 4 * (m * ldaux + first), cols)
                if epilogue == GELU:
                    gelu_row(other, row)
                else:
                    scale_by_gelu_derivative(row, other)


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
    m_panels, k_blocks = -(-M // MR), -(-K // KC)
    threads = max_threads()
    gemm_kernel(
        data(c), row(c), data(a), row(a), int(a_unit_k), data(b), row(b), int(b_unit_k),
        M, N, K, mode, 0 if bias is None else data(bias),
        epilogue, 0 if aux is None else data(aux), 0 if aux is None else row(aux),
        data(scratch("a_packed", m_panels * k_blocks * A_PANEL)),
        data(scratch("b_packed", threads * NB_PANELS * B_PANEL)),
        data(scratch("edge", threads * MR * NR)),
    )  # fmt: skip
