"""The encoder: lookup and its gather."""

import numpy as np
import pytest

from llmpy.ops import encoder_backward, encoder_forward

from ..check import check_backward


def forward(wte, wpe, tokens):
    out = np.full((*tokens.shape, wte.shape[1]), np.nan)
    encoder_forward(out, tokens, wte, wpe)
    return out


def backward(dout, wte, wpe, tokens):
    dwte, dwpe = np.full_like(wte, np.nan), np.full_like(wpe, np.nan)
    encoder_backward(dwte, dwpe, dout, tokens, accumulate=False)
    return dwte, dwpe


@pytest.mark.parametrize(("B", "T", "maxT"), [(1, 1, 1), (3, 5, 7), (2, 7, 7)])
def test_derivative(B, T, maxT, rng):
    tokens = rng.integers(0, 11, (B, T), np.int32)
    check_backward(
        lambda wte, wpe: forward(wte, wpe, tokens),
        lambda dout, wte, wpe: backward(dout, wte, wpe, tokens),
        [rng.standard_normal((11, 4)), rng.standard_normal((maxT, 4))],
        rng,
    )


def test_by_hand():
    tokens = np.array([[1, 0], [1, 1]], np.int32)
    wte = np.array([[1.0, 2], [3, 4], [5, 6]])
    wpe = np.array([[10.0, 20], [30, 40], [50, 60]])
    out = forward(wte, wpe, tokens)
    assert out.tolist() == [[[13, 24], [31, 42]], [[13, 24], [33, 44]]]
    dout = np.array([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]])
    dwte, dwpe = backward(dout, wte, wpe, tokens)
    assert dwte.tolist() == [[3, 4], [1 + 5 + 7, 2 + 6 + 8], [0, 0]]
    assert dwpe.tolist() == [[1 + 5, 2 + 6], [3 + 7, 4 + 8], [0, 0]]
    encoder_backward(dwte, dwpe, dout, tokens, accumulate=True)
    assert dwte.tolist() == [[6, 8], [26, 32], [0, 0]]
    assert dwpe.tolist() == [[12, 16], [20, 24], [0, 0]]
