"""Softmax over the first V columns."""

import math

import numpy as np
import pytest

from llmpy.ops import softmax_forward


def forward(logits, V):
    probs = np.full_like(logits, np.nan)
    softmax_forward(probs, logits, V=V)
    return probs


def test_by_hand():
    logits = np.array([[[0, math.log(3), 50, np.nan]]])
    np.testing.assert_allclose(forward(logits, 2), [[[0.25, 0.75, 0, 0]]], rtol=1e-15)
    assert forward(logits, 1).tolist() == [[[1, 0, 0, 0]]]


@pytest.mark.parametrize("shift", [-1e30, -1e5, 1e5, 1e30])
def test_only_differences_count(shift):
    """Also far below -10000, where llm.c's running maximum starts."""
    logits = np.array([[[0.0, 0, 0, 0]]]) + shift
    assert forward(logits, 4).tolist() == [[[0.25] * 4]]


def test_huge_differences():
    assert forward(np.array([[[1e30, 0, -1e30]]]), 3).tolist() == [[[1, 0, 0]]]


def test_minus_infinity_is_probability_zero():
    assert forward(np.array([[[-np.inf, -20000, -np.inf]]]), 3).tolist() == [[[0, 1, 0]]]


def test_nan_and_infinity_stay_visible():
    assert np.isnan(forward(np.array([[[0, np.nan, 1]]]), 3)).all()
    assert np.isnan(forward(np.array([[[0, np.inf, 1]]]), 3)).any()
    assert np.isnan(forward(np.array([[[-np.inf, -np.inf]]]), 2)).all()


def test_sums_to_one(rng):
    probs = forward(rng.standard_normal((2, 3, 50)) * 5, 47)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-14)
    assert (probs[..., :47] > 0).all()
