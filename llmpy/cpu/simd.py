"""Vectors for the CPU kernels: LLVM IR through Numba's @intrinsic, on plain addresses.

Everything that must be a vector instruction, whatever the compiler thinks of the loop around it,
is here, and only here: the register tile of the matmul, the transposes that pack its operands, and
loads and stores by address. Addresses are integers (bytes); sizes and strides count floats.

    W        floats in a vector
    MR, NR   rows and columns of the register tile; NR = NV * W

The vectors are LLVM's generic ones, legal on every target: x86-64 with AVX2 or AVX-512, arm64 with
NEON. Only the shape of the tile is chosen for the machine, by the number of its registers. Each sum
runs over k in order, one fused multiply-add a term, so the result has the same bits on all of them.

Where the JIT is off (NUMBA_DISABLE_JIT=1), each intrinsic is replaced by its Python twin, the
function before it of the same name with `_twin`; a test compares the two.
"""

import ctypes

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray, config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def choose_tile(features):
    """Give W, MR and NV for a machine with these LLVM features.

    The accumulators, one row of the packed B and one value of A must fit the vector registers:
    32 of 16 floats (AVX-512), 16 of 8 (AVX2), 32 of 4 (NEON).
    """
    if features.get("avx512f"):
        return 16, 8, 3
    if features.get("neon") or features.get("asimd"):
        return 4, 8, 3
    return 8, 6, 2


W, MR, NV = choose_tile(llvmlite.binding.get_host_cpu_features())
NR = NV * W

f32, i32, i64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
vector = ir.VectorType(f32, W)


def _at(builder, pointer, offset):
    if isinstance(offset, int):
        offset = ir.Constant(i64, offset)
    return builder.gep(pointer, [offset])


def _load(builder, pointer):
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)


def _store(builder, value, pointer):
    builder.store(value, builder.bitcast(pointer, vector.as_pointer()), align=4)


def _splat(builder, scalar):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(i32, 0))
    zeros = ir.Constant(ir.VectorType(i32, W), [0] * W)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def with_twin(twin):
    """Make an intrinsic of the function below; where the JIT is off, put its twin in its place."""
    return lambda typing: twin if config.DISABLE_JIT else intrinsic(typing)


def floats_at(address, count):
    """Give `count` floats at an address as a NumPy array: what the twins work on."""
    return np.ctypeslib.as_array(
        ctypes.cast(int(address), ctypes.POINTER(ctypes.c_float)), (count,)
    )


# ----------------------------------------------------------------------------------------------
# addresses


def address_twin(array):
    return array.ctypes.data


