"""Attention, against loops, and where softmax has its traps."""

import math

import numpy as np
import pytest

from llmpy.ops import attention_backward, attention_forward, attention_scores

from ..check import check_backward


def forward(qkv, NH):
    B, T, C3 = qkv.shape
    out, lse = np.full((B, T, C3 // 3), np.nan, qkv.dtype), np.full((B, NH, T), np.nan, qkv.dtype)
    attention_forward(out, lse, qkv, NH=NH)
    return out, lse


def backward(dout, qkv, NH):
    dqkv = np.full_like(qkv, np.nan)
    attention_backward(dqkv, dout, *forward(qkv, NH), qkv, NH=NH)
    return dqkv


def loops(qkv, NH):
    """Give preatt, att, out and lse, one number at a time, without taking a maximum out."""
    B, T, C3 = qkv.shape
    C = C3 // 3
    HS = C // NH
    preatt, att = np.zeros((2, B, NH, T, T))
    out, lse = np.zeros((B, T, C)), np.zeros((B, NH, T))
    for b, h, t in np.ndindex(B, NH, T):
        for t2 in range(t + 1):
            for i in range(h * HS, (h + 1) * HS):
                preatt[b, h, t, t2] += qkv[b, t, i] * qkv[b, t2, C + i] / math.sqrt(HS)
        total = sum(math.exp(preatt[b, h, t, t2]) for t2 in range(t + 1))
        lse[b, h, t] = math.log(total)
        for t2 in range(t + 1):
            att[b, h, t, t2] = math.exp(preatt[b, h, t, t2]) / total
            for i in range(h * HS, (h + 1) * HS):
                out[b, t, i] += att[b, h, t, t2] * qkv[b, t2, 2 * C + i]
    return preatt, att, out, lse


SIZES = [(1, 1, 1, 1), (2, 1, 2, 3), (1, 2, 1, 4), (2, 5, 3, 2), (1, 7, 1, 1)]


@pytest.mark.parametrize(("B", "T", "NH", "HS"), SIZES)
def test_derivative(B, T, NH, HS, rng):
    check_backward(
        lambda qkv: forward(qkv, NH)[0],
        lambda dout, qkv: [backward(dout, qkv, NH)],
        [rng.standard_normal((B, T, 3 * NH * HS))],
        rng,
    )


@pytest.mark.parametrize(("B", "T", "NH", "HS"), SIZES)
def test_equals_loops(B, T, NH, HS, rng):
    qkv = rng.standard_normal((B, T, 3 * NH * HS))
    preatt, att = np.full((2, B, NH, T, T), np.nan)
    attention_scores(preatt, att, qkv, NH=NH)
    got = preatt, att, *forward(qkv, NH)
    for a, b in zip(got, loops(qkv, NH), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_by_hand():
    log3 = math.log(3)
    # one head of one channel; at t=1 the scores are 2 * 0 and 2 * log3 / 2
    qkv = np.array([[[1, 0, 4], [2, log3 / 2, 8]]])
    out, lse = forward(qkv, 1)
    np.testing.assert_allclose(out, [[[4], [0.25 * 4 + 0.75 * 8]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[[0, math.log(4)]]], rtol=1e-15, atol=1e-16)
    # dout (0, 1): datt (4, 8), out 7, dpreatt (0.25 * -3, 0.75 * 1)
    dqkv = backward(np.array([[[0.0], [1]]]), qkv, 1)
    want = [[[0, 2 * -0.75, 0.25], [0.75 * log3 / 2, 2 * 0.75, 0.75]]]
    np.testing.assert_allclose(dqkv, want, rtol=1e-14)


def test_a_single_token_sees_itself(rng):
    qkv = rng.standard_normal((2, 1, 12)) * 1000
    out, _ = forward(qkv, 2)
    assert np.array_equal(out, qkv[..., 8:])
    dqkv = backward(np.ones((2, 1, 4)), qkv, 2)
    assert not dqkv[..., :8].any()
    assert (dqkv[..., 8:] == 1).all()


@pytest.mark.parametrize("score", [-1e6, 1e6])
def test_huge_scores(score):
    """Any finite stand-in for minus infinity lets masked positions in, or drops all of them."""
    qkv = np.array([[[1.0, score, 2], [1, score, 4], [1, -abs(score), 100]]])
    out, lse = forward(qkv, 1)
    if score > 0:
        np.testing.assert_allclose(out.ravel(), [2, 3, 3], rtol=1e-15)
        np.testing.assert_allclose(lse.ravel(), score + np.log([1, 2, 2]), rtol=1e-15)
    else:
        np.testing.assert_allclose(out.ravel(), [2, 3, 106 / 3], rtol=1e-15)
    dqkv = backward(np.ones((1, 3, 1)), qkv, 1)
    assert np.isfinite(dqkv).all()


def test_later_positions_have_no_influence(rng):
    qkv = rng.standard_normal((1, 6, 12))
    out, _ = forward(qkv, 2)
    qkv[:, 4:] = 1e6
    changed, _ = forward(qkv, 2)
    np.testing.assert_allclose(changed[:, :4], out[:, :4], rtol=1e-12)
    dout = np.zeros((1, 6, 4))
    dout[:, 2] = 1
    assert not backward(dout, qkv, 2)[:, 3:].any()


def test_float64_throughout(rng):
    """A float32 constant would show in the last digits."""
    qkv = rng.standard_normal((1, 5, 9))
    preatt, att = np.empty((2, 1, 1, 5, 5))
    attention_scores(preatt, att, qkv, NH=1)
    np.testing.assert_allclose(att.sum(-1), 1, rtol=1e-15)
    np.testing.assert_allclose(preatt[0, 0, 3, 1], qkv[0, 3, :3] @ qkv[0, 1, 3:6] / 3**0.5)
