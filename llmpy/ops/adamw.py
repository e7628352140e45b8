"""AdamW: step along the mean of the gradients, in units of their root mean square.

    g = grad_scale * grads
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    m_hat = m / (1 - beta1^step)      the means start at 0: this takes the bias out
    v_hat = v / (1 - beta2^step)
    params -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * params)

The decay is decoupled from the gradient (the W), uses the parameter before the step, and applies to
the ranges in `decay` only.

Given the outcome of the step, it clips: where norm > max_norm > 0, the gradients are scaled besides
by max_norm / norm. And nothing changes at all where loss or norm is not finite.

Sources: Loshchilov and Hutter 2017, https://arxiv.org/abs/1711.05101; llm.c, train_gpt2.c.
"""

import numpy as np

from .contract import op


@op
def adamw(
    params, grads, m, v, outcome,
    *, lr, beta1, beta2, eps, weight_decay, decay, step, grad_scale, max_norm,
):  # fmt: skip
    """Update all parameters, in place.

    `decay` is a tuple of ranges (start, stop) of elements that decay, in any order, or None for
    all; an element of two ranges decays once. `step` counts from 1.

    params   f (N)           updates
    grads    f (N)           reads
    m        f (N)           updates  mean of the gradients
    v        f (N)           updates  mean of their squares
    outcome  f (2) optional  reads    loss and norm of the step: to clip, and to leave it out
    """
    if outcome is not None:
        grad_scale = scale_of(outcome, grad_scale, max_norm)
        if grad_scale is None:
            return
    g = grads * grad_scale
    m[:] = beta1 * m + (1 - beta1) * g
    v[:] = beta2 * v + (1 - beta2) * g * g
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    decays = np.zeros(len(params), bool)
    for start, stop in ((0, len(params)),) if decay is None else decay:
        decays[start:stop] = True
    params -= lr * (m_hat / (np.sqrt(v_hat) + eps) + np.where(decays, weight_decay * params, 0))


def scale_of(outcome, grad_scale, max_norm):
    """Give what the gradients are multiplied with; None where the step is left out."""
    loss, norm = outcome
    if not (np.isfinite(loss) and np.isfinite(norm)):
        return None
    return grad_scale * float(max_norm / norm) if norm > max_norm > 0 else grad_scale
