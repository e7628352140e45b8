"""The loss and its gradient through softmax."""

import math

import numpy as np
import pytest

from llmpy.ops import crossentropy_forward, crossentropy_softmax_backward, softmax_forward

from ..check import check_backward


def forward(logits, targets, V):
    losses = np.full(targets.shape, np.nan, logits.dtype)
    crossentropy_forward(losses, logits, targets, V=V)
    return losses


def backward(dlosses, logits, targets, V):
    probs, dlogits = np.empty_like(logits), np.zeros_like(logits)
    softmax_forward(probs, logits, V=V)
    crossentropy_softmax_backward(dlogits, dlosses, probs, targets, V=V)
    return [dlogits]


@pytest.mark.parametrize(("V", "Vp"), [(1, 1), (2, 3), (13, 16)])
def test_derivative(V, Vp, rng):
    targets = rng.integers(0, V, (2, 3), np.int32)
    check_backward(
        lambda logits: forward(logits, targets, V),
        lambda dlosses, logits: backward(dlosses, logits, targets, V),
        [rng.standard_normal((2, 3, Vp))],
        rng,
    )


def test_by_hand():
    logits = np.array([[[0, math.log(3), 50], [0, math.log(3), 50]]])  # probabilities 1/4, 3/4
    targets = np.array([[0, 1]], np.int32)
    want = [[math.log(4), math.log(4 / 3)]]
    np.testing.assert_allclose(forward(logits, targets, 2), want, rtol=1e-15)
    probs = np.array([[[0.25, 0.75, 0], [0.25, 0.75, 0]]])
    dlogits = np.full((1, 2, 3), 100.0)
    crossentropy_softmax_backward(dlogits, np.array([[1.0, 8]]), probs, targets, V=2)
    assert dlogits.tolist() == [[[99.25, 100.75, 100], [102, 98, 100]]]


def test_finite_for_an_unlikely_target():
    """The probability is 0 in any dtype; its logarithm is not asked for."""
    logits, targets = np.array([[[0.0, 5000, 0]]]), np.array([[2]], np.int32)
    for dtype in (np.float32, np.float64):
        assert forward(logits.astype(dtype), targets, 3).tolist() == [[5000]]


@pytest.mark.parametrize("shift", [-1e12, 1e12])
def test_only_differences_count(shift):
    logits, targets = np.full((1, 1, 4), shift), np.array([[2]], np.int32)
    np.testing.assert_allclose(forward(logits, targets, 4), math.log(4), rtol=1e-15)


def test_nan_and_infinity_stay_visible():
    targets = np.array([[0]], np.int32)
    assert np.isnan(forward(np.array([[[0, np.nan]]]), targets, 2)).all()
    assert np.isnan(forward(np.array([[[0, np.inf]]]), targets, 2)).all()
    assert forward(np.array([[[-np.inf, 0]]]), targets, 2).tolist() == [[np.inf]]
    assert forward(np.array([[[0, -np.inf]]]), targets, 2).tolist() == [[0]]
