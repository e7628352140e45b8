"""Packing: the operands of a product in the order in which the register tile reads them.

    panel of A   a[k][MR]     MR rows, for each k
    panel of B   b[k][NR]     NR columns, for each k
    rows of A    a[MR][ld]    as they lie, where memory runs along k

On the way numbers become words (tile.py): float32 as they are, or rounded to bfloat16, to the
nearest, ties to even, with NaN and infinity kept; where the chip multiplies pairs of bfloat16 it
takes subnormal numbers for zero, and so does all that rounds them there. `words(k, bf16)` of them
hold k numbers. The last word of an odd number of pairs is filled up with a zero.

All of it is vectors: where memory runs along k, W x W words are transposed in registers.
"""

import numpy as np
from llvmlite import ir
from numba import types

from ..bfloat16 import rounded_to_bfloat16
from .jit import inlined, part, plain
from .simd import (
    MR,
    NR,
    PAIRS,
    BFloat,
    W,
    at,
    bits_of_float,
    declare,
    emit_prefetch,
    float_of_bits,
    floats,
    floats_at,
    i16,
    i32,
    i64,
    load,
    store,
    vector,
    with_twin,
    word_vector,
)

STEP = 2 if PAIRS else 1  # numbers in a word of bfloat16
LINE = 16  # floats of a cache line
AHEAD = 16  # rows of memory between what is packed and what is asked for

# ----------------------------------------------------------------------------------------------
# rounding


def round_bits_twin(bits):
    """Give the bits of float32 numbers rounded to bfloat16."""
    floats = np.asarray(bits, np.uint32).view(np.float32)
    return rounded_to_bfloat16(floats).view(np.uint32).reshape(floats.shape)


def _constant(value, like):
    kind = like.type
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def emit_round(builder, bits):
    """Emit the rounding of the bits of a float32, or of a vector of them."""
    shift, lowest = _constant(16, bits), _constant(1, bits)
    odd = builder.and_(builder.lshr(bits, shift), lowest)
    near = builder.add(bits, builder.add(odd, _constant(0x7FFF, bits)))
    magnitude = builder.and_(bits, _constant(0x7FFFFFFF, bits))
    nan = builder.icmp_signed(">", magnitude, _constant(0x7F800000, bits))
    quiet = builder.or_(bits, _constant(0x00400000, bits))
    return builder.and_(builder.select(nan, quiet, near), _constant(0xFFFF0000, bits))


def emit_rounded(builder, low, high):
    """Emit the 2 W bfloat16 that two vectors of W numbers are rounded to, one behind the other.

    The instruction takes subnormal numbers for zero, as vdpbf16ps does.
    """
    halves = ir.VectorType(BFloat(), 2 * W)
    convert = declare(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, [vector] * 2)
    return builder.call(convert, [builder.bitcast(x, vector) for x in (high, low)])


def round_one_twin(bits):
    return np.int32(
        round_bits_twin(np.int32(bits).view(np.uint32)).astype(np.uint32).view(np.int32)
    )


@with_twin(round_one_twin)
def round_one(typingctx, bits):
    """Round the bits of a float32 to those of a bfloat16."""
    return types.int32(types.int32), lambda _, builder, __, args: emit_round(builder, args[0])


