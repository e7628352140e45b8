"""The linear layer, alone and with GELU behind it."""

import numpy as np
import pytest

from llmpy.ops import (
    gelu_backward,
    gelu_forward,
    matmul_backward,
    matmul_forward,
    matmul_gelu_backward,
    matmul_gelu_forward,
)

from ..check import check_backward


def forward(inp, weight, bias):
    out = np.full((*inp.shape[:2], len(weight)), np.nan)
    matmul_forward(out, inp, weight, bias)
    return out


def backward(dout, inp, weight, bias, accumulate=False):
    dinp, dweight = np.full_like(inp, np.nan), np.full_like(weight, np.nan)
    dbias = None if bias is None else np.full_like(bias, np.nan)
    matmul_backward(dinp, dweight, dbias, dout, inp, weight, accumulate=accumulate)
    return dinp, dweight, dbias


@pytest.mark.parametrize(("B", "T", "C", "OC"), [(1, 1, 1, 1), (2, 3, 5, 7)])
def test_derivative(B, T, C, OC, rng):
    inp, weight = rng.standard_normal((B, T, C)), rng.standard_normal((OC, C))
    check_backward(forward, backward, [inp, weight, rng.standard_normal(OC)], rng)
    check_backward(
        lambda inp, weight: forward(inp, weight, None),
        lambda dout, inp, weight: backward(dout, inp, weight, None)[:2],
        [inp, weight],
        rng,
    )


def test_by_hand():
    inp = np.array([[[1.0, 2]], [[3, 4]]])
    weight = np.array([[10.0, 1], [0, 2], [5, 5]])
    bias = np.array([100.0, 200, 300])
    assert forward(inp, weight, bias).tolist() == [[[112, 204, 315]], [[134, 208, 335]]]
    assert forward(inp, weight, None).tolist() == [[[12, 4, 15]], [[34, 8, 35]]]
    dout = np.array([[[1.0, 0, 2]], [[0, 3, 0]]])
    dinp, dweight, dbias = backward(dout, inp, weight, bias)
    assert dinp.tolist() == [[[10 + 10, 1 + 10]], [[0, 6]]]
    assert dweight.tolist() == [[1, 2], [9, 12], [2, 4]]
    assert dbias.tolist() == [1, 3, 2]


def test_accumulates(rng):
    inp, weight = rng.standard_normal((2, 3, 5)), rng.standard_normal((7, 5))
    dout = rng.standard_normal((2, 3, 7))
    dinp, dweight, dbias = backward(dout, inp, weight, np.ones(7))
    sums = np.ones((2, 3, 5)), np.ones((7, 5)), np.ones(7)
    matmul_backward(*sums, dout, inp, weight, accumulate=True)
    for got, want in zip(sums, (dinp, 1 + dweight, 1 + dbias), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def gelu_layer(inp, weight, bias):
    """Give gelu(pre) and pre by the fused op."""
    out, pre = np.full((2, *inp.shape[:2], len(weight)), np.nan)
    matmul_gelu_forward(out, pre, inp, weight, bias)
    return out, pre


def test_matmul_gelu_forward_is_the_composition(rng):
    inp, weight, bias = (rng.standard_normal(s) for s in ((2, 3, 5), (7, 5), 7))
    for b in (bias, None):
        out, pre = gelu_layer(inp, weight, b)
        assert np.array_equal(pre, forward(inp, weight, b))
        want = np.empty_like(out)
        gelu_forward(want, pre)
        assert np.array_equal(out, want)


def test_matmul_gelu_backward_is_the_composition(rng):
    pre, weight, dout = (rng.standard_normal(s) for s in ((2, 3, 5), (7, 5), (2, 3, 7)))
    got = np.full_like(pre, np.nan), np.full((7, 5), np.nan), np.full(7, np.nan)
    again = np.full_like(pre, np.nan)
    matmul_gelu_backward(*got, dout, again, weight, pre, accumulate=False)
    out = np.empty_like(pre)
    gelu_forward(out, pre)
    dgelu, dweight, dbias = backward(dout, out, weight, np.ones(7))
    dpre = np.zeros_like(pre)
    gelu_backward(dpre, pre, dgelu)
    for a, b in zip((*got, again), (dpre, dweight, dbias, out), strict=True):
        assert np.array_equal(a, b)


def test_derivative_of_an_mlp(rng):
    """Two layers with GELU between, by the fused ops only."""
    fcw, fcb, projw, projb = (rng.standard_normal(s) for s in ((8, 3), 8, (3, 8), 3))

    def mlp(inp, fcw, fcb, projw, projb):
        out, _ = gelu_layer(inp, fcw, fcb)
        return forward(out, projw, projb)

    def mlp_backward(dout, inp, fcw, fcb, projw, projb):
        _, pre = gelu_layer(inp, fcw, fcb)
        dpre, dprojw, dprojb, out = (np.full_like(x, np.nan) for x in (pre, projw, projb, pre))
        matmul_gelu_backward(dpre, dprojw, dprojb, dout, out, projw, pre, accumulate=False)
        return *backward(dpre, inp, fcw, fcb), dprojw, dprojb

    inp = rng.standard_normal((2, 5, 3))
    check_backward(mlp, mlp_backward, [inp, fcw, fcb, projw, projb], rng)
