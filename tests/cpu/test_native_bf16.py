"""The kernels for chips with vdpbf16ps, on any chip: their code, and their results by emulation.

Each test runs in a process of its own that takes itself for a chip with AVX-512 and avx512_bf16.
"""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import pytest

ROOT = Path(__file__).parent.parent.parent


def pretend(**features):
    """Give code that takes the machine for one with these features."""
    return f"""
import llvmlite.binding
ask = llvmlite.binding.get_host_cpu_features

class Features(dict):
    def flatten(self):  # what Numba compiles for
        return ask().flatten()

llvmlite.binding.get_host_cpu_features = lambda: Features({features})
from llmpy.cpu import simd
assert simd.choose_tile({features}) == (simd.W, simd.MR, simd.NV, simd.PAIRS)
"""


PRETEND = pretend(avx512f=True, avx512bf16=True)

# the instructions: each lane of two products, the first number's and then the second's; and what
# rounds two vectors
EMULATE = """
from llvmlite import ir
from llmpy.cpu import packing, tile
from llmpy.cpu.simd import W, declare, i16, i32, vector, word_vector

def multiply_add(builder, a, b, total, pairs):
    fma = declare(builder, f"llvm.fma.v{W}f32", vector, [vector] * 3)
    if not pairs:
        return builder.call(fma, [a, b, total])
    constant = lambda x: ir.Constant(word_vector, [x] * W)
    low = lambda x: builder.bitcast(builder.shl(x, constant(16)), vector)
    high = lambda x: builder.bitcast(builder.and_(x, constant(-65536)), vector)
    total = builder.call(fma, [low(a), low(b), total])
    return builder.call(fma, [high(a), high(b), total])

def rounded(builder, low, high):
    shift = ir.Constant(word_vector, [16] * W)
    halves = [
        builder.trunc(builder.lshr(packing.emit_round(builder, x), shift), ir.VectorType(i16, W))
        for x in (builder.bitcast(half, word_vector) for half in (low, high))
    ]
    mask = ir.Constant(ir.VectorType(i32, 2 * W), list(range(2 * W)))
    return builder.shuffle_vector(*halves, mask)

tile._multiply_add, packing.emit_rounded = multiply_add, rounded
"""

PRODUCTS = """
import itertools
import numpy as np
from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.cpu.gemm import KC, gemm
from llmpy.cpu.simd import MR, NR

rng = np.random.default_rng({seed})
for (M, N, K), a_unit_k, b_unit_k in itertools.product({sizes}, (0, 1), (0, 1)):
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    c = np.full((M, N), np.nan, np.float32)
    stored_a = np.ascontiguousarray(a if a_unit_k else a.T)
    stored_b = np.ascontiguousarray(b.T if b_unit_k else b)
    gemm(c, stored_a, stored_b, a_unit_k=a_unit_k, b_unit_k=b_unit_k, K=K, bf16=True)
    want = rounded_to_bfloat16(a).astype(float) @ rounded_to_bfloat16(b)
    np.testing.assert_allclose(c, want, rtol=0, atol=5e-6 * (K + 2), err_msg=str((M, N, K)))
    gemm(c, stored_a, stored_b, a_unit_k=a_unit_k, b_unit_k=b_unit_k, K=K)
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=0, atol=5e-6 * (K + 2))
"""

PANELS = """
import numpy as np
from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.cpu.column_panels import GROUP, pack_columns
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.packing import pack_panel, words
from llmpy.cpu.simd import MR, NR, W
from llmpy.cpu.tile import WRITE, tile
from tests.cpu.entry import entry

pack_columns, pack_panel, tile = entry(pack_columns), entry(pack_panel), entry(tile)
rng = np.random.default_rng({seed})
for unit_k in (0, 1):
    for k in (1, 2, 2 * W - 1, 2 * W, 5 * W + 3):
        a, b = rng.standard_normal((MR, k), np.float32), rng.standard_normal((k, NR), np.float32)
        stored_a = np.ascontiguousarray(a if unit_k else a.T)
        stored_b = np.ascontiguousarray(b.T if unit_k else b)
        packed_a, packed_b = alloc((words(k, 1) * MR + W,)), alloc((words(k, 1) * NR,))
        pack_panel(data(packed_a), MR, data(stored_a), stored_a.shape[1], unit_k, MR, k, 1)
        pack_panel(data(packed_b), NR, data(stored_b), stored_b.shape[1], unit_k, NR, k, 1)
        c = np.full((MR, NR), np.nan, np.float32)
        tile(1, data(c), NR, data(packed_a), 1, MR, data(packed_b), words(k, 1), WRITE, 0)
        want = rounded_to_bfloat16(a).astype(float) @ rounded_to_bfloat16(b)
        np.testing.assert_allclose(c, want, rtol=0, atol=5e-6 * (k + 2), err_msg=str(k))
        wide = rng.standard_normal((k, GROUP), np.float32)
        count, sums = words(k, 1) * MR, alloc((GROUP,))
        group = alloc((GROUP // MR, count + W))
        pack_columns(data(group), count + W, data(wide), GROUP, GROUP, k, 1, data(sums))
        for t, packed in enumerate(group):
            pack_panel(data(packed_a), MR, data(wide) + 4 * t * MR, GROUP, 0, MR, k, 1)
            np.testing.assert_array_equal(packed[:count], packed_a[:count], err_msg=str((k, t)))
        np.testing.assert_array_equal(sums, np.cumsum(wide, 0, dtype=np.float32)[-1])
"""

