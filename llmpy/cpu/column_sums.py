"""Sums of columns, GROUP at a time in vectors: the gradient of a bias, while its matrix is packed.

Each sum runs from the first row to the last.
"""

import numpy as np
from llvmlite import ir
from numba import types

from .jit import part
from .packing import GROUP
from .simd import W, at, f32, floats, floats_at, i64, load, store, vector, with_twin


def sum_group_twin(dst, src, ld, k):
    rows = np.array([floats_at(src + 4 * j * ld, GROUP) for j in range(k)])
    total = np.zeros(GROUP, np.float32)
    for x in rows:
        total += x
    floats_at(dst, GROUP)[:] = total


@with_twin(sum_group_twin)
def sum_group(typingctx, dst, src, ld, k):
    """Sum GROUP columns over k >= 1 rows, from the first to the last."""

    def codegen(context, builder, signature, args):
        dst, src, ld, k = args
        dst, src = (builder.inttoptr(x, f32.as_pointer()) for x in (dst, src))
        entry, loop = builder.block, builder.append_basic_block("rows")
        done = builder.append_basic_block("summed")
        builder.branch(loop)
        builder.position_at_end(loop)
        n, p = builder.phi(i64), builder.phi(f32.as_pointer())
        sums = [builder.phi(vector) for _ in range(GROUP // W)]
        new = [builder.fadd(s, load(builder, at(builder, p, j * W))) for j, s in enumerate(sums)]
        m = builder.add(n, ir.Constant(i64, 1))
        steps = [(n, ir.Constant(i64, 0), m), (p, src, at(builder, p, ld))]
        builder.cbranch(builder.icmp_signed("<", m, k), loop, done)
        zeros = ir.Constant(vector, [0.0] * W)
        for phi, first, then in [*steps, *((s, zeros, x) for s, x in zip(sums, new, strict=True))]:
            phi.add_incoming(first, entry)
            phi.add_incoming(then, loop)
        builder.position_at_end(done)
        for j, x in enumerate(new):
            store(builder, x, at(builder, dst, j * W))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@part
def column_sums(dst, src, ld, cols, k):
    """Sum each of `cols` <= GROUP columns over k rows, from the first to the last."""
    if cols == GROUP:
        sum_group(dst, src, ld, k)
        return
    sums = floats(dst, cols)
    sums[:] = np.float32(0)
    for j in range(k):
        inp = floats(src + 4 * j * ld, cols)
        for c in range(cols):
            sums[c] += inp[c]
