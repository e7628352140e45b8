"""The residual addition."""

import numpy as np

from llmpy.ops import residual_backward, residual_forward

from ..check import check_backward


def forward(inp1, inp2):
    out = np.full_like(inp1, np.nan)
    residual_forward(out, inp1, inp2)
    return out


def backward(dout, inp1, inp2):
    dinp1, dinp2 = np.zeros_like(inp1), np.zeros_like(inp2)
    residual_backward(dinp1, dinp2, dout)
    return dinp1, dinp2


def test_derivative(rng):
    check_backward(forward, backward, list(rng.standard_normal((2, 2, 3, 5))), rng)


def test_by_hand():
    assert forward(np.array([[[1.0, 2]]]), np.array([[[10.0, 20]]])).tolist() == [[[11, 22]]]
    dinp1, dinp2 = np.array([[[1.0, 2]]]), np.array([[[5.0, 6]]])
    residual_backward(dinp1, dinp2, np.array([[[100.0, 200]]]))
    assert dinp1.tolist() == [[[101, 202]]]
    assert dinp2.tolist() == [[[105, 206]]]
