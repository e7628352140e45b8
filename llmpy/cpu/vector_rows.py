"""The softmax of attention and its derivative, in LLVM IR: some rows at a time, in whole vectors.

The rows are those of a causal block of scores. For the softmax a row is a query, and sees its first
columns, each following row one more. For the derivative a row is a key and columns are queries: the
first row is seen from some column on, each following row from one column later. What is masked
comes out as 0, whatever is there, NaN too. The exponential is one of base 2:

    2^y = 2^n 2^f,   n = y rounded,   f = y - n in [-1/2, 1/2]

within 1 ulp; 0 below -126.5, where it is no normal number; infinity from 128 on; NaN for NaN.

Addresses are integers (bytes), strides and sizes count floats. Twins as in simd.py.
"""

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types

from .jit import inlined
from .packing import STEP, emit_words_of_column, emit_words_of_row, words_twin
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
    words_at,
)
from .vector_math import LOG2E, MAGIC_127, POWER

ROWS = MR // 2  # rows taken at a time: their sums and the constants about fill the registers

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
    t = builder.fadd(y, _same(MAGIC_127))  # n + 127, in the low bits
    f = builder.fsub(y, builder.fsub(t, _same(MAGIC_127)))
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


def _moved(builder, offset, by):
    return builder.add(offset, ir.Constant(i64, by))


def _emit_words(builder, numbers, row, j, bf16):
    """Emit the store of the numbers of a row from column j on as words."""
    step = ir.Constant(i64, len(numbers))
    words = emit_words_of_row(builder, numbers, bf16)
    store(builder, words, at(builder, row, builder.udiv(j, step)))


