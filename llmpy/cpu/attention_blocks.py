"""What attention is made of: products, weights and their derivatives on blocks of one head.

A block has rows, which are queries, and keys. It is causal: row r sees the first `before` + r + 1
keys, all of them where `before` is at least their number. Its scores lie by rows forward, and by
keys backward, in strips of MR keys. Vectors that are masked for all of a tile are not computed; the
weights of other masked pairs are set to 0. A product with 0 adds nothing to a sum, unless the other
factor is infinity or NaN: then `plain_product` makes it, by loops over the pairs that are there,
with the same bits for all that those don't reach.

Addresses are integers (bytes), strides and sizes count words (tile.py). `bf16` is 1 for products of
bfloat16, 0 for float32.
"""

import numpy as np

from .jit import inlined, part, plain
from .packing import STEP, copy_rows, pack_panel, word, words
from .simd import MR, NR, PAIRS, W, bits_of_float, floats
from .tile import ADD, WRITE, add_pair, narrow_tile, tile
from .vector_math import FUSED, dot
from .vector_rows import ROWS, gradient_rows, softmax_rows

PIECE = 240  # keys of a product between two visits to a sum: a panel of B in the first cache (L1)

f32 = np.float32
INFINITY_BITS = np.int32(0x7F800000)


@plain
def up(count, unit):
    """Round up to a multiple."""
    return -(-count // unit) * unit


# ----------------------------------------------------------------------------------------------
# rows


@inlined
def take_rows(dst, src, ld, rows, HS, bf16):
    """Copy rows of a head as words, one behind the other, and zeros up to a whole panel."""
    n = words(HS, bf16)
    copy_rows(dst, n, src, ld, rows, HS, bf16)
    floats(dst + 4 * rows * n, (up(rows, MR) - rows) * n)[:] = f32(0)


@part
def pack_rows(dst, src, ld, rows, HS, over_rows, bf16):
    """Pack rows of a head as the B of products over HS, or, with over_rows, over the rows.

    Over HS, a panel is NR rows and has words(HS) * NR words. Over the rows, it is NR channels and
    has words(rows) * NR.
    """
    columns, k = (HS, rows) if over_rows else (rows, HS)
    for p in range(-(-columns // NR)):
        at = src + 4 * p * NR * (1 if over_rows else ld)
        to, cols = dst + 4 * p * NR * words(k, bf16), min(NR, columns - p * NR)
        pack_panel(to, NR, at, ld, 1 - over_rows, cols, k, bf16)


@part
def write_rows(dst, ldd, src, ld, rows, HS, factor, mode):
    """Write rows as `factor` times others, or add that to them."""
    for r in range(rows):
        to, made = floats(dst + 4 * r * ldd, HS), floats(src + 4 * r * ld, HS)
        for i in range(HS):
            to[i] = to[i] + made[i] * factor if mode == ADD else made[i] * factor


@inlined
def dots(D, x, ldx, y, ldy, rows, HS):
    """Give the scalar product of each row of x with that of y."""
    made = floats(D, rows)
    for r in range(rows):
        made[r] = dot(floats(x + 4 * r * ldx, HS), floats(y + 4 * r * ldy, HS))


@part
def all_finite(at, count):
    """Tell whether all floats at an address are finite."""
    most, row = np.int32(0), floats(at, count)
    for i in range(count):
        most = max(most, bits_of_float(row[i]) & np.int32(0x7FFFFFFF))
    return most < INFINITY_BITS


# ----------------------------------------------------------------------------------------------
# products


@part
def scores(S, stride, rows_a, keys_b, rows, keys, before, HS, bf16):
    """Write S = rows keys^T, of rows from `take_rows` and keys packed over HS."""
    k = words(HS, bf16)
    for p in range(-(-keys // NR)):
        for t in range(max(0, (p * NR - before) // MR), -(-rows // MR)):  # not those that see none
            a, b = rows_a + 4 * t * MR * k, keys_b + 4 * p * NR * k
            to, seen = S + 4 * (t * MR * stride + p * NR), before + t * MR + MR - p * NR
            score_tile(to, stride, a, b, k, up(seen, W), bf16)


@inlined
def score_tile(S, stride, a, b, k, cols, bf16):
    """Write a tile of scores: its first `cols` columns, whole vectors, or NR, whichever is less."""
    if cols < NR:
        narrow_tile(bf16, S, stride, a, k, 1, b, k, WRITE, 0, cols)
    else:
        tile(bf16, S, stride, a, k, 1, b, k, WRITE, 0)


@plain
def masked_rows(key, before, unit):
    """Count the rows that see none of the keys from `key` on, down to a multiple of `unit`."""
    return max(0, (key - before) // unit * unit)


@part
def strip_scores(S, stride, keys_a, rows_b, rows, key, before, HS, bf16):
    """Write S = keys rows^T of the MR keys from `key` on, from the first vector that sees one on.

    keys_a  those keys, from `take_rows`
    rows_b  all rows, packed over HS
    """
    k, row = words(HS, bf16), masked_rows(key, before, W)
    while row < rows:
        skipped = row % NR
        to, b = S + 4 * row, rows_b + 4 * ((row - skipped) * k + skipped)
        score_tile(to, stride, keys_a, b, k, NR - skipped, bf16)
        row += NR - skipped


@part
def product(c, ldc, weights, a_row, a_k, b, b_panel, rows, keys, before, HS, mode, bf16):
    """Write c = weights b, or add it: a row of c is a weighted sum of the rows of b that it sees.

    weights     words; a_row, a_k of them to the next row, and to the next word of keys
    b, b_panel  packed over its rows, and the words from one panel to the next
    """
    for p in range(-(-HS // NR)):
        for q in range(0, keys, PIECE):
            first = words(q, bf16)
            a, at_b = weights + 4 * first * a_k, b + 4 * (p * b_panel + first * NR)
            for t in range(-(-rows // MR)):
                k = words(min(min(keys, before + t * MR + MR) - q, PIECE), bf16)
                if k > 0:
                    to, now = c + 4 * (t * MR * ldc + p * NR), ADD if q else mode
                    tile(bf16, to, ldc, a + 4 * t * MR * a_row, a_row, a_k, at_b, k, now, 0)


@part
def strip_product(c, ldc, weights, stride, b, rows, key, before, HS, mode, bf16):
    """Write c = weights b, or add it, for the MR keys from `key` on, over the rows that see them.

    weights  rows of words, `stride` from one to the next
    b        packed over its `rows` rows
    """
    skipped = masked_rows(key, before, 1)
    first, k = words(skipped, bf16), words(rows - skipped, bf16)
    for p in range(-(-HS // NR)):
        at_b = b + 4 * (p * words(rows, bf16) + first) * NR
        tile(bf16, c + 4 * p * NR, ldc, weights + 4 * first, stride, 1, at_b, k, mode, 0)


@part(fastmath=FUSED)
def plain_product(c, weights, step, src, ld, k, odd, HS, mode, bf16):
    """Do for one row of c what the products do, over the k pairs that are there.

    weights, step  k float32 numbers, and the floats from one to the next
    src, ld        k rows of HS floats
    odd            1 where the first of them is the second number of its word
    """
    sums, weight, number = floats(c, HS), floats(weights, k * step), floats(src, k * ld)
    for i in range(HS):
        total = f32(0)
        if PAIRS and bf16:
            for j in range(-odd, k, 2):
                x, y, x1, y1 = f32(0), f32(0), f32(0), f32(0)
                if j >= 0:
                    x, y = weight[j * step], number[j * ld + i]
                if j + 1 < k:
                    x1, y1 = weight[(j + 1) * step], number[(j + 1) * ld + i]
                total = add_pair(total, word(x, x1, bf16), word(y, y1, bf16))
        else:
            for j in range(k):
                total += word(weight[j * step], f32(0), bf16) * word(
                    number[j * ld + i], f32(0), bf16
                )
        sums[i] = sums[i] + total if mode == ADD else total


# ----------------------------------------------------------------------------------------------
# weights


@inlined
def softmax_block(S, stride, rows, before, factor, largest, sums, bf16):
    """Turn rows of scores s into words of 2^((s - largest) factor); give the largest and the sum
    of each.
    """
    unit = W * STEP if bf16 else W
    for r in range(0, rows, ROWS):
        seen, end = before + r + 1, up(before + r // MR * MR + MR, unit)
        softmax_rows(
            S + 4 * r * stride, stride, seen, end, factor, largest + 4 * r, sums + 4 * r, bf16
        )


@inlined
def gradient_strip(S, dP, stride, rows, key, before, scale, lse, D, pairs, bf16):
    """Turn scores s into words of P = e^(scale s - lse), and dP into those of dS = P (dP - D).

    S, dP   strips of the MR keys from `key` on
    lse, D  a float for each row
    pairs   where words are pairs, those of dS of two keys each, from key 0 on: see `gradient_rows`
    """
    unit = W * STEP if bf16 else W
    begin, end = masked_rows(key, before, unit), up(rows, unit)
    first, at = key - before, pairs + 4 * (key // 2) * stride
    gradient_rows(S, dP, stride, first, begin, end, rows, scale, lse, D, at, bf16)
