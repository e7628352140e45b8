"""The classifier's fused ops are the compositions that their docstrings name."""

import numpy as np
import pytest

from llmpy import ops
from llmpy.ops import classifier_forward, classifier_forward_backward, logits_forward

from ..check import check_backward

V, VP, C, B, T = 13, 16, 5, 2, 3


@pytest.fixture
def inputs(rng):
    """Give lnf, wte and targets."""
    targets = rng.integers(0, V, (B, T), np.int32)
    return rng.standard_normal((B, T, C)), rng.standard_normal((VP, C)), targets


def losses_of(lnf, wte, targets):
    losses = np.full(targets.shape, np.nan)
    classifier_forward(losses, lnf, wte, targets, V=V)
    return losses


def test_derivative(inputs, rng):
    lnf, wte, targets = inputs
    dloss = 0.3

    def backward(dout, lnf, wte):
        out, dlnf, dwte = (np.full_like(x, np.nan) for x in (losses_of(*inputs), lnf, wte))
        classifier_forward_backward(
            out, dlnf, dwte, lnf, wte, targets, V=V, dloss=dloss * dout[()], accumulate=False
        )
        return dlnf, dwte

    def forward(lnf, wte):
        return dloss * losses_of(lnf, wte, targets).sum()

    check_backward(forward, backward, [lnf, wte], rng)


def test_by_hand():
    # logits log(1), log(3): probabilities 1/4, 3/4
    lnf, wte = np.array([[[np.log(3.0)]]]), np.array([[0.0], [1], [7]])
    targets = np.array([[1]], np.int32)
    losses, dlnf, dwte = np.empty((1, 1)), np.empty((1, 1, 1)), np.full((3, 1), np.nan)
    scalars = {"V": 2, "dloss": 4.0}
    a = (losses, dlnf, dwte, lnf, wte, targets)
    classifier_forward_backward(*a, **scalars, accumulate=False)
    np.testing.assert_allclose(losses, np.log(4 / 3), rtol=1e-15)
    np.testing.assert_allclose(dlnf, -1, rtol=1e-15)  # dlogits are (1, -1)
    np.testing.assert_allclose(dwte, [[np.log(3)], [-np.log(3)], [0]], rtol=1e-15)
    classifier_forward_backward(*a, **scalars, accumulate=True)
    np.testing.assert_allclose(dwte, [[2 * np.log(3)], [-2 * np.log(3)], [0]], rtol=1e-15)
    logits = np.empty((1, 3))
    logits_forward(logits, lnf[0], wte)
    np.testing.assert_allclose(logits, [[0, np.log(3), 7 * np.log(3)]], rtol=1e-15)


def test_is_the_composition(inputs):
    lnf, wte, targets = inputs
    logits, probs, dlogits = np.zeros((3, B, T, VP))
    losses, dlosses = np.empty((B, T)), np.full((B, T), 0.3)
    ops.matmul_forward(logits, lnf, wte, None)
    ops.crossentropy_forward(losses, logits, targets, V=V)
    ops.softmax_forward(probs, logits, V=V)
    ops.crossentropy_softmax_backward(dlogits, dlosses, probs, targets, V=V)
    dlnf, dwte = np.empty_like(lnf), np.empty_like(wte)
    ops.matmul_backward(dlnf, dwte, None, dlogits, lnf, wte, accumulate=False)
    got = np.full((B, T), np.nan), np.full_like(lnf, np.nan), np.full_like(wte, np.nan)
    classifier_forward_backward(*got, lnf, wte, targets, V=V, dloss=0.3, accumulate=False)
    for a, b in zip(got, (losses, dlnf, dwte), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(losses_of(lnf, wte, targets), losses, rtol=1e-12)
    flat = np.empty((B * T, VP))
    logits_forward(flat, lnf.reshape(-1, C), wte)
    np.testing.assert_allclose(flat, logits.reshape(-1, VP), rtol=1e-12, atol=1e-14)


def test_padded_rows_take_no_part(inputs):
    lnf, wte, targets = inputs
    want = losses_of(lnf, wte, targets)
    wte[V:] = np.nan
    got = np.empty((B, T)), np.empty_like(lnf), np.full_like(wte, np.nan)
    classifier_forward_backward(*got, lnf, wte, targets, V=V, dloss=1.0, accumulate=False)
    assert np.array_equal(got[0], want)
    assert np.isfinite(got[1]).all()
    assert not got[2][V:].any()
