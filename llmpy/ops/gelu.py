"""GELU, in the tanh form that GPT-2 was trained with.

    out = inp * (1 + tanh(u)) / 2      with u = sqrt(2/pi) * (inp + 0.044715 * inp^3)
        = inp * s                      with s = 1 / (1 + exp(-2u)), the logistic function of 2u

Backward, since ds/du = 2 * s * (1 - s):

    dinp = dout * (s + inp * 2 * s * (1 - s) * du)
    du   = sqrt(2/pi) * (1 + 3 * 0.044715 * inp^2)

The second form is what is computed. 1 + tanh(u) cancels to 0 from u = -9 on in float32, where the
logistic function keeps all its digits. In u and du the input is clamped to CLAMP, beyond which s is
exactly 0 or 1 in float64: no finite input, not even 1e30, makes an infinite cube or 0 * inf.

Sources: Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415; llm.c, train_gpt2.c.
"""

import math

import numpy as np

from .contract import op

SCALE = math.sqrt(2 / math.pi)
CUBIC = 0.044715  # same as llm.c and GPT-2
CLAMP = 30.0  # exp(-2u) is exp(-1973) there: 0 in any dtype


def _logistic(x):
    """Give s, s * (1 - s) and the clamped input."""
    x = np.clip(x, -CLAMP, CLAMP)  # NaN stays NaN
    u = SCALE * (x + CUBIC * x * x * x)
    e = np.exp(-2 * np.abs(u))  # at most 1: can't overflow
    s = np.where(u >= 0, 1, e) / (1 + e)
    return s, e / ((1 + e) * (1 + e)), x


@op
def gelu_forward(out, inp):
    """Apply GELU to each element.

    out  f (B, T, C)  writes
    inp  f (B, T, C)  reads
    """
    s, _, _ = _logistic(inp)
    out[:] = inp * s


@op
def gelu_backward(dinp, inp, dout):
    """Add the gradient of `inp`, given that of `out`.

    dinp  f (B, T, C)  adds
    inp   f (B, T, C)  reads
    dout  f (B, T, C)  reads
    """
    s, ds, x = _logistic(inp)
    du = SCALE * (1 + 3 * CUBIC * x * x)
    dinp += dout * (s + x * 2 * ds * du)  # forward was: out = inp * s(u(inp))
