"""Sums of columns, in vectors and at the edge, against sums row by row."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu.column_sums import column_sums, sum_group, sum_group_twin
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.packing import GROUP
from llmpy.cpu.simd import W

from .entry import entry
from .test_packing import normal


@pytest.mark.parametrize("k", [1, 2, 37])
@pytest.mark.parametrize("cols", [1, W + 1, GROUP - 1, GROUP])
def test_column_sums_run_from_the_first_row(rng, k, cols):
    src, got = normal(rng, k, GROUP + 3), alloc((GROUP,))
    entry(column_sums)(data(got), data(src), src.shape[1], cols, k)
    want = np.zeros(cols, np.float32)
    for row in src:
        want += row[:cols]
    np.testing.assert_array_equal(got[:cols], want)


def test_sum_group_equals_its_twin(rng):
    src, got, want = normal(rng, 5, GROUP), alloc((GROUP,)), alloc((GROUP,))

    @njit
    def run(dst, src, ld, k):
        sum_group(dst, src, ld, k)

    run(data(got), data(src), GROUP, 5)
    sum_group_twin(data(want), data(src), GROUP, 5)
    np.testing.assert_array_equal(got, want)
