"""Matmul: the linear layer, where most of the time goes.

    out[b,t,o] = sum over c of inp[b,t,c] * weight[o,c] + bias[o]

`weight` is (OC, C): a row for each output channel, as in llm.c and torch.nn.Linear. Backward:

    dinp  [b,t,c] = sum over o     of dout[b,t,o] * weight[o,c]
    dweight [o,c] = sum over (b,t) of dout[b,t,o] * inp[b,t,c]
    dbias     [o] = sum over (b,t) of dout[b,t,o]

With GELU behind it, as in the MLP of a block: pre = matmul(inp), out = gelu(pre). Its backward part
stands at the other end of GELU, in the matmul that reads `out`, whose dinp it never stores:

    dpre = (dout @ weight) * gelu'(pre)

It makes `out` again on the way, at next to no cost, since gelu' takes the same exponential. So of
the two `pre` alone need be kept.

With bf16=True both operands of each of the three products are rounded (bfloat16.py) just before
they are multiplied: r(inp) r(weight), r(dout) r(weight), r(dout) r(inp). Nothing else is: the sums,
bias, dbias and GELU are as without it.

Sources: llm.c, train_gpt2.c.
"""

import numpy as np

from ..bfloat16 import operands
from .contract import op
from .gelu import gelu_backward, gelu_forward


@op
def matmul_forward(out, inp, weight, bias, *, bf16=False):
    """Multiply each row of `inp` with `weight` transposed, and add `bias`.

    out     f (B, T, OC)     writes
    inp     f (B, T, C)      reads
    weight  f (OC, C)        reads
    bias    f (OC) optional  reads
    """
    r_inp, r_weight = operands(bf16, inp, weight)
    out[:] = r_inp @ r_weight.T
    if bias is not None:
        out += bias


@op
def matmul_backward(dinp, dweight, dbias, dout, inp, weight, *, accumulate, bf16=False):
    """Give the gradients of `inp`, `weight` and `bias`, given that of `out`.

    dinp     f (B, T, C)      writes
    dweight  f (OC, C)        accumulates
    dbias    f (OC) optional  accumulates
    dout     f (B, T, OC)     reads
    inp      f (B, T, C)      reads
    weight   f (OC, C)        reads
    """
    OC, C = weight.shape
    r_dout, r_inp, r_weight = operands(bf16, dout, inp, weight)
    dinp[:] = r_dout @ r_weight
    if not accumulate:
        dweight[:] = 0
    dweight += r_dout.reshape(-1, OC).T @ r_inp.reshape(-1, C)
    if dbias is not None:
        if not accumulate:
            dbias[:] = 0
        dbias += dout.sum((0, 1))


@op
def matmul_gelu_forward(out, pre, inp, weight, bias, *, bf16=False):
    """Multiply, then apply GELU: matmul_forward, then gelu_forward.

    out     f (B, T, OC)     writes  gelu(pre)
    pre     f (B, T, OC)     writes  inp @ weight.T + bias, kept for the backward pass
    inp     f (B, T, C)      reads
    weight  f (OC, C)        reads
    bias    f (OC) optional  reads
    """
    matmul_forward(pre, inp, weight, bias, bf16=bf16)
    gelu_forward(out, pre)


@op
def matmul_gelu_backward(dpre, dweight, dbias, dout, out, weight, pre, *, accumulate, bf16=False):
    """Go back through the matmul that reads GELU's output, and through GELU.

    gelu_forward, matmul_backward, then gelu_backward. The matmul reads `out` and has OC output
    channels.

    dpre     f (B, T, C)      writes  (dout @ weight) * gelu'(pre)
    dweight  f (OC, C)        accumulates
    dbias    f (OC) optional  accumulates
    dout     f (B, T, OC)     reads   gradient of the matmul's output
    out      f (B, T, C)      writes  gelu(pre), the matmul's input, made again
    weight   f (OC, C)        reads
    pre      f (B, T, C)      reads
    """
    gelu_forward(out, pre)
    dgelu = np.empty_like(dpre)  # gradient of `out`
    a = (dgelu, dweight, dbias, dout, out, weight)
    matmul_backward(*a, accumulate=accumulate, bf16=bf16)
    dpre[:] = 0
    gelu_backward(dpre, pre, dgelu)
