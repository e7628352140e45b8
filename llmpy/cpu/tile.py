"""The register tile: c[MR, NR] = or += sum over k of a[MR, k] b[k, NR], in the chip's registers.

It does 2 MR NR operations for MR + NR words read, so that the arithmetic, not the reads, takes the
time. Everything that multiplies matrices runs on it: gemm.py, attention.py.

Words are float32 numbers, or bfloat16 ones in one of two forms. Where the chip has vdpbf16ps
(PAIRS), a word is a pair of bfloat16, k and k + 1, multiplied and added two at a time; this
instruction takes subnormal numbers for zero. Elsewhere a word is a float32 that was rounded to
bfloat16, so that the float32 tile does: products of such numbers are exact.

Each sum runs over k in order, one fused multiply-add a term, so that a float32 result has the same
bits whatever the shape of the tile: the whole one or one at an edge, of this chip or another.
"""

import numpy as np
from llvmlite import ir
from numba import types

from .jit import part
from .simd import (
    MR,
    NR,
    NV,
    PAIRS,
    BFloat,
    W,
    at,
    declare,
    emit_prefetch,
    f32,
    floats_at,
    i32,
    i64,
    load,
    splat,
    store,
    vector,
    with_twin,
    word_vector,
    words_at,
)

WRITE, ADD, BIAS = 0, 1, 2  # what a tile does to c: c = ab, c += ab, c = ab + bias


# ----------------------------------------------------------------------------------------------
# the twin


def edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols, pairs=False):
    """Multiply `rows` rows of A by `cols` columns of a panel of B, in float32, k in order."""
    B = [words_at(b + 4 * n * NR, cols) for n in range(k)]
    A = np.array(
        [[words_at(a + 4 * (i * a_row + n * a_k), 1)[0] for i in range(rows)] for n in range(k)],
        np.uint32,
    )
    total = np.zeros((rows, cols), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # rows that aren't there are anything
        for x, y in zip(A, B, strict=True):
            for p, q in _floats_of_words(x, y, pairs):
                # the product of two floats is exact in float64: one rounding, nearly an fma's
                total = (np.outer(p.astype(np.float64), q) + total).astype(np.float32)
    for i in range(rows):
        row = floats_at(c + 4 * i * ldc, cols)
        if mode == ADD:
            row += total[i]
        elif mode == BIAS:
            row[:] = total[i] + floats_at(bias, cols)
        else:
            row[:] = total[i]


def _floats_of_words(x, y, pairs):
    """Give the factors of the terms that a word of A and one of B stand for."""
    if not pairs:
        return [(x.view(np.float32), y.view(np.float32))]
    high, low = np.uint32(0xFFFF0000), np.uint32(16)
    return [
        ((x << low).view(np.float32), (y << low).view(np.float32)),
        ((x & high).view(np.float32), (y & high).view(np.float32)),
    ]


def add_pair_twin(total, x, y):
    x, y = (np.float32(value).view(np.uint32) for value in (x, y))
    for p, q in _floats_of_words(x, y, True):
        total = np.float32(np.float64(p) * np.float64(q) + np.float64(total))
    return total


def tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias):
    edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, MR, NR)


def pair_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias):
    edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, MR, NR, pairs=True)


def narrow_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, cols):
    edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, MR, cols)


def pair_narrow_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, cols):
    edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, MR, cols, pairs=True)


def pair_edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols):
    edge_tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols, pairs=True)


# ----------------------------------------------------------------------------------------------
# the code


def _multiply_add(builder, a, b, total, pairs):
    """Emit total + a b for vectors of words."""
    if not pairs:
        fma = declare(builder, f"llvm.fma.v{W}f32", vector, [vector] * 3)
        return builder.call(fma, [a, b, total])
    halves = ir.VectorType(BFloat(), 2 * W)
    dot = declare(builder, "llvm.x86.avx512bf16.dpbf16ps.512", vector, [vector, halves, halves])
    return builder.call(dot, [total, builder.bitcast(a, halves), builder.bitcast(b, halves)])


