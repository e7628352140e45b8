"""The softmax of attention and its derivative, in LLVM IR: some rows at a time, in whole vectors.

The rows are those of a causal block of scores: the first sees its first `seen` columns, each
following one a column more. What a row doesn't see, up to `end`, is masked: whatever is there, NaN
too, it comes out as 0. The exponential is one of base 2:

    2^y = 2^n 2^f,   n = y rounded,   f = y - n in [-1/2, 1/2]

within 1 ulp; 0 below -126.5, where it is no normal number; infinity from 128 on; NaN for NaN.

Addresses are integers (bytes), strides and sizes count floats. Twins as in simd.py.
"""

import numpy as np
from llvmlite import ir
from numba import types

from .simd import (
    MR,
    W,
    at,
    declare,
    f32,
    floats_at,
    i32,
    i64,
    load,
    splat,
    store,
    vector,
    with_twin,
)
from .vector_math import LOG2E

ROWS = MR // 2  # rows taken at a time: their sums and the constants about fill the registers

# (2^f - 1) / f, a polynomial of least relative error, 2e-9
POWER = (0.6931472, 0.24022648, 0.055503324, 0.009618437, 0.0013398875, 0.00015353362)
MAGIC = 1.5 * 2.0**23 + 127  # the spacing of floats there is 1: adding it rounds to n + 127
LOWEST, HIGHEST = -127.0, 128.0  # 2^n is then made as 0, and as infinity

lanes = ir.VectorType(i32, W)


def exp2_twin(y):
    y = np.where(y < LOWEST, np.float32(LOWEST), y)
    y = np.where(y > HIGHEST, np.float32(HIGHEST), y)
    n = np.rint(y)
    f = (y - n).astype(np.float64)
    p = np.float64(np.float32(POWER[-1]))
    for coefficient in (*POWER[-2::-1], 1.0):
        p = (p * f + np.float32(coefficient)).astype(np.float32).astype(np.float64)
    return (p * np.where(n == LOWEST, 0, np.exp2(n.astype(np.float64)))).astype(np.float32)


# ----------------------------------------------------------------------------------------------
# what the intrinsics are made of


def _same(value):
    return ir.Constant(vector, [value] * W)


def _integers(values):
    return ir.Constant(lanes, list(values))


def _emit_larger(builder, x, y):
    """Emit x where it is greater than y, else y, also where one is NaN."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _emit_smaller(builder, x, y):
    """Emit x where it is less than y, else y, also where one is NaN."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


def _emit_exp2(builder, y):
    """Emit 2^y for y <= HIGHEST."""
    y = _emit_larger(builder, _same(LOWEST), y)
    t = builder.fadd(y, _same(MAGIC))  # n + 127, in the low bits
    f = builder.fsub(y, builder.fsub(t, _same(MAGIC)))
    p = _same(POWER[-1])
    for coefficient in (*POWER[-2::-1], 1.0):
        fma = declare(builder, f"llvm.fma.v{W}f32", vector, [vector] * 3)
        p = builder.call(fma, [p, f, _same(coefficient)])
    two_n = builder.shl(builder.bitcast(t, lanes), _integers([23] * W))
    return builder.fmul(p, builder.bitcast(two_n, vector))


def _emit_reduced(builder, value, operation):
    """Emit the combination of all lanes of a vector, halves with halves."""
    width = W
    while width > 1:
        width //= 2
        other = _integers((i + width) % W for i in range(W))
        value = operation(value, builder.shuffle_vector(value, value, other))
    return builder.extract_element(value, ir.Constant(i32, 0))


