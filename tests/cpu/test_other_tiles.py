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


STALE = """
import numpy as np
from tests.cpu import test_attention as tests

tests.LONG, rng = tests.BLOCK + 29, np.random.default_rng({seed})
for name in ("attention_forward", "attention_backward"):
    for bf16 in (False, True):
        tests.test_stale_scratch_reaches_nothing(name, bf16, rng)
"""


@pytest.mark.parametrize("chip", [*CHIPS, "AVX-512 with pairs"])
def test_stale_scratch(chip, rng):
    """Without a warning either."""
    features = CHIPS.get(chip, {"avx512f": True, "avx512bf16": True})
    code = pretend(**features) + STALE.format(seed=rng.integers(1 << 30))
    run(code, NUMBA_DISABLE_JIT="1", PYTHONWARNINGS="error")
