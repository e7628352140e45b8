"""Residual: add a layer's output to the stream that bypasses the layer.

    out = inp1 + inp2

Backward, an addition hands its gradient to both sides:

    dinp1 = dout
    dinp2 = dout

Sources: He et al. 2015, https://arxiv.org/abs/1512.03385; llm.c, train_gpt2.c.
"""

from .contract import op


@op
def residual_forward(out, inp1, inp2):
    """Add two activations.

    out   f (B, T, C)  writes
    inp1  f (B, T, C)  reads
    inp2  f (B, T, C)  reads
    """
    out[:] = inp1 + inp2


@op
def residual_backward(dinp1, dinp2, dout):
    """Add the gradient of `out` to those of both inputs.

    dinp1  f (B, T, C)  adds
    dinp2  f (B, T, C)  adds
    dout   f (B, T, C)  reads
    """
    dinp1 += dout
    dinp2 += dout
