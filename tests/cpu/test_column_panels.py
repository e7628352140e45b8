"""Panels of columns of memory, and their sums, in groups and at the edges, against NumPy."""

import numpy as np
import pytest
from numba import njit

from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.cpu import column_panels
from llmpy.cpu.column_panels import GROUP, pack_columns
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.packing import STEP, words
from llmpy.cpu.simd import MR, W

from .entry import entry
from .test_packing import normal, numbers_of


@pytest.mark.parametrize("bf16", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 3, 37, 64])
@pytest.mark.parametrize(
    "rows", [1, MR, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP, 2 * GROUP + MR + 1]
)
def test_panels_hold_the_numbers_and_the_sums_run_from_the_first(rng, rows, k, bf16):
    src, count, panels = normal(rng, k, rows + 3), words(k, bf16), -(-rows // MR)
    panel = count * MR + W
    dst, sums = alloc((panels, panel)), alloc((rows + W,))
    for wanted in (True, False):
        dst[:], sums[:] = np.nan, np.nan
        at_sums = data(sums) if wanted else 0
        entry(pack_columns)(data(dst), panel, data(src), src.shape[1], rows, k, bf16, at_sums)
        want = np.zeros((count * (STEP if bf16 else 1), panels * MR), np.float32)
        want[:k, :rows] = rounded_to_bfloat16(src[:, :rows]) if bf16 else src[:, :rows]
        for t, packed in enumerate(dst[:, : count * MR]):
            got = numbers_of(packed.reshape(count, MR), bf16)
            np.testing.assert_array_equal(got, want[:, t * MR : (t + 1) * MR])
        if wanted:
            total = np.cumsum(src[:, :rows], axis=0, dtype=np.float32)[-1]
            np.testing.assert_array_equal(sums[:rows], total)
            assert np.isnan(sums[rows:]).all()
        else:
            assert np.isnan(sums).all()


@pytest.mark.parametrize("name", ["pack_group", "pack_group_bf16"])
def test_groups_equal_their_twins(rng, name):
    intrinsic, twin = (getattr(column_panels, x) for x in (name, f"{name}_twin"))

    @njit
    def run(dst, panel, src, ld, count, sums):
        intrinsic(dst, panel, src, ld, count, sums)

    count, ld, panel = 5, GROUP + 2, 5 * MR + W
    src, results = normal(rng, 2 * count, ld), []
    for function in (run, twin):
        dst, sums = alloc((GROUP // MR, panel)), alloc((GROUP,))
        function(data(dst), panel, data(src), ld, count, data(sums))
        results.append((dst[:, : count * MR], sums))
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)
