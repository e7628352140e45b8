"""exp and GELU in float32 against float64, to both ends."""

import numpy as np
import pytest

from llmpy.cpu import vector_math

from .entry import entry

ONE, ZERO = np.float32(1), np.float32(0)


exp_of, exp_row = entry(vector_math.exp), entry(vector_math.exp_row)
gelu_row, gelu_both_rows = entry(vector_math.gelu_row), entry(vector_math.gelu_both_rows)


def ulps(got, want):
    """Give the differences in units of the last place of a float32 of the size of `want`."""
    return np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))


def test_exp_is_within_two_ulp(rng):
    x = rng.uniform(-87.3, 88.7, 200_000).astype(np.float32)
    got = x.copy()
    exp_row(got, ONE, ZERO)
    assert ulps(got, np.exp(x.astype(float))).max() <= 2


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (-np.inf, 0.0),
        (-1e30, 0.0),
        (-104.5, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (88.73, np.inf),
        (1e30, np.inf),
        (np.inf, np.inf),
        (np.nan, np.nan),
    ],
)
def test_exp_at_the_ends(x, want):
    got = exp_of(np.float32(x))
    assert got == want or (np.isnan(got) and np.isnan(want))


def test_exp_goes_down_to_subnormals():
    got = exp_of(np.float32(-100.0))
    assert got == pytest.approx(np.exp(-100.0), abs=2e-45)
    assert got > 0


def test_exp_row_gives_the_sum(rng):
    x = rng.standard_normal(1003).astype(np.float32)
    row = x.copy()
    total = exp_row(row, np.float32(0.5), np.float32(1))
    want = np.exp(0.5 * x.astype(float) - 1)
    np.testing.assert_allclose(row, want, rtol=3e-7)
    assert total == pytest.approx(want.sum(), rel=1e-6)


def gelu64(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(u))


def test_gelu(rng):
    x = (rng.standard_normal(100_000) * 3).astype(np.float32)
    out = np.empty_like(x)
    gelu_row(out, x)
    np.testing.assert_allclose(out, gelu64(x.astype(float)), rtol=1e-6, atol=1e-7)


def test_derivative_of_gelu(rng):
    x = (rng.standard_normal(100_000) * 3).astype(np.float32)
    got, out, alone = np.ones_like(x), np.empty_like(x), np.empty_like(x)
    gelu_both_rows(got, out, x)
    gelu_row(alone, x)
    np.testing.assert_array_equal(out, alone)
    h = 1e-5
    want = (gelu64(x.astype(float) + h) - gelu64(x.astype(float) - h)) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-7)


@pytest.mark.parametrize("x", [11.0, 1e4, 1e13, 1e20, 3e38])
def test_gelu_in_the_tails(x):
    inp = np.array([x, -x], np.float32)
    out, again, derivative = (
        np.empty(2, np.float32),
        np.empty(2, np.float32),
        np.ones(2, np.float32),
    )
    gelu_row(out, inp)
    gelu_both_rows(derivative, again, inp)
    assert out.tolist() == again.tolist() == [inp[0], 0]
    assert derivative[0] == 1
    assert abs(derivative[1]) < 1e-30


def test_nan_goes_through():
    nan = np.full(3, np.nan, np.float32)
    out = np.zeros(3, np.float32)
    gelu_row(out, nan)
    assert np.isnan(out).all()
    out[:] = 0
    derivative = np.ones(3, np.float32)
    gelu_both_rows(derivative, out, nan)
    assert np.isnan(out).all()
    assert np.isnan(derivative).all()
    out[:] = [0, np.nan, 0]
    assert np.isnan(exp_row(out, ONE, ZERO))