def _emit_sums(builder, a, a_row, a_k, b, k, rows, vectors, pairs):
    """Emit the loop over k; give `rows` x `vectors` vectors of sums."""
    word, words = (i32, word_vector) if pairs else (f32, vector)
    a, b = (builder.inttoptr(x, word.as_pointer()) for x in (a, b))
    offsets = [builder.mul(a_row, ir.Constant(i64, i)) for i in range(rows)]
    entry = builder.block
    loop, done = builder.append_basic_block("k"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    n, pa, pb = (builder.phi(t) for t in (i64, word.as_pointer(), word.as_pointer()))
    sums = [[builder.phi(vector) for _ in range(vectors)] for _ in range(rows)]
    bv = [load(builder, at(builder, pb, j * W), words) for j in range(vectors)]
    new = []
    for i in range(rows):
        av = splat(builder, builder.load(at(builder, pa, offsets[i])))
        new.append([_multiply_add(builder, av, bv[j], sums[i][j], pairs) for j in range(vectors)])
    m = builder.add(n, ir.Constant(i64, 1))
    steps = [
        (n, ir.Constant(i64, 0), m),
        (pa, a, at(builder, pa, a_k)),
        (pb, b, at(builder, pb, NR)),
    ]
    builder.cbranch(builder.icmp_signed("<", m, k), loop, done)
    for i in range(rows):
        steps += [(sums[i][j], ir.Constant(vector, [0.0] * W), new[i][j]) for j in range(vectors)]
    for phi, first, then in steps:
        phi.add_incoming(first, entry)
        phi.add_incoming(then, loop)

    builder.position_at_end(done)
    return new


def _emit_store(builder, sums, c, ldc, mode, bias, cols):
    """Emit the write of the sums to c in one of the three modes; `cols` is None for whole rows."""
    c, bias = (builder.inttoptr(x, f32.as_pointer()) for x in (c, bias))
    vectors, mask = len(sums[0]), None
    if cols is not None:  # the lanes of the last vector that lie in c
        lanes = ir.Constant(ir.VectorType(i64, W), list(range((vectors - 1) * W, vectors * W)))
        mask = builder.icmp_signed("<", lanes, splat(builder, cols))

    def read(pointer, j):
        if mask is None or j < vectors - 1:
            return load(builder, pointer)
        kinds = [f32.as_pointer(), i32, mask.type, vector]
        function = declare(builder, f"llvm.masked.load.v{W}f32.p0", vector, kinds)
        zeros = ir.Constant(vector, [0.0] * W)
        return builder.call(function, [pointer, ir.Constant(i32, 4), mask, zeros])

    def write(value, pointer, j):
        if mask is None or j < vectors - 1:
            return store(builder, value, pointer)
        kinds = [vector, f32.as_pointer(), i32, mask.type]
        function = declare(builder, f"llvm.masked.store.v{W}f32.p0", ir.VoidType(), kinds)
        return builder.call(function, [value, pointer, ir.Constant(i32, 4), mask])

    end = builder.append_basic_block("end")
    cases = [builder.append_basic_block(name) for name in ("write", "add", "bias")]
    switch = builder.switch(mode, cases[WRITE])
    switch.add_case(ir.Constant(i64, ADD), cases[ADD])
    switch.add_case(ir.Constant(i64, BIAS), cases[BIAS])
    for case, block in enumerate(cases):
        builder.position_at_end(block)
        for i, row_sums in enumerate(sums):
            row = at(builder, c, builder.mul(ldc, ir.Constant(i64, i)))
            for j, value in enumerate(row_sums):
                to = at(builder, row, j * W)
                if case == ADD:
                    value = builder.fadd(read(to, j), value)
                elif case == BIAS:
                    value = builder.fadd(read(at(builder, bias, j * W), j), value)
                write(value, to, j)
        builder.branch(end)
    builder.position_at_end(end)


def emit_tile(builder, args, rows=MR, vectors=NV, cols=None, pairs=False):
    """Emit a tile of `rows` x `vectors` vectors.

    args   c, ldc, a, a_row, a_k, b, k, mode, bias: see `tile`
    cols   columns of c, an i64 within the last vector; None for all of its lanes
    pairs  whether words are pairs of bfloat16
    """
    c, ldc, a, a_row, a_k, b, k, mode, bias = args
    first = builder.inttoptr(c, f32.as_pointer())
    for i in range(rows):  # c is there when the sums are
        row = at(builder, first, builder.mul(ldc, ir.Constant(i64, i)))
        for line in range(0, vectors * W, 16):
            emit_prefetch(builder, at(builder, row, line), write=1, level=1)
    sums = _emit_sums(builder, a, a_row, a_k, b, k, rows, vectors, pairs)
    _emit_store(builder, sums, c, ldc, mode, bias, cols)


def emit_edge_tile(builder, args, pairs=False):
    """Emit a tile for each shape that may stand at an edge of c, and the choice among them."""
    *args, rows, cols = args
    last = builder.sdiv(builder.sub(cols, ir.Constant(i64, 1)), ir.Constant(i64, W))
    first = builder.mul(builder.sub(rows, ir.Constant(i64, 1)), ir.Constant(i64, NV))
    chosen, end = builder.add(first, last), builder.append_basic_block("edge_end")
    switch = builder.switch(chosen, end)
    for case in range(MR * NV):
        block = builder.append_basic_block("edge")
        switch.add_case(ir.Constant(i64, case), block)
        builder.position_at_end(block)
        emit_tile(builder, args, case // NV + 1, case % NV + 1, cols, pairs)
        builder.branch(end)
    builder.position_at_end(end)


def emit_narrow_tile(builder, args, pairs=False):
    """Emit a tile for each number of whole vectors below NV, and the choice among them."""
    *args, cols = args
    end = builder.append_basic_block("narrow_end")
    switch = builder.switch(cols, end)
    for vectors in range(1, NV):
        block = builder.append_basic_block("narrow")
        switch.add_case(ir.Constant(i64, vectors * W), block)
        builder.position_at_end(block)
        emit_tile(builder, args, MR, vectors, None, pairs)
        builder.branch(end)
    builder.position_at_end(end)


def _define(twin, emit, **how):
    """Define the intrinsic for a twin: all of its arguments are integers."""

    def codegen(context, builder, signature, args):
        emit(builder, args, **how)
        return context.get_dummy_value()

    def whole(typingctx, c, ldc, a, a_row, a_k, b, k, mode, bias):
        return types.void(*[types.intp] * 9), codegen

    def narrow(typingctx, c, ldc, a, a_row, a_k, b, k, mode, bias, cols):
        return types.void(*[types.intp] * 10), codegen

    def edge(typingctx, c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols):
        return types.void(*[types.intp] * 11), codegen

    typing = {emit_tile: whole, emit_narrow_tile: narrow, emit_edge_tile: edge}[emit]
    typing.__name__ = twin.__name__.removesuffix("_twin")
    return with_twin(twin)(typing)


float_tile = _define(tile_twin, emit_tile)
float_narrow_tile = _define(narrow_tile_twin, emit_narrow_tile)
float_edge_tile = _define(edge_tile_twin, emit_edge_tile)
pair_tile = _define(pair_tile_twin, emit_tile, pairs=True)
pair_narrow_tile = _define(pair_narrow_tile_twin, emit_narrow_tile, pairs=True)
pair_edge_tile = _define(pair_edge_tile_twin, emit_edge_tile, pairs=True)


@with_twin(add_pair_twin)
def add_pair(typingctx, total, x, y):
    """Add the two products of a word and another to a sum, as the tile of pairs does."""

    def codegen(context, builder, signature, args):
        total, *words = args
        x, y = (splat(builder, builder.bitcast(value, i32)) for value in words)
        made = _multiply_add(builder, x, y, splat(builder, total), True)
        return builder.extract_element(made, ir.Constant(i32, 0))

    return types.float32(*[types.float32] * 3), codegen


@part
def tile(bf16, c, ldc, a, a_row, a_k, b, k, mode, bias):
    """Multiply MR rows of A by a panel of B.

    bf16         1 for words of bfloat16 as this chip takes them, 0 for float32
    c, ldc       where the tile goes; floats from one of its rows to the next
    a            the first row of A; a_row, a_k words to the next row, and to the next k
    b            the packed panel of B, [k][NR]
    k            words of the sum, at least 1
    mode         WRITE, ADD or BIAS; bias is the address of NR floats, read by BIAS only
    """
    if PAIRS and bf16:
        pair_tile(c, ldc, a, a_row, a_k, b, k, mode, bias)
    else:
        float_tile(c, ldc, a, a_row, a_k, b, k, mode, bias)


@part
def narrow_tile(bf16, c, ldc, a, a_row, a_k, b, k, mode, bias, cols):
    """Do what `tile` does for the first `cols` columns, whole vectors, fewer than NR.

    Less code than `edge_tile`, which takes long to compile. b may point at a vector of a panel.
    """
    if PAIRS and bf16:
        pair_narrow_tile(c, ldc, a, a_row, a_k, b, k, mode, bias, cols)
    else:
        float_narrow_tile(c, ldc, a, a_row, a_k, b, k, mode, bias, cols)


@part
def edge_tile(bf16, c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols):
    """Do what `tile` does for the `rows` <= MR rows and `cols` <= NR columns that are there.

    Nothing else of A, bias and c is read or written.
    """
    if PAIRS and bf16:
        pair_edge_tile(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols)
    else:
        float_edge_tile(c, ldc, a, a_row, a_k, b, k, mode, bias, rows, cols)
