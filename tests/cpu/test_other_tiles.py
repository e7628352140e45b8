"""Products and attention with the tiles of other chips: edges, masks and blocks are theirs.

Each test runs in a process of its own that takes itself for such a chip, without the JIT.
"""

import pytest

from .test_native_bf16 import ATTENTION, PRODUCTS, pretend, run

CHIPS = {"AVX-512": {"avx512f": True}, "AVX2": {}, "NEON": {"neon": True}}
each_chip = pytest.mark.parametrize("chip", CHIPS)


@each_chip
def test_products(chip, rng):
    sizes = "[(1, 1, 1), (MR + 1, 2 * NR + 1, KC + 3)]"
    code = PRODUCTS.format(seed=rng.integers(1 << 30), sizes=sizes)
    run(pretend(**CHIPS[chip]) + code, NUMBA_DISABLE_JIT="1")


@each_chip
def test_attention(chip, rng):
    code = ATTENTION.format(seed=rng.integers(1 << 30), lengths="(1, 13, BLOCK - 1, BLOCK + 3)")
    code = "from llmpy.cpu.attention import BLOCK" + code
    run(pretend(**CHIPS[chip]) + code, NUMBA_DISABLE_JIT="1")
