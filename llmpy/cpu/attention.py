"""Attention on the CPU. The maths and the contract are in ops/attention.py.

One task is a head of a sequence. Its rows are taken in blocks of Q_ROWS: the scores of a block
against all keys up to its last row lie in scratch memory, (Q_ROWS, T), and never all (T, T). All
products run on the register tile of the matmul; a panel of rows meets only the keys that one of
its rows may see.

    forward    S = Q K^T;  P = exp(scale S - lse);  out = P V
    backward   dP = dout V^T;  dS = scale P (dP - D) with D = sum of dout * out over a row
               dQ = dS K;  dK = dS^T Q;  dV = P^T dout
"""

import numpy as np
from numba import get_thread_id, prange

from ..errors import UsageError
from .gemm import B_PANEL, KC
from .jit import parallel, serial
from .memory import data, max_threads, scratch
from .packing import pack_panel_a, pack_panel_b
from .simd import MR, NR, W, floats, row_max
from .tile import ADD, WRITE, edge_tile, tile
from .vector_math import dot, exp_row

Q_PANELS = 8
Q_ROWS = Q_PANELS * MR  # rows of a block

f32 = np.float32
WHOLE = 32  # floats that LLVM takes at a time in exp_row; the rest of a row it takes one by one


@serial
def pack_keys(dst, src, ld, T, HS):
    """Pack T rows of HS floats as the B of a product over HS: panels of NR keys."""
    for p in range(-(-T // NR)):
        pack_panel_b(
            dst + 4 * p * NR * HS, src + 4 * p * NR * ld, ld, 1, min(NR, T - p * NR), HS, 0
        )


@serial
def pack_heads(dst, src, ld, rows, HS):
    """Pack `rows` rows of HS floats as the B of a product over the rows, in pieces of KC."""
    panels = -(-HS // NR)
    for q in range(-(-rows // KC)):
        for p in range(panels):
            at = src + 4 * (q * KC * ld + p * NR)
            k = min(KC, rows - q * KC)
            pack_panel_b(
                dst + 4 * (q * panels + p) * B_PANEL, at, ld, 0, min(NR, HS - p * NR), k, 0
            )


@serial
def product_with_keys(c, ldc, a, src, ld, packed_keys, first, rows, T, HS):
    """Write c = src keys^T for `rows` rows of src, from row `first` on, and the keys they see."""
    for t in range(-(-rows // MR)):
        pa, there = src + 4 * t * MR * ld, min(MR, rows - t * MR)
        last = first + t * MR + MR  # keys beyond are masked for all rows of the panel
        p = 0
        while p * NR < last and p * NR < T:
            at = c + 4 * (t * MR * ldc + p * NR)
            keys = packed_keys + 4 * p * NR * HS
            if there == MR:
                tile(0, at, ldc, pa, ld, 1, keys, HS, WRITE, 0)
            else:
                edge_tile(0, at, ldc, pa, ld, 1, keys, HS, WRITE, 0, there, NR)
            p += 1


@serial
def product_with_heads(c, ldc, weights, ldw, packed_heads, first, rows, HS):
    """Write c = weights heads for `rows` rows of weights, over the keys that they see.

    Weights and c are scratch of Q_ROWS rows, so that the last panel may stick out.
    """
    panels = -(-HS // NR)
    for t in range(-(-rows // MR)):
        last = first + min(rows, t * MR + MR)
        for q in range(-(-last // KC)):
            k = min(KC, last - q * KC)
            pa = weights + 4 * (t * MR * ldw + q * KC)
            for p in range(panels):
                b = packed_heads + 4 * (q * panels + p) * B_PANEL
                at = c + 4 * (t * MR * ldc + p * NR)
                tile(0, at, ldc, pa, ldw, 1, b, k, ADD if q else WRITE, 0)


@serial
def add_transposed_product(c, ldc, a, weights, ldw, packed_rows, first, rows, HS):
    """Add weights^T rows to c, for the keys seen by `rows` <= KC rows of weights from `first` on.

    A panel of keys meets only the rows from its first key on.
    """
    keys = first + rows
    for t in range(-(-keys // MR)):
        skipped = max(0, t * MR - first)
        at_weights = weights + 4 * (skipped * ldw + t * MR)
        pack_panel_a(a, at_weights, ldw, 0, min(MR, keys - t * MR), rows - skipped, 0)
        for p in range(-(-HS // NR)):
            at = c + 4 * (t * MR * ldc + p * NR)
            b = packed_rows + 4 * (p * B_PANEL + skipped * NR)
            tile(0, at, ldc, a, 1, MR, b, rows - skipped, ADD, 0)


@serial
def whole(count):
    """Round up to a multiple of WHOLE."""
    return -(-count // WHOLE) * WHOLE


@serial
def scratch_sizes(T, HS):
    """Give the floats of a row of scores, packed keys, packed heads, a panel, a row of heads."""
    keys, heads = -(-T // NR) * NR, -(-HS // NR) * NR
    return whole(keys), keys * HS, -(-T // KC) * KC * heads, MR * max(KC, HS) + W, heads


# Numba 0.68 drops an assignment to a slice of an array made from an address inside prange; so what
# works on rows is in functions of its own


@serial
def clear(at, count):
    """Write zeros."""
    floats(at, count)[:] = f32(0)


@serial
def copy_scaled(to, at, factor):
    """Write a row as `factor` times the floats at an address."""
    made = floats(at, to.shape[0])
    for i in range(to.shape[0]):
        to[i] = made[i] * factor


@serial
def softmax_rows(S, stride, first, rows, lse, sums, scale):
    """Turn rows of scores into exp(scale S - largest), with zeros where only later rows may see."""
    for r in range(rows):
        t = first + r
        row = floats(S + 4 * r * stride, min(stride, whole(t + MR)))
        largest = scale * row_max(row[: t + 1])
        row[t + 1 :] = f32(-np.inf)
        sums[r] = exp_row(row, scale, largest)
        lse[t] = largest + np.log(sums[r])


@parallel
def attention_forward_kernel(
    out, lse, qkv, NH, scores, packed_keys, packed_heads, panels, rows_out
):
    """Attend, one head of one sequence at a time; the last arguments are scratch by thread."""
    B, T, C = out.shape
    HS, ld = C // NH, 3 * C
    stride, keys_size, heads_size, panel_size, heads = scratch_sizes(T, HS)
    scale = f32(1.0 / np.sqrt(HS))
    for task in prange(B * NH):
        b, h, tid = task // NH, task % NH, get_thread_id()
        q = qkv + 4 * (b * T * ld + h * HS)
        S, KT, V = (
            scores + 4 * tid * Q_ROWS * stride,
            packed_keys + 4 * tid * keys_size,
            packed_heads + 4 * tid * heads_size,
        )
        panel, O = panels + 4 * tid * panel_size, rows_out + 4 * tid * Q_ROWS * heads
        pack_keys(KT, q + 4 * C, ld, T, HS)
        pack_heads(V, q + 8 * C, ld, T, HS)
        sums = np.empty(Q_ROWS, np.float32)
        for first in range(0, T, Q_ROWS):
            rows = min(Q_ROWS, T - first)
            product_with_keys(S, stride, panel, q + 4 * first * ld, ld, KT, first, rows, T, HS)
            softmax_rows(S, stride, first, rows, lse[b, h], sums, scale)
            product_with_heads(O, heads, S, stride, V, first, rows, HS)
            for r in range(rows):
                to = out[b, first + r, h * HS : h * HS + HS]
                copy_scaled(to, O + 4 * r * heads, f32(1) / sums[r])


def attention_forward(out, lse, qkv, *, NH, bf16=False):
    if bf16:
        raise UsageError(
            "attention_forward: bf16 is True, expected False: not built yet on the CPU"
        )
    T, C = out.shape[1:]
    stride, keys, packed_heads, panel, heads = scratch_sizes(T, C // NH)
    threads = max_threads()
    attention_forward_kernel(
        out, lse, data(qkv), NH,
        data(scratch("scores", threads * Q_ROWS * stride)),
        data(scratch("keys", threads * keys)),
        data(scratch("heads", threads * packed_heads)),
        data(scratch("panel", threads * panel)),
        data(scratch("rows", threads * Q_ROWS * heads)),
    )  # fmt: skip


@serial
def score_gradients(P, dP, stride, first, rows, lse, D, scale):
    """Turn rows of scores into P and of dP into dS, with zeros where only later rows may see."""
    for r in range(rows):
        t = first + r
        end = min(stride, whole(first + rows))
        p, dp = floats(P + 4 * r * stride, end), floats(dP + 4 * r * stride, end)
        p[t + 1 :] = f32(-np.inf)
        exp_row(p, scale, lse[t])
        d = D[r]
        for i in range(t + 1):
            dp[i] = scale * p[i] * (dp[i] - d)
        p[t + 1 :] = f32(0)  # also where lse is NaN
        dp[t + 1 :] = f32(0)


@parallel
def attention_backward_kernel(
    dqkv, dout, out, lse, qkv, NH, scores, packed_keys, packed_heads, panels, rows_out
):
    """Give the gradient of qkv, one head of one sequence at a time."""
    B, T, C = out.shape
    HS, ld = C // NH, 3 * C
    stride, keys_size, heads_size, panel_size, heads = scratch_sizes(T, HS)
    m_rows = -(-T // MR) * MR
    block_size = -(-HS // NR) * B_PANEL  # Q or dout of a block, packed: Q_ROWS <= KC rows
    scale = f32(1.0 / np.sqrt(HS))
    for task in prange(B * NH):
        b, h, tid = task // NH, task % NH, get_thread_id()
        q, do = qkv + 4 * (b * T * ld + h * HS), dout + 4 * (b * T * C + h * HS)
        S = scores + 8 * tid * Q_ROWS * stride
        dS = S + 4 * Q_ROWS * stride
        KT = packed_keys + 8 * tid * keys_size
        VT = KT + 4 * keys_size
        K = packed_heads + 4 * tid * (heads_size + 2 * block_size)
        Q = K + 4 * heads_size
        dO = Q + 4 * block_size
        panel = panels + 4 * tid * panel_size
        dQ = rows_out + 4 * tid * (Q_ROWS + 2 * m_rows) * heads
        dK = dQ + 4 * Q_ROWS * heads
        dV = dK + 4 * m_rows * heads
        pack_keys(KT, q + 4 * C, ld, T, HS)
        pack_keys(VT, q + 8 * C, ld, T, HS)
        pack_heads(K, q + 4 * C, ld, T, HS)
        clear(dK, 2 * m_rows * heads)
        D = np.empty(Q_ROWS, np.float32)
        for first in range(0, T, Q_ROWS):
            rows = min(Q_ROWS, T - first)
            for r in range(rows):
                y = out[b, first + r, h * HS : h * HS + HS]
                D[r] = dot(floats(do + 4 * (first + r) * C, HS), y)
            product_with_keys(S, stride, panel, q + 4 * first * ld, ld, KT, first, rows, T, HS)
            product_with_keys(dS, stride, panel, do + 4 * first * C, C, VT, first, rows, T, HS)
            score_gradients(S, dS, stride, first, rows, lse[b, h], D, scale)
            product_with_heads(dQ, heads, dS, stride, K, first, rows, HS)
            for r in range(rows):
                copy_scaled(dqkv[b, first + r, h * HS : h * HS + HS], dQ + 4 * r * heads, f32(1))
            pack_heads(Q, q + 4 * first * ld, ld, rows, HS)
            pack_heads(dO, do + 4 * first * C, C, rows, HS)
            add_transposed_product(dK, heads, panel, dS, stride, Q, first, rows, HS)
            add_transposed_product(dV, heads, panel, S, stride, dO, first, rows, HS)
        for t in range(T):
            at = C + h * HS
            copy_scaled(dqkv[b, t, at : at + HS], dK + 4 * t * heads, f32(1))
            copy_scaled(dqkv[b, t, C + at : C + at + HS], dV + 4 * t * heads, f32(1))


def attention_backward(dqkv, dout, out, lse, qkv, *, NH, bf16=False):
    if bf16:
        raise UsageError(
            "attention_backward: bf16 is True, expected False: not built yet on the CPU"
        )
    T, C = out.shape[1:]
    HS = C // NH
    stride, keys, packed_heads, panel, heads = scratch_sizes(T, HS)
    threads = max_threads()
    blocks = 2 * (heads // NR) * B_PANEL
    attention_backward_kernel(
        dqkv, data(dout), out, lse, data(qkv), NH,
        data(scratch("scores", threads * 2 * Q_ROWS * stride)),
        data(scratch("keys", threads * 2 * keys)),
        data(scratch("heads", threads * (packed_heads + blocks))),
        data(scratch("panel", threads * panel)),
        data(scratch("rows", threads * (Q_ROWS + 2 * (-(-T // MR) * MR)) * heads)),
    )  # fmt: skip
