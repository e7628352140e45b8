"""Panels of A where memory runs along the rows of A, and their sums: the gradient of a bias.

GROUP rows of A, which are neighbours in memory, are packed together: cache lines are read whole,
and once. Their sums over k grow in registers meanwhile, from the first k to the last.
"""

import numpy as np
from llvmlite import ir
from numba import types

from .jit import part
from .packing import AHEAD, LINE, STEP, emit_words_of_column, pack_panel, pack_rest, words_twin
from .simd import (
    MR,
    W,
    at,
    emit_prefetch,
    f32,
    floats,
    floats_at,
    i32,
    i64,
    load,
    store,
    vector,
    with_twin,
)

GROUP = 48  # rows of A: whole panels of 12, 8 or 6, and three cache lines where they begin at one


# ----------------------------------------------------------------------------------------------
# whole groups


def _pack_group_twin(dst, panel, src, ld, count, sums, bf16):
    step = STEP if bf16 else 1
    rows = np.array([floats_at(src + 4 * j * ld, GROUP) for j in range(count * step)])
    words = words_twin(rows.reshape(count, step, GROUP).transpose(0, 2, 1), bf16)[..., 0]
    for t in range(0, GROUP, MR):
        to = floats_at(dst + 4 * (t // MR) * panel, count * MR)
        to.view(np.uint32)[:] = words[:, t : t + MR].ravel()
    if sums:
        floats_at(sums, GROUP)[:] = np.cumsum(rows, axis=0, dtype=np.float32)[-1]


def pack_group_twin(dst, panel, src, ld, count, sums):
    _pack_group_twin(dst, panel, src, ld, count, sums, False)


def pack_group_bf16_twin(dst, panel, src, ld, count, sums):
    _pack_group_twin(dst, panel, src, ld, count, sums, True)


def _load_lanes(builder, pointer, lanes):
    """Emit the load of the first lanes of a vector; nothing behind them is read."""
    if lanes == W:
        return load(builder, pointer)
    narrow = load(builder, pointer, ir.VectorType(f32, lanes))
    mask = ir.Constant(ir.VectorType(i32, W), [min(i, lanes) for i in range(W)])
    return builder.shuffle_vector(narrow, ir.Constant(narrow.type, ir.Undefined), mask)


def _store_lanes(builder, value, pointer, lanes):
    mask = ir.Constant(ir.VectorType(i32, lanes), list(range(lanes)))
    value = value if lanes == W else builder.shuffle_vector(value, value, mask)
    store(builder, value, pointer)


def _emit_group(builder, args, bf16):
    """Emit the loop over `count` >= 1 words of k.

    A vector may reach past its panel's MR words: the next word writes over that, and after the last
    the panel has W spare words.
    """
    dst, panel, src, ld, count, sums = args
    dst, src = (builder.inttoptr(x, f32.as_pointer()) for x in (dst, src))
    step = STEP if bf16 else 1
    # the group cut into vectors: panel, first row in it, and lanes that may be read
    starts = [(t, j) for t in range(GROUP // MR) for j in range(0, MR, W)]
    cuts = [(t, j, min(W, GROUP - t * MR - j)) for t, j in starts]
    entry = builder.block
    loop, done = builder.append_basic_block("words"), builder.append_basic_block("packed")
    builder.branch(loop)

    builder.position_at_end(loop)
    n, to, row = (builder.phi(t) for t in (i64, f32.as_pointer(), f32.as_pointer()))
    totals, new = [builder.phi(vector) for _ in cuts], []
    rows, ahead = [row], ir.Constant(i64, AHEAD)
    for _ in range(step - 1):
        rows.append(at(builder, rows[-1], ld))
    for each in rows:
        far = at(builder, each, builder.mul(ld, ahead))
        for line in range(0, GROUP, LINE):
            emit_prefetch(builder, at(builder, far, line), write=0, level=2)
    for (t, j, lanes), total in zip(cuts, totals, strict=True):
        numbers = [_load_lanes(builder, at(builder, each, t * MR + j), lanes) for each in rows]
        for x in numbers:
            total = builder.fadd(total, x)
        new.append(total)
        words = emit_words_of_column(builder, numbers, bf16)
        place = at(builder, to, builder.mul(panel, ir.Constant(i64, t)))
        store(builder, words, at(builder, place, j))
    m = builder.add(n, ir.Constant(i64, 1))
    steps = [
        (n, ir.Constant(i64, 0), m),
        (to, dst, at(builder, to, MR)),
        (row, src, at(builder, rows[-1], ld)),
    ]
    zeros = ir.Constant(vector, [0.0] * W)
    steps += [(total, zeros, x) for total, x in zip(totals, new, strict=True)]
    builder.cbranch(builder.icmp_signed("<", m, count), loop, done)
    for phi, first, then in steps:
        phi.add_incoming(first, entry)
        phi.add_incoming(then, loop)

    builder.position_at_end(done)
    with builder.if_then(builder.icmp_signed("!=", sums, ir.Constant(i64, 0))):
        place = builder.inttoptr(sums, f32.as_pointer())
        for (t, j, lanes), x in zip(cuts, new, strict=True):
            _store_lanes(builder, x, at(builder, place, t * MR + j), lanes)


def _define(twin, bf16):
    def typing(typingctx, dst, panel, src, ld, count, sums):
        def codegen(context, builder, signature, args):
            _emit_group(builder, args, bf16)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), codegen

    typing.__name__ = twin.__name__.removesuffix("_twin")
    return with_twin(twin)(typing)


pack_group = _define(pack_group_twin, False)
pack_group_bf16 = _define(pack_group_bf16_twin, True)


# ----------------------------------------------------------------------------------------------
# any number of rows


@part
def pack_columns(dst, panel, src, ld, rows, k, bf16, sums):
    """Pack `rows` rows of A over k numbers each, number j of row r at j * ld + r.

    panel  words from one packed panel to the next: MR for each word of k, and W spare ones
    sums   address of the floats that get the sum of each row, from the first number to the last;
           or 0
    """
    step = STEP if bf16 else 1
    count, first = k // step, 0
    while count and first + GROUP <= rows:
        to, at_group, at_sums = dst + 4 * (first // MR) * panel, src + 4 * first, sums
        if sums:
            at_sums += 4 * first
        if bf16:
            pack_group_bf16(to, panel, at_group, ld, count, at_sums)
        else:
            pack_group(to, panel, at_group, ld, count, at_sums)
        if count * step < k:
            for t in range(GROUP // MR):
                at_panel = at_group + 4 * t * MR
                pack_rest(to + 4 * t * panel, MR, at_panel, 1, ld, MR, count, k, bf16)
            if sums:
                add_rows(at_sums, at_group, ld, GROUP, count * step, k)
        first += GROUP
    for t in range(first // MR, -(-rows // MR)):
        there = min(MR, rows - t * MR)
        pack_panel(dst + 4 * t * panel, MR, src + 4 * t * MR, ld, 0, there, k, bf16)
    if sums and first < rows:
        floats(sums + 4 * first, rows - first)[:] = np.float32(0)
        add_rows(sums + 4 * first, src + 4 * first, ld, rows - first, 0, k)


@part
def add_rows(sums, src, ld, cols, first, last):
    """Add some rows of memory to sums, one after the other."""
    total = floats(sums, cols)
    for j in range(first, last):
        row = floats(src + 4 * j * ld, cols)
        for c in range(cols):
            total[c] += row[c]
