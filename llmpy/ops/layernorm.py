"""LayerNorm: normalize the C activations of each position, then scale and shift them.

    norm[b,t,c] = (inp[b,t,c] - mean[b,t]) * rstd[b,t]
    out [b,t,c] = norm[b,t,c] * weight[c] + bias[c]

Backward, with dnorm = dout * weight and <x> the mean of x over C:

    dinp    = (dnorm - <dnorm> - norm * <dnorm * norm>) * rstd
    dweight = sum of dout * norm over (b,t)
    dbias   = sum of dout over (b,t)

The variance is the mean of (inp - mean)^2, in a second pass: E[x^2] - E[x]^2 loses all digits when
the mean is large.

Sources: Ba et al. 2016, https://arxiv.org/abs/1607.06450; llm.c, train_gpt2.c.
"""

from .contract import op
from .residual import residual_forward

EPS = 1e-5  # same as llm.c and torch.nn.LayerNorm


@op
def layernorm_forward(out, mean, rstd, inp, weight, bias):
    """Normalize each row of `inp`; keep `mean` and `rstd` for the backward pass.

    out     f (B, T, C)     writes  normalized, scaled, shifted
    mean    f (B, T)        writes  mean over C
    rstd    f (B, T)        writes  1 / sqrt(variance + EPS), without Bessel's correction
    inp     f (B, T, C)     reads
    weight  f (C)           reads   scale
    bias    f (C) optional  reads   shift
    """
    mean[:] = inp.mean(-1)
    rstd[:] = (inp.var(-1) + EPS) ** -0.5
    norm = (inp - mean[..., None]) * rstd[..., None]  # (B, T, C)
    out[:] = norm * weight
    if bias is not None:
        out += bias


@op
def layernorm_backward(dinp, dweight, dbias, dout, inp, weight, mean, rstd, *, accumulate):
    """Give the gradients of `inp`, `weight` and `bias`, given that of `out`.

    dinp     f (B, T, C)     adds   += because inp also feeds the residual stream
    dweight  f (C)           accumulates
    dbias    f (C) optional  accumulates
    dout     f (B, T, C)     reads
    inp      f (B, T, C)     reads
    weight   f (C)           reads
    mean     f (B, T)        reads  as the forward pass wrote it
    rstd     f (B, T)        reads
    """
    norm = (inp - mean[..., None]) * rstd[..., None]  # recomputed: cheaper than keeping (B, T, C)
    if not accumulate:
        dweight[:] = 0
    dweight += (dout * norm).sum((0, 1))
    if dbias is not None:
        if not accumulate:
            dbias[:] = 0
        dbias += dout.sum((0, 1))
    dnorm = dout * weight  # forward was: out = norm * weight + bias
    dnorm_mean = dnorm.mean(-1, keepdims=True)
    dnorm_norm_mean = (dnorm * norm).mean(-1, keepdims=True)
    dinp += (dnorm - dnorm_mean - norm * dnorm_norm_mean) * rstd[..., None]


@op
def residual_layernorm_forward(residual, out, mean, rstd, inp1, inp2, weight, bias):
    """Add to the residual stream, then normalize it: residual_forward, then layernorm_forward.

    residual  f (B, T, C)     writes  inp1 + inp2
    out       f (B, T, C)     writes  normalized, scaled, shifted
    mean      f (B, T)        writes  mean of residual over C
    rstd      f (B, T)        writes  as in layernorm_forward
    inp1      f (B, T, C)     reads
    inp2      f (B, T, C)     reads
    weight    f (C)           reads   scale
    bias      f (C) optional  reads   shift
    """
    residual_forward(residual, inp1, inp2)
    layernorm_forward(out, mean, rstd, residual, weight, bias)