@plain
def words(k, bf16):
    """Count the words that hold k numbers."""
    return -(-k // STEP) if bf16 else k


@part
def without_subnormal(x):
    """Give the bits of a float32, of zero for a subnormal number."""
    bits = bits_of_float(x)
    return bits if bits & np.int32(0x7F800000) else bits & np.int32(-(2**31))


@part
def word(first, second, bf16):
    """Give the word of one number, or of two, as a float32 of the same bits."""
    if not bf16:
        return first
    if not PAIRS:
        return float_of_bits(round_one(bits_of_float(first)))
    low, high = round_one(without_subnormal(first)), round_one(without_subnormal(second))
    # an arithmetic shift fills with the sign: keep the low half alone
    return float_of_bits((low >> 16) & np.int32(0xFFFF) | high)


# ----------------------------------------------------------------------------------------------
# vectors


def words_twin(numbers, bf16):
    """Give rows of numbers as words: along the last axis, two by two where words are pairs."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    if not bf16:
        return bits
    if not PAIRS:
        return round_bits_twin(bits)
    subnormal = bits & np.uint32(0x7F800000) == 0
    rounded = round_bits_twin(np.where(subnormal, bits & np.uint32(0x80000000), bits))
    return rounded[..., 0::2] >> np.uint32(16) | rounded[..., 1::2]


def emit_words_of_row(builder, numbers, bf16):
    """Emit the words of W numbers of a row, or of 2 W, as two vectors, where words are pairs."""
    if not bf16:
        return builder.bitcast(numbers[0], word_vector)
    if not PAIRS:
        return emit_round(builder, builder.bitcast(numbers[0], word_vector))
    return builder.bitcast(emit_rounded(builder, *numbers), word_vector)


def _emit_row(builder, pointer, bf16):
    """Emit the load of W words from a row."""
    numbers = range(0, W * STEP if bf16 else W, W)
    return emit_words_of_row(
        builder, [load(builder, at(builder, pointer, j)) for j in numbers], bf16
    )


def _emit_pairs(builder, first, second):
    """Emit the words of W numbers each of two rows: each number of the first, and its neighbour."""
    rounded = builder.bitcast(emit_rounded(builder, first, second), ir.VectorType(i16, 2 * W))
    mixed = [half + i for i in range(W) for half in (0, W)]
    mask = ir.Constant(ir.VectorType(i32, 2 * W), mixed)
    return builder.bitcast(builder.shuffle_vector(rounded, rounded, mask), word_vector)


def emit_words_of_column(builder, rows, bf16):
    """Emit the words of W neighbours each in a row of numbers, or in two where words are pairs."""
    if not bf16:
        return builder.bitcast(rows[0], word_vector)
    if not PAIRS:
        return emit_round(builder, builder.bitcast(rows[0], word_vector))
    return _emit_pairs(builder, *rows)


def _emit_swapped(builder, rows, d, low, high):
    """Replace each two rows at a distance of d by two shuffles of them, given by their masks."""
    masks = [ir.Constant(ir.VectorType(i32, W), mask) for mask in (low, high)]
    for i in range(W):
        if i & d == 0:
            x, y = rows[i], rows[i + d]
            rows[i] = builder.shuffle_vector(x, y, masks[0])
            rows[i + d] = builder.shuffle_vector(x, y, masks[1])


def _emit_transposed(builder, rows):
    """Emit the transpose of W vectors of W words: log2 W rounds of shuffles of two vectors each.

    The first two rounds transpose 4 x 4 words within 128 bits, by interleaving, which x86-64 and
    NEON do in one instruction; the others swap blocks of 4 words.
    """
    for d, words in ((1, (0, W, 1, W + 1)), (2, (0, 1, W, W + 1))):
        low = [first + j for first in range(0, W, 4) for j in words]
        _emit_swapped(builder, rows, d, low, [j + 2 for j in low])
    for i in range(0, W, 4):  # interleaving has left them in this order
        rows[i + 1], rows[i + 2] = rows[i + 2], rows[i + 1]
    d = 4
    while d < W:
        low = [j if j & d == 0 else W + j - d for j in range(W)]
        _emit_swapped(builder, rows, d, low, [j + d for j in low])
        d *= 2
    return rows


def _with_twin(twin, typing, name):
    """Give a twin and its intrinsic, of that name."""
    twin.__name__, typing.__name__ = f"{name}_twin", name
    return twin, with_twin(twin)(typing)


def _define_transpose(R, name, bf16):
    """Define the intrinsic that packs W words of each of R rows: dst[j * R + r] = word j of row r.

    Where R is no multiple of W, the last vector of each j reaches past its R words; the next j
    writes over that, so j goes up, and the destination needs W spare words at its end.
    """
    numbers = W * STEP if bf16 else W

    def twin(dst, src, ld):
        rows = np.array([floats_at(src + 4 * r * ld, numbers) for r in range(R)])
        floats_at(dst, W * R).view(np.uint32)[:] = words_twin(rows, bf16).T.ravel()

    def typing(typingctx, dst, src, ld):
        def codegen(context, builder, signature, args):
            dst, src, ld = args
            dst, src = (builder.inttoptr(x, i32.as_pointer()) for x in (dst, src))
            columns = []
            for first in range(0, R, W):
                offsets = [
                    builder.mul(ld, ir.Constant(i64, r)) for r in range(first, min(R, first + W))
                ]
                rows = [_emit_row(builder, at(builder, src, offset), bf16) for offset in offsets]
                rows += [ir.Constant(word_vector, [0] * W)] * (W - len(rows))
                columns.append(_emit_transposed(builder, rows))
            for j in range(W):
                for g, group in enumerate(columns):
                    store(builder, group[j], at(builder, dst, j * R + g * W))
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), codegen

    return _with_twin(twin, typing, name)


def _define_copy(R, name, bf16):
    """Define the intrinsic that packs one word of each of R neighbours: dst[r] from src[r].

    Where words are pairs, the second number of each is `ld` words on. A later row is asked for.
    """

    def twin(dst, src, ld):
        rows = [floats_at(src, R)] + ([floats_at(src + 4 * ld, R)] if bf16 and PAIRS else [])
        floats_at(dst, R).view(np.uint32)[:] = words_twin(np.array(rows).T, bf16).ravel()

    def pair(builder, dst, src, ld, count):
        kind, lanes = ir.VectorType(i32, count), ir.VectorType(i32, W)
        widen = ir.Constant(lanes, [min(i, count) for i in range(W)])  # the rest is nothing
        narrow = ir.Constant(kind, list(range(count)))
        nothing = ir.Constant(kind, ir.Undefined)
        rows = (load(builder, p, kind) for p in (src, at(builder, src, ld)))
        wide = [builder.shuffle_vector(x, nothing, widen) for x in rows]
        words = _emit_pairs(builder, *wide)
        store(builder, builder.shuffle_vector(words, words, narrow), dst)

    def typing(typingctx, dst, src, ld):
        def codegen(context, builder, signature, args):
            dst, src, ld = args
            dst, src = (builder.inttoptr(x, i32.as_pointer()) for x in (dst, src))
            for r in range(AHEAD, AHEAD + (STEP if bf16 else 1)):
                far = at(builder, src, builder.mul(ld, ir.Constant(i64, r)))
                for line in range(0, R, LINE):
                    emit_prefetch(builder, at(builder, far, line), write=0, level=2)
            if bf16 and PAIRS:
                for j in range(0, R, W):
                    pair(builder, at(builder, dst, j), at(builder, src, j), ld, min(W, R - j))
                return context.get_dummy_value()
            value = load(builder, src, ir.VectorType(i32, R))
            store(builder, emit_round(builder, value) if bf16 else value, dst)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), codegen

    return _with_twin(twin, typing, name)


def _define_row(name, bf16):
    """Define the intrinsic that writes W words of a row: it reads before it writes."""
    numbers = W * STEP if bf16 else W

    def twin(dst, src):
        floats_at(dst, W).view(np.uint32)[:] = words_twin(floats_at(src, numbers), bf16)

    def typing(typingctx, dst, src):
        def codegen(context, builder, signature, args):
            dst, src = (builder.inttoptr(x, i32.as_pointer()) for x in args)
            store(builder, _emit_row(builder, src, bf16), dst)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), codegen

    return _with_twin(twin, typing, name)


transpose_mr_twin, transpose_mr = _define_transpose(MR, "transpose_mr", False)
transpose_mr_bf16_twin, transpose_mr_bf16 = _define_transpose(MR, "transpose_mr_bf16", True)
transpose_nr_twin, transpose_nr = _define_transpose(NR, "transpose_nr", False)
transpose_nr_bf16_twin, transpose_nr_bf16 = _define_transpose(NR, "transpose_nr_bf16", True)
copy_mr_twin, copy_mr = _define_copy(MR, "copy_mr", False)
copy_mr_bf16_twin, copy_mr_bf16 = _define_copy(MR, "copy_mr_bf16", True)
copy_nr_twin, copy_nr = _define_copy(NR, "copy_nr", False)
copy_nr_bf16_twin, copy_nr_bf16 = _define_copy(NR, "copy_nr_bf16", True)
row_twin, row = _define_row("row", False)
row_bf16_twin, row_bf16 = _define_row("row_bf16", True)


# ----------------------------------------------------------------------------------------------
# panels and rows


@part
def pack_rest(dst, R, src, step_r, step_k, rows, j, k, bf16):
    """Pack the words from j on one by one: dst[j * R + r] is word j of the k numbers of row r.

    `rows` <= R are there; the missing ones are zero.
    """
    step = STEP if bf16 else 1
    if j * step >= k:
        return
    out = floats(dst, words(k, bf16) * R)
    inp = floats(src, (rows - 1) * step_r + (k - 1) * step_k + 1)
    while j * step < k:
        first, second = j * step, j * step + 1
        for r in range(rows):
            x = inp[r * step_r + first * step_k]
            y = inp[r * step_r + second * step_k] if second < k else np.float32(0)
            out[j * R + r] = word(x, y, bf16)
        for r in range(rows, R):
            out[j * R + r] = np.float32(0)
        j += 1


@inlined
def transpose(dst, R, src, ld, bf16):
    """Pack W words of each of R rows, MR or NR, where memory runs along them."""
    if bf16:
        if R == MR:
            transpose_mr_bf16(dst, src, ld)
        else:
            transpose_nr_bf16(dst, src, ld)
    elif R == MR:
        transpose_mr(dst, src, ld)
    else:
        transpose_nr(dst, src, ld)


@inlined
def copy(dst, R, src, ld, bf16):
    """Pack one word of each of R rows, MR or NR, where they are neighbours in memory."""
    if bf16:
        if R == MR:
            copy_mr_bf16(dst, src, ld)
        else:
            copy_nr_bf16(dst, src, ld)
    elif R == MR:
        copy_mr(dst, src, ld)
    else:
        copy_nr(dst, src, ld)


@part
def pack_panel(dst, R, src, ld, unit_k, rows, k, bf16):
    """Pack `rows` <= R rows of A, or columns of B, over k numbers each; missing ones are zero.

    R       MR for a panel of A, which needs W spare words at its end; NR for one of B
    unit_k  1 where memory runs along k (number j of row r at r * ld + j), 0 where along the rows
            (at j * ld + r)
    """
    step = STEP if bf16 else 1
    j = 0
    if rows == R and unit_k:
        while (j + W) * step <= k:
            transpose(dst + 4 * j * R, R, src + 4 * j * step, ld, bf16)
            j += W
    elif rows == R:
        while (j + 1) * step <= k:
            copy(dst + 4 * j * R, R, src + 4 * j * step * ld, ld, bf16)
            j += 1
    pack_rest(dst, R, src, ld if unit_k else 1, 1 if unit_k else ld, rows, j, k, bf16)


@part
def copy_rows(dst, ldd, src, ld, rows, k, bf16):
    """Write rows of k numbers as rows of words; they may lie on each other, with one first word."""
    step = STEP if bf16 else 1
    for r in range(rows):
        to, at_row = dst + 4 * r * ldd, src + 4 * r * ld
        j = 0
        if bf16:
            while (j + W) * step <= k:
                row_bf16(to + 4 * j, at_row + 4 * j * step)
                j += W
        else:
            while j + W <= k:
                row(to + 4 * j, at_row + 4 * j)
                j += W
        if j * step < k:
            pack_rest(to, 1, at_row, 1, 1, 1, j, k, bf16)