ATTENTION = """
import numpy as np
from llmpy import cpu, ops
from tests.check import close
from tests.op_cases import all_calls, call
from tests.tolerances import tolerance_of

rng, sizes = np.random.default_rng({seed}), [{{"B": 1, "T": T, "NH": 1, "C": 5}} for T in {lengths}]
for name in ("attention_forward", "attention_backward"):
    for text, arrays, scalars in all_calls(name, rng, sizes):
        want = call(ops, name, arrays, scalars, "float64")
        got = call(cpu, name, arrays, scalars, "float32")
        for output in want:
            close(got[output], want[output], tolerance_of(name, output, scalars), text)
"""

NOT_FINITE = """
import numpy as np
from llmpy.cpu.attention import ROW_BLOCK
from tests.cpu import test_attention as tests

tests.LONG, tests.EDGES, rng = ROW_BLOCK + 3, [0, 7, ROW_BLOCK - 2], np.random.default_rng({seed})
tests.test_later_positions_reach_nothing_forward(2, np.nan, True, rng)
for what in ("query", "key", "value", "dout"):
    tests.test_only_pairs_reach_each_other_backward(what, np.inf, True, rng)
"""

CHUNKS = """
import numpy as np
import pytest
from llmpy.cpu.gemm import KC
from tests.cpu import test_classifier as tests

tests.N, tests.PIECES, rng = 2 * KC + 17, (1, 100), np.random.default_rng({seed})
tests.test_bits_do_not_depend_on_the_chunk(rng, pytest.MonkeyPatch(), False, True)
"""

ASSEMBLY = """
import llvmlite.binding as llvm
from llvmlite import ir
from llmpy.cpu import packing, tile
from llmpy.cpu.simd import f32, i64, load, store, vector

module = ir.Module()
function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64] * 9), "tile")
builder = ir.IRBuilder(function.append_basic_block())
tile.emit_tile(builder, list(function.args), pairs=True)
builder.ret_void()
pointers = [f32.as_pointer()] * 3
function = ir.Function(module, ir.FunctionType(ir.VoidType(), pointers), "rounded")
builder = ir.IRBuilder(function.append_basic_block())
*rows, to = function.args
rounded = packing.emit_rounded(builder, *(load(builder, row) for row in rows))
store(builder, builder.bitcast(rounded, vector), to)
builder.ret_void()
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
machine = target.create_target_machine(cpu="znver4", opt=3)
parsed = llvm.parse_assembly(str(module))
builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
builder.getModulePassManager().run(parsed, builder)
print(machine.emit_assembly(parsed))
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_panels_of_pairs(rng, tmp_path):
    code = PRETEND + EMULATE + PANELS.format(seed=rng.integers(1 << 30))
    run(code, NUMBA_CACHE_DIR=str(tmp_path))


def test_products_of_pairs_without_the_jit(rng):
    code = PRODUCTS.format(
        seed=rng.integers(1 << 30),
        sizes="[(1, 1, 1), (MR + 1, 13 * NR + 1, 37), (3, 9, 2 * KC + 3)]",
    )
    run(PRETEND + code, NUMBA_DISABLE_JIT="1")


def test_attention_of_pairs_without_the_jit(rng):
    """Lengths on both sides of a block, so that some sums have an odd number of terms."""
    code = ATTENTION.format(seed=rng.integers(1 << 30), lengths="(7, BLOCK - 1, BLOCK + 3)")
    run(PRETEND + "from llmpy.cpu.attention import BLOCK" + code, NUMBA_DISABLE_JIT="1")


def test_not_finite_pairs_without_the_jit(rng):
    code = NOT_FINITE.format(seed=rng.integers(1 << 30))
    run(PRETEND + code, NUMBA_DISABLE_JIT="1")


def test_chunks_of_pairs_without_the_jit(rng):
    """Where words are pairs, a sum takes more terms at a time; those over positions don't."""
    code = CHUNKS.format(seed=rng.integers(1 << 30))
    run(PRETEND + code, NUMBA_DISABLE_JIT="1")


def test_the_tile_is_the_instruction_and_spills_nothing():
    try:
        llvmlite.binding.initialize_all_targets()
        llvmlite.binding.Target.from_triple("x86_64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this llvmlite has no x86-64 target")
    text = run(PRETEND + ASSEMBLY, NUMBA_DISABLE_JIT="1")
    dots = [line for line in text.splitlines() if "vdpbf16ps" in line]
    assert dots
    assert len(dots) % (12 * 2) == 0  # LLVM may take several words of the sum at a time
    assert all("zmm" in line for line in dots)
    assert text.count("vcvtne2ps2bf16") == 1
    spilled = [line for line in text.splitlines() if "zmm" in line and "(%rsp)" in line]
    assert spilled == []
