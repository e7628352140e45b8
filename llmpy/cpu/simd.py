"""Vectors for the CPU kernels: LLVM IR through Numba's @intrinsic, on plain addresses.

Everything that must be a vector instruction, whatever the compiler thinks of the loop around it, is
an intrinsic: the register tile of the matmul (tile.py), what packs its operands (packing.py), and
the few things here. Addresses are integers (bytes); sizes and strides count words of 4 bytes, which
are float32 numbers or pairs of bfloat16.

    W        words in a vector
    MR, NR   rows and columns of the register tile; NR = NV * W
    PAIRS    whether the chip multiplies pairs of bfloat16 (vdpbf16ps)

The vectors are LLVM's generic ones, legal on every target: x86-64 with AVX2 or AVX-512, arm64 with
NEON. Only the shape of the tile is chosen for the machine, by the number of its registers, and the
one instruction for bfloat16.

Where the JIT is off (NUMBA_DISABLE_JIT=1), each intrinsic is replaced by its Python twin, the
function before it of the same name with `_twin`; a test compares the two.
"""

import ctypes

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


def choose_tile(features):
    """Give W, MR, NV and PAIRS for a machine with these LLVM features.

    The accumulators, one row of the packed B and one value of A must fit the vector registers:
    32 of 16 floats (AVX-512), 16 of 8 (AVX2), 32 of 4 (NEON).
    """
    if features.get("avx512f"):
        return 16, 12, 2, bool(features.get("avx512bf16"))
    if features.get("neon") or features.get("asimd"):
        return 4, 8, 3, False
    return 8, 6, 2, False


class BFloat(ir.Type):  # type: ignore[misc]  # llvmlite has no types
    """LLVM's type bfloat, which llvmlite lacks."""

    def __str__(self):
        return "bfloat"

    _to_string = __str__

    def __eq__(self, other):
        return isinstance(other, BFloat)

    def __hash__(self):
        return hash(BFloat)


W, MR, NV, PAIRS = choose_tile(llvmlite.binding.get_host_cpu_features())
NR = NV * W

f32, (i1, i16, i32, i64) = ir.FloatType(), map(ir.IntType, (1, 16, 32, 64))
vector = ir.VectorType(f32, W)
word_vector = ir.VectorType(i32, W)


def at(builder, pointer, offset):
    """Emit the pointer `offset` words on."""
    if isinstance(offset, int):
        offset = ir.Constant(i64, offset)
    return builder.gep(pointer, [offset])


def load(builder, pointer, kind=vector):
    """Emit the load of a vector."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def store(builder, value, pointer):
    """Emit the store of a vector."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)


def splat(builder, scalar, count=W):
    """Emit a vector of one value."""
    kind = ir.VectorType(scalar.type, count)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.Constant(i32, 0))
    return builder.shuffle_vector(
        one, undefined, ir.Constant(ir.VectorType(i32, count), [0] * count)
    )


def declare(builder, name, result, arguments):
    """Declare a function of LLVM's: its own way of declaring fails on vectors."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def emit_prefetch(builder, pointer, write, level):
    """Emit the prefetch of a cache line into the caches from `level` on: 1 or 2."""
    bytes_at = ir.IntType(8).as_pointer()
    function = declare(builder, "llvm.prefetch.p0", ir.VoidType(), [bytes_at, i32, i32, i32])
    constants = [ir.Constant(i32, x) for x in (write, 4 - level, 1)]  # 1: of data
    builder.call(function, [builder.bitcast(pointer, bytes_at), *constants])


def with_twin(twin):
    """Make an intrinsic of the function below; where the JIT is off, put its twin in its place."""
    return lambda typing: twin if config.DISABLE_JIT else intrinsic(typing)


def view_at(address, count, kind):
    """Give `count` numbers of a kind of ctypes at an address as a NumPy array."""
    return np.ctypeslib.as_array(ctypes.cast(int(address), ctypes.POINTER(kind)), (count,))


def floats_at(address, count):
    """Give `count` floats at an address as a NumPy array: what the twins work on."""
    return view_at(address, count, ctypes.c_float)


def words_at(address, count):
    """Give `count` words at an address as a NumPy array of uint32."""
    return floats_at(address, count).view(np.uint32)


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


def _define_view(kind, c_kind, name):
    """Define the intrinsic that views `count` numbers at an address as an array, and its twin."""
    array = types.Array(kind, 1, "C")

    def twin(address, count):
        return view_at(address, count, c_kind)

    def typing(typingctx, address, count):
        def codegen(context, builder, signature, args):
            made = context.make_array(array)(context, builder)
            data = builder.inttoptr(args[0], made.data.type)
            size = ir.Constant(i64, kind.bitwidth // 8)
            populate_array(made, data, [args[1]], [size], size, meminfo=None)
            return made._getvalue()

        return array(types.intp, types.intp), codegen

    typing.__name__ = name
    return twin, with_twin(twin)(typing)


floats_twin, floats = _define_view(types.float32, ctypes.c_float, "floats")
doubles_twin, doubles = _define_view(types.float64, ctypes.c_double, "doubles")
ints_twin, ints = _define_view(types.int32, ctypes.c_int32, "ints")


def prefetch_twin(address):
    pass


@with_twin(prefetch_twin)
def prefetch(typingctx, address):
    """Ask for the cache line at an address to come into L2; it need not be there to be read."""

    def codegen(context, builder, signature, args):
        emit_prefetch(builder, builder.inttoptr(args[0], f32.as_pointer()), write=0, level=2)
        return context.get_dummy_value()

    return types.void(types.intp), codegen


# ----------------------------------------------------------------------------------------------
# bits


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
        entry, first = builder.block, load(builder, src)
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
        lanes.add_incoming(_larger(builder, lanes, load(builder, at(builder, src, j))), body)
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
        best.add_incoming(_larger(builder, best, builder.load(at(builder, src, i))), rest)
        builder.branch(scalar)

        builder.position_at_end(done)
        return best

    return types.float32(types.intp, types.intp), codegen


@njit(inline="always")
def row_max(row):
    """Give the largest element of a contiguous row; NaN may be given or passed over."""
    if row.shape[0] >= W:
        return row_max_lanes(address(row), row.shape[0])
    largest = row[0]
    for i in range(1, row.shape[0]):
        largest = row[i] if row[i] > largest else largest
    return largest