def _emit_loop(builder, first, last, carried, body):
    """Emit `for j in range(first, last, W): carried = body(j, carried)`; give j and carried."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(x) for x in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    j, phis = builder.phi(i64), [builder.phi(vector) for _ in carried]
    builder.cbranch(builder.icmp_signed("<", j, last), inside, after)
    builder.position_at_end(inside)
    made = body(j, phis)
    j.add_incoming(first, before)
    j.add_incoming(builder.add(j, ir.Constant(i64, W)), builder.block)
    for phi, start, new in zip(phis, carried, made, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return j, phis


def _emit_masked_loop(builder, seen, end, carried, body):
    """Emit body(j, carried, visible) for columns 0 to `end`; give what is carried.

    visible(i, value, other) gives `value` where row i sees a column, `other` elsewhere: for nothing
    in the columns that all rows see, by a comparison in the rest.
    """
    whole = builder.and_(seen, ir.Constant(i64, -W))

    def plain(j, carried):
        return body(j, carried, lambda i, value, other: value)

    def careful(j, carried):
        left = builder.trunc(builder.sub(seen, j), i32)

        def visible(i, value, other):
            count = splat(builder, builder.add(left, ir.Constant(i32, i)))
            return builder.select(
                builder.icmp_signed("<", _integers(range(W)), count), value, other
            )

        return body(j, carried, visible)

    j, carried = _emit_loop(builder, ir.Constant(i64, 0), whole, carried, plain)
    return _emit_loop(builder, j, end, carried, careful)[1]


# ----------------------------------------------------------------------------------------------
# the rows of attention


def softmax_rows_twin(S, stride, seen, end, factor, largest, sums):
    for i in range(ROWS):
        row, count = floats_at(S + 4 * i * stride, end), min(end, seen + i)
        m = np.float32(-np.inf)
        for x in row[:count]:
            m = x if x > m else m
        row[:count] = exp2_twin((row[:count] - m) * np.float32(factor))
        row[count:] = 0
        floats_at(largest, ROWS)[i] = m
        floats_at(sums, ROWS)[i] = row.sum()


@with_twin(softmax_rows_twin)
def softmax_rows(typingctx, S, stride, seen, end, factor, largest, sums):
    """Turn ROWS rows of scores s into 2^((s - m) factor), with m the largest that the row sees.

    S, stride  the first row; floats from one to the next
    seen       columns that the first row sees, at least 1
    end        columns to make, a multiple of W
    factor     at least 0
    largest    where m goes, ROWS floats; NaN among the scores may be passed over
    sums       where the sum of each row goes
    """

    def codegen(context, builder, signature, args):
        S, stride, seen, end, factor, largest, sums = args
        S, largest, sums = (builder.inttoptr(x, f32.as_pointer()) for x in (S, largest, sums))
        rows = [at(builder, S, builder.mul(stride, ir.Constant(i64, i))) for i in range(ROWS)]
        factor = splat(builder, factor)

        def larger(x, y):
            return _emit_larger(builder, x, y)

        def find_largest(j, carried, visible):
            scores = [load(builder, at(builder, row, j)) for row in rows]
            scores = [visible(i, x, _same(-np.inf)) for i, x in enumerate(scores)]
            return [larger(x, m) for x, m in zip(scores, carried, strict=True)]

        def make_powers(j, carried, visible):
            totals = []
            for i, row in enumerate(rows):
                place = at(builder, row, j)
                y = builder.fmul(builder.fsub(load(builder, place), most[i]), factor)
                power = visible(i, _emit_exp2(builder, y), _same(0.0))
                store(builder, power, place)
                totals.append(builder.fadd(carried[i], power))
            return totals

        most = _emit_masked_loop(builder, seen, end, [_same(-np.inf)] * ROWS, find_largest)
        most = [_emit_reduced(builder, m, larger) for m in most]
        for i, m in enumerate(most):
            builder.store(m, at(builder, largest, i))
        most = [splat(builder, m) for m in most]
        totals = _emit_masked_loop(builder, seen, end, [_same(0.0)] * ROWS, make_powers)
        for i, total in enumerate(totals):
            builder.store(_emit_reduced(builder, total, builder.fadd), at(builder, sums, i))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4, types.float32, *[types.intp] * 2), codegen


def gradient_rows_twin(S, dP, stride, seen, end, scale, lse, D):
    for i in range(ROWS):
        p, dp = floats_at(S + 4 * i * stride, end), floats_at(dP + 4 * i * stride, end)
        count = min(end, seen + i)
        y = p[:count] * np.float32(scale) - floats_at(lse, ROWS)[i]
        p[:count] = exp2_twin(y * LOG2E)
        dp[:count] = p[:count] * (dp[:count] - floats_at(D, ROWS)[i])
        p[count:] = dp[count:] = 0


@with_twin(gradient_rows_twin)
def gradient_rows(typingctx, S, dP, stride, seen, end, scale, lse, D):
    """Turn ROWS rows of scores s into P = e^(scale s - lse), and those of dP into P (dP - D).

    S, dP, stride, seen, end  as in softmax_rows
    lse, D                    ROWS floats each; scale s is at most lse, but for rounding
    """

    def codegen(context, builder, signature, args):
        S, dP, stride, seen, end, scale, lse, D = args
        S, dP, lse, D = (builder.inttoptr(x, f32.as_pointer()) for x in (S, dP, lse, D))
        offsets = [builder.mul(stride, ir.Constant(i64, i)) for i in range(ROWS)]
        shifts, means = (
            [splat(builder, builder.load(at(builder, x, i))) for i in range(ROWS)] for x in (lse, D)
        )
        scale = splat(builder, scale)

        def derive(j, carried, visible):
            for i, offset in enumerate(offsets):
                p_place, dp_place = (at(builder, at(builder, x, offset), j) for x in (S, dP))
                x = builder.fsub(builder.fmul(load(builder, p_place), scale), shifts[i])
                y = builder.fmul(x, _same(float(LOG2E)))
                p = _emit_exp2(builder, _emit_smaller(builder, _same(HIGHEST), y))
                dp = builder.fmul(p, builder.fsub(load(builder, dp_place), means[i]))
                store(builder, visible(i, p, _same(0.0)), p_place)
                store(builder, visible(i, dp, _same(0.0)), dp_place)
            return []

        _emit_masked_loop(builder, seen, end, [], derive)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5, types.float32, *[types.intp] * 2), codegen
