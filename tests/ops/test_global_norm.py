"""The norm of all gradients."""

import math

import numpy as np
import pytest

from llmpy import ops
from llmpy.ops.global_norm import CHUNK


def global_norm(grads):
    """Give the norm, and see that the loss stays."""
    outcome = np.array([7.0, np.nan])
    ops.global_norm(outcome, grads.astype(np.float64))
    assert outcome[0] == 7
    return outcome[1]


def test_by_hand():
    assert global_norm(np.array([3.0, 0, -4])) == 5


@pytest.mark.parametrize("N", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_every_element_counts_once(N, rng):
    grads = rng.standard_normal(N).astype(np.float32)
    want = math.sqrt(math.fsum(float(g) ** 2 for g in grads))
    assert global_norm(grads) == pytest.approx(want, rel=1e-13)


def test_sums_beyond_float32():
    """In float32 the squares would overflow, and those of the small ones vanish."""
    assert global_norm(np.full(4, 1e30, np.float32)) == pytest.approx(2e30, rel=1e-7)
    assert global_norm(np.full(4, 1e-30, np.float32)) == pytest.approx(2e-30, rel=1e-7)
    grads = np.full(100_001, 1e-4, np.float32)
    grads[0] = 1
    assert global_norm(grads) == pytest.approx(math.sqrt(1.001), rel=1e-8)


@pytest.mark.parametrize(("x", "want"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf")])
def test_nan_and_infinity_stay_visible(x, want):
    grads = np.ones(CHUNK + 5, np.float32)
    grads[-1] = x
    assert str(global_norm(grads)) == want