@with_twin(address_twin)
def address(typingctx, array):
    """Give the address of an array's first element; unlike array.ctypes, it can be cached."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, i64)

    return types.intp(array), codegen


def pointer_twin(address):
    return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_float))


@with_twin(pointer_twin)
def pointer(typingctx, address):
    """Turn an address into a pointer to float32, for numba.carray."""
    kind = types.CPointer(types.float32)(types.intp)
    return kind, lambda _, builder, __, args: builder.inttoptr(args[0], f32.as_pointer())


def float_of_bits_twin(bits):
    return np.int32(bits).view(np.float32)


def bits_of_float_twin(x):
    return np.float32(x).view(np.int32)


@with_twin(float_of_bits_twin)
def float_of_bits(typingctx, bits):
    """Reinterpret an int32 as a float32."""
    return types.float32(types.int32), lambda _, builder, __, args: builder.bitcast(args[0], f32)


@with_twin(bits_of_float_twin)
def bits_of_float(typingctx, x):
    """Reinterpret a float32 as an int32."""
    return types.int32(types.float32), lambda _, builder, __, args: builder.bitcast(args[0], i32)


# ----------------------------------------------------------------------------------------------
# the register tile

WRITE, ADD, BIAS = 0, 1, 2  # what a tile does to c: c = ab, c += ab, c = ab + bias


def tile_twin(c, ldc, a, a_row, a_k, b, k, mode, bias):
    """Multiply a panel of A by one of B, in float32, k in order."""
    A = [[floats_at(a + 4 * (i * a_row + n * a_k), 1)[0] for i in range(MR)] for n in range(k)]
    A = np.array(A, np.float32)
    B = floats_at(b, k * NR).reshape(k, NR)
    total = np.zeros((MR, NR), np.float32)
    for x, y in zip(A, B, strict=True):
        # the product of two floats is exact in float64: one rounding, nearly always that of an fma
        total = (np.outer(x.astype(np.float64), y) + total).astype(np.float32)
    for i in range(MR):
        row = floats_at(c + 4 * i * ldc, NR)
        if mode == ADD:
            row += total[i]
        elif mode == BIAS:
            row[:] = total[i] + floats_at(bias, NR)
        else:
            row[:] = total[i]


def _store_tile(builder, sums, c, ldc, mode, bias):
    """Write MR x NV vectors of sums to c, in one of the three modes."""
    end = builder.append_basic_block("end")
    cases = [builder.append_basic_block(name) for name in ("write", "add", "bias")]
    switch = builder.switch(mode, cases[WRITE])
    switch.add_case(ir.Constant(i64, ADD), cases[ADD])
    switch.add_case(ir.Constant(i64, BIAS), cases[BIAS])
    for case, block in enumerate(cases):
        builder.position_at_end(block)
        for i in range(MR):
            row = _at(builder, c, builder.mul(ldc, ir.Constant(i64, i)))
            for j in range(NV):
                value, at = sums[i][j], _at(builder, row, j * W)
                if case == ADD:
                    value = builder.fadd(_load(builder, at), value)
                elif case == BIAS:
                    value = builder.fadd(_load(builder, _at(builder, bias, j * W)), value)
                _store(builder, value, at)
        builder.branch(end)
    builder.position_at_end(end)


@with_twin(tile_twin)
def tile(typingctx, c, ldc, a, a_row, a_k, b, k, mode, bias):
    """Multiply a panel of A by one of B: c[MR, NR] = or += sum over k of a[MR, k] b[k, NR].

    c, ldc       where the tile goes; floats from one of its rows to the next
    a            the panel of A; a_row, a_k floats to the next row, and to the next k
    b            the packed panel of B, [k][NR]
    k            terms of the sum, at least 1
    mode         WRITE, ADD or BIAS; bias is the address of NR floats, read by BIAS only
    """

    def codegen(context, builder, signature, args):
        c, ldc, a, a_row, a_k, b, k, mode, bias = args
        c, a, b, bias = (builder.inttoptr(x, f32.as_pointer()) for x in (c, a, b, bias))
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{W}f32"
        )
        rows = [builder.mul(a_row, ir.Constant(i64, i)) for i in range(MR)]
        entry = builder.block
        loop, done = builder.append_basic_block("k"), builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        n, pa, pb = (builder.phi(t) for t in (i64, f32.as_pointer(), f32.as_pointer()))
        acc = [[builder.phi(vector) for _ in range(NV)] for _ in range(MR)]
        bv = [_load(builder, _at(builder, pb, j * W)) for j in range(NV)]
        new = []
        for i in range(MR):
            av = _splat(builder, builder.load(_at(builder, pa, rows[i])))
            new.append([builder.call(fma, [av, bv[j], acc[i][j]]) for j in range(NV)])
        m = builder.add(n, ir.Constant(i64, 1))
        steps = [
            (n, ir.Constant(i64, 0), m),
            (pa, a, _at(builder, pa, a_k)),
            (pb, b, _at(builder, pb, NR)),
        ]
        builder.cbranch(builder.icmp_signed("<", m, k), loop, done)
        for phi, first, then in steps:
            phi.add_incoming(first, entry)
            phi.add_incoming(then, loop)
        for i in range(MR):
            for j in range(NV):
                acc[i][j].add_incoming(ir.Constant(vector, [0.0] * W), entry)
                acc[i][j].add_incoming(new[i][j], loop)

        builder.position_at_end(done)
        _store_tile(builder, new, c, ldc, mode, bias)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 9), codegen


# ----------------------------------------------------------------------------------------------
# packing


def _transpose(builder, rows):
    """Transpose W vectors of W floats by log2 W rounds of swapping ever larger blocks."""
    d = 1
    while d < W:
        low = [j if j & d == 0 else W + j - d for j in range(W)]
        high = [j + d if j & d == 0 else W + j for j in range(W)]
        masks = [ir.Constant(ir.VectorType(i32, W), mask) for mask in (low, high)]
        for i in range(W):
            if i & d == 0:
                x, y = rows[i], rows[i + d]
                rows[i] = builder.shuffle_vector(x, y, masks[0])
                rows[i + d] = builder.shuffle_vector(x, y, masks[1])
        d *= 2
    return rows


def _define_transpose(R, name):
    """Define the intrinsic that packs W columns of R rows: dst[j * R + r] = src[r * ld + j].

    Where R is no multiple of W, the last vector of each j reaches past its R floats; the next j
    writes over that, so j goes up, and the destination needs W spare floats at its end.
    """

    def twin(dst, src, ld):
        for j in range(W):
            column = floats_at(dst + 4 * j * R, R)
            for r in range(R):
                column[r] = floats_at(src + 4 * (r * ld + j), 1)[0]

    def typing(typingctx, dst, src, ld):
        def codegen(context, builder, signature, args):
            dst, src, ld = args
            dst, src = (builder.inttoptr(x, f32.as_pointer()) for x in (dst, src))
            columns = []
            for first in range(0, R, W):
                rows = []
                for r in range(first, first + W):
                    if r < R:
                        at = _at(builder, src, builder.mul(ld, ir.Constant(i64, r)))
                        rows.append(_load(builder, at))
                    else:
                        rows.append(ir.Constant(vector, [0.0] * W))
                columns.append(_transpose(builder, rows))
            for j in range(W):
                for g, group in enumerate(columns):
                    _store(builder, group[j], _at(builder, dst, j * R + g * W))
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), codegen

    twin.__name__ = f"{name}_twin"
    typing.__name__ = name
    return twin, with_twin(twin)(typing)


transpose_mr_twin, transpose_mr = _define_transpose(MR, "transpose_mr")
transpose_nr_twin, transpose_nr = _define_transpose(NR, "transpose_nr")


def _define_copy(R, name):
    """Define the intrinsic that copies R floats, as one vector."""

    def twin(dst, src):
        floats_at(dst, R)[:] = floats_at(src, R)

    def typing(typingctx, dst, src):
        def codegen(context, builder, signature, args):
            pointer = ir.VectorType(f32, R).as_pointer()
            dst, src = (builder.inttoptr(x, pointer) for x in args)
            builder.store(builder.load(src, align=4), dst, align=4)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), codegen

    twin.__name__ = f"{name}_twin"
    typing.__name__ = name
    return twin, with_twin(twin)(typing)


copy_mr_twin, copy_mr = _define_copy(MR, "copy_mr")
copy_nr_twin, copy_nr = _define_copy(NR, "copy_nr")


# ----------------------------------------------------------------------------------------------
# reductions


def row_max_twin(src, count):
    row = floats_at(src, count)
    lanes = row[:W]
    for j in range(W, count - W + 1, W):
        lanes = np.where(row[j : j + W] > lanes, row[j : j + W], lanes)
    largest = lanes[0]
    for x in [*lanes[1:], *row[count - count % W :]]:
        largest = x if x > largest else largest
    return largest


def _larger(builder, x, y):
    return builder.select(builder.fcmp_ordered(">", y, x), y, x)


@with_twin(row_max_twin)
def row_max_lanes(typingctx, src, count):
    """Give the largest of `count` >= W floats; NaN may be given or passed over.

    LLVM makes no vectors of a loop over max() unless NaN may be assumed away.
    """

    def codegen(context, builder, signature, args):
        src, count = builder.inttoptr(args[0], f32.as_pointer()), args[1]
        entry, first = builder.block, _load(builder, src)
        loop, body = builder.append_basic_block("lanes"), builder.append_basic_block("lane")
        tail, scalar = builder.append_basic_block("tail"), builder.append_basic_block("scalar")
        done = builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        j, lanes = builder.phi(i64), builder.phi(vector)
        j.add_incoming(ir.Constant(i64, W), entry)
        lanes.add_incoming(first, entry)
        after = builder.add(j, ir.Constant(i64, W))
        builder.cbranch(builder.icmp_signed("<=", after, count), body, tail)

        builder.position_at_end(body)
        j.add_incoming(after, body)
        lanes.add_incoming(_larger(builder, lanes, _load(builder, _at(builder, src, j))), body)
        builder.branch(loop)

        builder.position_at_end(tail)
        largest = builder.extract_element(lanes, ir.Constant(i32, 0))
        for lane in range(1, W):
            one = builder.extract_element(lanes, ir.Constant(i32, lane))
            largest = _larger(builder, largest, one)
        builder.branch(scalar)

        builder.position_at_end(scalar)
        i, best = builder.phi(i64), builder.phi(f32)
        i.add_incoming(j, tail)
        best.add_incoming(largest, tail)
        rest = builder.append_basic_block("rest")
        builder.cbranch(builder.icmp_signed("<", i, count), rest, done)
        builder.position_at_end(rest)
        i.add_incoming(builder.add(i, ir.Constant(i64, 1)), rest)
        best.add_incoming(_larger(builder, best, builder.load(_at(builder, src, i))), rest)
        builder.branch(scalar)

        builder.position_at_end(done)
        return best

    return types.float32(types.intp, types.intp), codegen


@njit(inline="always")
def floats(address, count):
    """View `count` floats at an address as an array."""
    return carray(pointer(address), (count,))


@njit(inline="always")
def row_max(row):
    """Give the largest element of a contiguous row; NaN may be given or passed over."""
    if row.shape[0] >= W:
        return row_max_lanes(address(row), row.shape[0])
    largest = row[0]
    for i in range(1, row.shape[0]):
        largest = row[i] if row[i] > largest else largest
    return largest
