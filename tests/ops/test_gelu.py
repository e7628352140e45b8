"""GELU: the formula as GPT-2 writes it, and its tails."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from llmpy.ops import gelu_backward, gelu_forward

from ..check import check_backward


def forward(inp):
    out = np.full_like(inp, np.nan)
    gelu_forward(out, inp)
    return out


def backward(dout, inp):
    dinp = np.zeros_like(inp)
    gelu_backward(dinp, inp, dout)
    return [dinp]


def values(*x, dtype=np.float64):
    return np.array(x, dtype).reshape(1, 1, -1)


def test_derivative(rng):
    check_backward(forward, backward, [rng.standard_normal((2, 3, 50)) * 3], rng)


def exactly(x):
    """Give gelu and its derivative with 60 digits, by the textbook formula."""
    with localcontext() as context:
        context.prec = 400  # 1 + tanh(u) cancels: far more digits than are left
        x = Decimal(float(x))
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        scale, cubic = (2 / pi).sqrt(), Decimal("0.044715")
        e = (2 * scale * (x + cubic * x**3)).exp()
        tanh = (e - 1) / (e + 1)
        du = scale * (1 + 3 * cubic * x * x)
        return x * (1 + tanh) / 2, (1 + tanh) / 2 + x * (1 - tanh * tanh) * du / 2


def test_by_hand():
    # u = 0.7978845608 * 1.044715 = 0.8335619...; tanh(u) = 0.6823838
    tanh = math.tanh(math.sqrt(2 / math.pi) * 1.044715)
    assert forward(values(0, 1)).ravel() == pytest.approx([0, (1 + tanh) / 2], rel=1e-15)
    assert forward(values(1))[0, 0, 0] == pytest.approx(0.841192, abs=1e-6)
    slope = (1 + tanh) / 2 + (1 - tanh**2) / 2 * math.sqrt(2 / math.pi) * 1.134145
    (dinp,) = backward(values(1, 10), values(0, 1))
    assert dinp.ravel() == pytest.approx([0.5, 10 * slope], rel=1e-14)
    dinp = values(100.0)
    gelu_backward(dinp, values(0.0), values(2.0))
    assert dinp.tolist() == [[[101]]]  # added to


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_tails_keep_their_digits(dtype, rtol, rng):
    inp = values(*rng.uniform(-9, 9, 40), -9, -5, 5, 9, dtype=dtype)
    want = [exactly(x) for x in inp.ravel()]
    np.testing.assert_allclose(forward(inp).ravel(), [float(y) for y, _ in want], rtol=rtol)
    (dinp,) = backward(np.ones_like(inp), inp)
    # near its zero at -0.75 the derivative is a difference: an absolute bound there
    np.testing.assert_allclose(
        dinp.ravel(), [float(d) for _, d in want], rtol=rtol, atol=rtol / 100
    )
    far = inp.ravel() < -3
    np.testing.assert_allclose(
        dinp.ravel()[far], [float(exactly(x)[1]) for x in inp.ravel()[far]], rtol=rtol * 3
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("x", [31, 1e3, 1e12, 1e19, 1e30, 3.4e38])
def test_finite_for_any_finite_input(x, dtype):
    inp = values(x, -x, dtype=dtype)
    assert forward(inp).ravel().tolist() == [float(inp[0, 0, 0]), 0]
    (dinp,) = backward(values(7, 7, dtype=dtype), inp)
    assert dinp.ravel().tolist() == [7, 0]


def test_nan_and_infinity_stay_visible():
    assert np.array_equal(forward(values(np.nan, np.inf)), values(np.nan, np.inf), equal_nan=True)
    assert np.isnan(backward(values(1, np.nan), values(np.nan, 1))[0]).all()