def _emit_loop(builder, first, last, step, carried, body):
    """Emit `for j in range(first, last, step): carried = body(j, carried)`; give j and carried."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(x) for x in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    j, phis = builder.phi(i64), [builder.phi(vector) for _ in carried]
    builder.cbranch(builder.icmp_signed("<", j, last), inside, after)
    builder.position_at_end(inside)
    made = body(j, phis)
    j.add_incoming(first, before)
    j.add_incoming(_moved(builder, j, step), builder.block)
    for phi, start, new in zip(phis, carried, made, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return j, phis


def _emit_masked_loop(builder, seen, end, carried, body, step=W):
    """Emit body(j, carried, visible) for columns 0 to `end`; give what is carried.

    visible(i, value, other, by) gives `value` where row i sees a column from j + by on, `other`
    elsewhere: for nothing in the columns that all rows see, by a comparison in the rest.
    """
    whole = builder.and_(seen, ir.Constant(i64, -step))

    def plain(j, carried):
        return body(j, carried, lambda i, value, other, by=0: value)

    def careful(j, carried):
        left = builder.trunc(builder.sub(seen, j), i32)

        def visible(i, value, other, by=0):
            count = splat(builder, builder.add(left, ir.Constant(i32, i - by)))
            return builder.select(
                builder.icmp_signed("<", _integers(range(W)), count), value, other
            )

        return body(j, carried, visible)

    j, carried = _emit_loop(builder, ir.Constant(i64, 0), whole, step, carried, plain)
    return _emit_loop(builder, j, end, step, carried, careful)[1]


# ----------------------------------------------------------------------------------------------
# the rows of attention


def softmax_rows_twin(S, stride, seen, end, factor, largest, sums, bf16=False):
    for i in range(ROWS):
        at_row = S + 4 * i * stride
        row, count = floats_at(at_row, end), min(end, seen + i)
        m = np.float32(-np.inf)
        for x in row[:count]:
            m = x if x > m else m
        row[:count] = exp2_twin((row[:count] - m) * np.float32(factor))
        row[count:] = 0
        floats_at(largest, ROWS)[i] = m
        floats_at(sums, ROWS)[i] = row.sum()
        words = words_twin(row, bf16)
        words_at(at_row, words.size)[:] = words


def softmax_rows_bf16_twin(*arguments):
    softmax_rows_twin(*arguments, bf16=True)


def _define_softmax_rows(twin, bf16):
    step = STEP if bf16 else 1

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
            for i, (row, total) in enumerate(zip(rows, carried, strict=True)):
                powers = []
                for half in range(step):
                    place = at(builder, row, _moved(builder, j, half * W))
                    y = builder.fmul(builder.fsub(load(builder, place), most[i]), factor)
                    powers.append(visible(i, _emit_exp2(builder, y), _same(0.0), half * W))
                    total = builder.fadd(total, powers[-1])
                totals.append(total)
                _emit_words(builder, powers, row, j, bf16)
            return totals

        most = _emit_masked_loop(builder, seen, end, [_same(-np.inf)] * ROWS, find_largest)
        most = [_emit_reduced(builder, m, larger) for m in most]
        for i, m in enumerate(most):
            builder.store(m, at(builder, largest, i))
        most = [splat(builder, m) for m in most]
        totals = _emit_masked_loop(builder, seen, end, [_same(0.0)] * ROWS, make_powers, step * W)
        for i, total in enumerate(totals):
            builder.store(_emit_reduced(builder, total, builder.fadd), at(builder, sums, i))
        return context.get_dummy_value()

    def typing(typingctx, S, stride, seen, end, factor, largest, sums):
        return types.void(*[types.intp] * 4, types.float32, *[types.intp] * 2), codegen

    typing.__name__ = twin.__name__.removesuffix("_twin")
    return with_twin(twin)(typing)


float_softmax_rows = _define_softmax_rows(softmax_rows_twin, False)
softmax_rows_bf16 = _define_softmax_rows(softmax_rows_bf16_twin, True)


@inlined
def softmax_rows(S, stride, seen, end, factor, largest, sums, bf16):
    """Turn ROWS rows of scores s into words of 2^((s - m) factor), with m the largest a row sees.

    S, stride  the first row; floats from one to the next; words go over the scores, from the first
    seen       columns that the first row sees, at least 1
    end        columns to make, a multiple of W, of W words for bf16
    factor     at least 0
    largest    where m goes, ROWS floats; NaN among the scores may be passed over
    sums       where the sum of each row goes, of numbers that are not rounded
    """
    if bf16:
        softmax_rows_bf16(S, stride, seen, end, factor, largest, sums)
    else:
        float_softmax_rows(S, stride, seen, end, factor, largest, sums)


def gradient_rows_twin(S, dP, stride, first, begin, end, count, scale, lse, D, pairs, bf16=False):
    columns, step, derived = np.arange(begin, end), STEP if bf16 else 1, []
    shifts, means = floats_at(lse, end)[begin:], floats_at(D, end)[begin:]
    for i in range(MR):
        seen = (columns >= first + i) & (columns < count)
        s, dp = (floats_at(x + 4 * (i * stride + begin), end - begin)[seen] for x in (S, dP))
        p, ds = np.zeros((2, end - begin), np.float32)
        p[seen] = exp2_twin((s * np.float32(scale) - shifts[seen]) * LOG2E)
        ds[seen] = p[seen] * (dp - means[seen])
        for x, row in ((S, p), (dP, ds)):
            words = words_twin(row, bf16)
            words_at(x + 4 * (i * stride + begin // step), words.size)[:] = words
        derived.append(ds)
    if step == 2:
        for i in range(0, MR, 2):
            words = words_twin(np.stack(derived[i : i + 2], axis=-1), bf16)
            words_at(pairs + 4 * (i // 2 * stride + begin), words.size)[:] = words.ravel()


def gradient_rows_bf16_twin(*arguments):
    gradient_rows_twin(*arguments, bf16=True)


def _emit_seen(builder, j, first, count):
    """Emit which of W columns, from j on, are seen: those from `first` on, before `count`."""
    columns = builder.add(splat(builder, builder.trunc(j, i32)), _integers(range(W)))
    low, high = (splat(builder, builder.trunc(x, i32)) for x in (first, count))
    return builder.and_(
        builder.icmp_signed(">=", columns, low), builder.icmp_signed("<", columns, high)
    )


def _emit_gradient(builder, p_row, dp_row, places, scale, shifts, means, choose):
    """Emit P and dS of a row at some places; choose(place, value) leaves out what is masked."""
    powers, derived = [], []
    for k, shift, mean in zip(places, shifts, means, strict=True):
        x = builder.fmul(load(builder, at(builder, p_row, k)), scale)
        y = builder.fmul(builder.fsub(x, shift), _same(float(LOG2E)))
        p = _emit_exp2(builder, _emit_smaller(builder, _same(HIGHEST), y))
        dp = builder.fsub(load(builder, at(builder, dp_row, k)), mean)
        powers.append(choose(k, p))
        derived.append(choose(k, builder.fmul(p, dp)))
    return powers, derived


def _define_gradient_rows(twin, bf16):
    step = STEP if bf16 else 1

    def codegen(context, builder, signature, args):
        S, dP, stride, first, begin, end, count, scale, lse, D, pairs = args
        S, dP, lse, D, pairs = (
            builder.inttoptr(x, f32.as_pointer()) for x in (S, dP, lse, D, pairs)
        )
        scale = splat(builder, scale)

        def derive(j, choose):
            places = [_moved(builder, j, half * W) for half in range(step)]
            shifts, means = ([load(builder, at(builder, x, k)) for k in places] for x in (lse, D))

            def two_rows(i, carried):  # a loop, to be compiled in a third of the time
                made = []
                for row in (i, _moved(builder, i, 1)):
                    rows = [at(builder, x, builder.mul(stride, row)) for x in (S, dP)]
                    numbers = _emit_gradient(
                        builder, *rows, places, scale, shifts, means, partial(choose, row)
                    )
                    for to, values in zip(rows, numbers, strict=True):
                        _emit_words(builder, values, to, j, bf16)
                    made.append(numbers[1])
                if step == 2:
                    row = builder.udiv(builder.mul(stride, i), ir.Constant(i64, 2))
                    for k, *two in zip(places, *made, strict=True):
                        words = emit_words_of_column(builder, two, bf16)
                        store(builder, words, at(builder, at(builder, pairs, row), k))
                return []

            _emit_loop(builder, *(ir.Constant(i64, x) for x in (0, MR)), 2, [], two_rows)

        def where_seen(i, place, value):
            seen = _emit_seen(builder, place, builder.add(first, i), count)
            return builder.select(seen, value, _same(0.0))

        def body(j, carried):
            all_seen = builder.and_(
                builder.icmp_signed(">=", j, _moved(builder, first, MR - 1)),
                builder.icmp_signed("<=", _moved(builder, j, step * W), count),
            )
            with builder.if_else(all_seen) as (plain, careful):
                with plain:
                    derive(j, lambda i, place, value: value)
                with careful:
                    derive(j, where_seen)
            return []

        _emit_loop(builder, begin, end, step * W, [], body)
        return context.get_dummy_value()

    def typing(typingctx, S, dP, stride, first, begin, end, count, scale, lse, D, pairs):
        arguments = [types.intp] * 7 + [types.float32] + [types.intp] * 3
        return types.void(*arguments), codegen

    typing.__name__ = twin.__name__.removesuffix("_twin")
    return with_twin(twin)(typing)


float_gradient_rows = _define_gradient_rows(gradient_rows_twin, False)
gradient_rows_bf16 = _define_gradient_rows(gradient_rows_bf16_twin, True)


@inlined
def gradient_rows(S, dP, stride, first, begin, end, count, scale, lse, D, pairs, bf16):
    """Turn MR rows of scores s into words of P = e^(scale s - lse), those of dP into P (dP - D).

    The word of column j goes to word j of its row, or to word j / 2 where words are pairs.

    S, dP, stride  the first rows; floats from one to the next
    first          the column from which the first row is seen, perhaps negative
    begin, end     columns to make, multiples of W, of W words for bf16
    count          columns that are there; from it on, they come out as 0
    lse, D         a float for each column up to `end`; scale s is at most lse, but for rounding
    pairs          where the words of dS of two rows each go, `stride` words apart, if words are
                   pairs: sums over the keys read them
    """
    if bf16:
        gradient_rows_bf16(S, dP, stride, first, begin, end, count, scale, lse, D, pairs)
    else:
        float_gradient_rows(S, dP, stride, first, begin, end, count, scale, lse, D, pairs)
