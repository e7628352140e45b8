"""The checks can fail: each is shown an error of the size that it is there to find."""

import numpy as np
import pytest

from .check import check_backward, close
from .tolerances import Tolerance

TOLERANCE = Tolerance(l2=1e-6, rtol=1e-5, atol=1e-6, reason="for the test")


def square(x):
    return x * x


def test_check_backward_accepts_a_derivative(rng):
    check_backward(square, lambda dout, x: [2 * x * dout], [rng.standard_normal((3, 4))], rng)


@pytest.mark.parametrize("factor", [0, -2, 2.001])
def test_check_backward_refuses_a_wrong_derivative(rng, factor):
    x = rng.standard_normal((30, 4)) + 10
    with pytest.raises(AssertionError, match=r"numeric .*, analytic"):
        check_backward(square, lambda dout, x: [factor * x * dout], [x], rng)


def test_check_backward_refuses_one_wrong_element(rng):
    def backward(dout, x):
        dx = 2 * x * dout
        dx[3, 1] += 0.1
        return [dx]

    with pytest.raises(AssertionError, match=r"numeric .*, analytic"):
        check_backward(square, backward, [rng.standard_normal((30, 4)) + 10], rng)


def test_check_backward_refuses_a_gradient_in_another_order(rng):
    def backward(dout, a, b):
        return [dout * a, dout * b]  # exchanged

    with pytest.raises(AssertionError, match=r"numeric .*, analytic"):
        check_backward(np.multiply, backward, list(rng.standard_normal((2, 5, 5)) + 10), rng)


def test_check_backward_refuses_float32(rng):
    x = rng.standard_normal((3, 4))
    with pytest.raises(AssertionError, match="forward computes in float32"):
        check_backward(lambda x: x.astype(np.float32), lambda dout, x: [dout], [x], rng)
    with pytest.raises(AssertionError, match="backward doesn't compute in float64"):
        check_backward(square, lambda dout, x: [(2 * x * dout).astype(np.float32)], [x], rng)


def test_close_accepts(rng):
    want = rng.standard_normal((5, 6))
    want[0, :3] = np.nan, np.inf, -np.inf
    close(want.astype(np.float32), want, TOLERANCE)
    close(np.empty((0, 3)), np.empty((0, 3)), TOLERANCE)


def test_close_refuses_one_element(rng):
    want = rng.standard_normal(10_000)
    got = want.copy()
    got[17] += 5e-5
    with pytest.raises(AssertionError, match=r"x: .*, expected .* \(for the test\)"):
        close(got, want, TOLERANCE, "x")


def test_close_refuses_many_small_differences():
    want = np.full(10_000, 1.0)
    with pytest.raises(AssertionError, match="x: L2 norm of the difference"):
        close(want * (1 + 3e-6), want, TOLERANCE, "x")


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_close_refuses_nan_and_infinity(wrong):
    with pytest.raises(AssertionError, match="x: not finite"):
        close(np.array([1.0, wrong]), np.array([1.0, 2.0]), TOLERANCE, "x")


@pytest.mark.parametrize("want", [np.nan, np.inf])
def test_close_refuses_a_number_for_nan_and_infinity(want):
    for got in (0.0, -np.inf):
        with pytest.raises(AssertionError, match="x: where NaN or infinity is expected"):
            close(np.array([1.0, got]), np.array([1.0, want]), TOLERANCE, "x")


def test_close_refuses_another_shape():
    with pytest.raises(AssertionError, match=r"x: shape \(1,\), expected \(2,\)"):
        close(np.ones(1), np.ones(2), TOLERANCE, "x")
