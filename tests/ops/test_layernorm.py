"""LayerNorm, alone and after a residual addition."""

import numpy as np
import pytest

from llmpy.ops import (
    layernorm_backward,
    layernorm_forward,
    residual_forward,
    residual_layernorm_forward,
)

from ..check import check_backward

R = 1.00001**-0.5  # rstd where the variance is 1


def forward(inp, weight, bias):
    out, mean, rstd = (np.full(s, np.nan) for s in (inp.shape, inp.shape[:2], inp.shape[:2]))
    layernorm_forward(out, mean, rstd, inp, weight, bias)
    return out, mean, rstd


def backward(dout, inp, weight, bias):
    _, mean, rstd = forward(inp, weight, bias)
    dinp, dweight = np.zeros_like(inp), np.full_like(weight, np.nan)
    dbias = None if bias is None else np.full_like(bias, np.nan)
    layernorm_backward(dinp, dweight, dbias, dout, inp, weight, mean, rstd, accumulate=False)
    return dinp, dweight, dbias


@pytest.mark.parametrize("C", [1, 2, 3, 17])
def test_derivative(C, rng):
    inputs = [rng.standard_normal((2, 3, C)), rng.standard_normal(C), rng.standard_normal(C)]
    inputs[0][..., ::2] += 4  # far from zero variance, where the derivative is steep
    check_backward(lambda *a: forward(*a)[0], backward, inputs, rng)
    check_backward(
        lambda inp, weight: forward(inp, weight, None)[0],
        lambda dout, inp, weight: backward(dout, inp, weight, None)[:2],
        inputs[:2],
        rng,
    )


def test_by_hand():
    inp = np.array([[[1.0, 3]]])  # mean 2, variance 1
    out, mean, rstd = forward(inp, np.array([10.0, 100]), np.array([0.5, 0.25]))
    np.testing.assert_allclose(out, [[[-10 * R + 0.5, 100 * R + 0.25]]], rtol=1e-15)
    assert mean.tolist() == [[2]]
    np.testing.assert_allclose(rstd, [[R]], rtol=1e-15)
    # norm is (-R, R); dnorm is (10, 0), its mean 5, that of dnorm * norm -5R
    dinp, dweight, dbias = backward(np.array([[[1.0, 0]]]), inp, np.array([10.0, 100]), np.ones(2))
    want = [[[(10 - 5 - 5 * R * R) * R, (0 - 5 + 5 * R * R) * R]]]
    np.testing.assert_allclose(dinp, want, rtol=1e-9)
    np.testing.assert_allclose(dweight, [-R, 0], rtol=1e-15)
    assert dbias.tolist() == [1, 0]


def test_adds_and_accumulates(rng):
    inp, dout = rng.standard_normal((2, 2, 3, 5))
    weight = rng.standard_normal(5)
    _, mean, rstd = forward(inp, weight, None)
    dinp, dweight, dbias = backward(dout, inp, weight, np.ones(5))
    sums = np.ones((2, 3, 5)), np.ones(5), np.ones(5)
    layernorm_backward(*sums, dout, inp, weight, mean, rstd, accumulate=True)
    for got, alone in zip(sums, (dinp, dweight, dbias), strict=True):
        np.testing.assert_allclose(got, 1 + alone, rtol=1e-14)
    layernorm_backward(*sums, dout, inp, weight, mean, rstd, accumulate=False)
    np.testing.assert_allclose(sums[0], 1 + 2 * dinp, rtol=1e-14)
    np.testing.assert_allclose(sums[1], dweight, rtol=1e-14)
    np.testing.assert_allclose(sums[2], dbias, rtol=1e-14)


def test_large_mean(rng):
    """E[x^2] - E[x]^2 would have no digit left here, even in float64."""
    inp = rng.standard_normal((1, 4, 50))
    want, _, rstd = forward(inp, np.ones(50), None)
    out, mean, rstd2 = forward(inp + 1e9, np.ones(50), None)
    np.testing.assert_allclose(out, want, atol=1e-5)
    np.testing.assert_allclose(rstd2, rstd, rtol=1e-6)
    np.testing.assert_allclose(mean, 1e9, rtol=1e-9)


def test_zero_variance():
    out, mean, rstd = forward(np.full((1, 1, 4), 7.0), np.full(4, 3.0), np.full(4, 0.5))
    assert out.tolist() == [[[0.5] * 4]]
    assert mean.tolist() == [[7]]
    np.testing.assert_allclose(rstd, [[1e-5**-0.5]], rtol=1e-15)


def test_residual_layernorm_is_the_composition(rng):
    inp1, inp2 = rng.standard_normal((2, 2, 3, 5))
    weight, bias = rng.standard_normal((2, 5))
    residual = np.full_like(inp1, np.nan)
    got = np.full_like(inp1, np.nan), np.full((2, 3), np.nan), np.full((2, 3), np.nan)
    residual_layernorm_forward(residual, *got, inp1, inp2, weight, bias)
    total = np.empty_like(inp1)
    residual_forward(total, inp1, inp2)
    assert np.array_equal(residual, total)
    for a, b in zip(got, forward(total, weight, bias), strict=True):
        assert np.array_equal(a, b)
