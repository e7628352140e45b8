"""AdamW, by hand and against the C program's loop."""

import math

import numpy as np

from llmpy.ops import adamw

SETTINGS = {
    "lr": 0.1,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.01,
    "max_norm": 0.0,
}


def test_by_hand():
    # g is 1, m 0.1, v 0.001, and both corrected 1: the step is lr * (1 + 0.01 * 10)
    params, grads, m, v = np.array([10.0]), np.array([2.0]), np.zeros(1), np.zeros(1)
    adamw(params, grads, m, v, None, **SETTINGS, decay=None, step=1, grad_scale=0.5)
    np.testing.assert_allclose(params, 10 - 0.1 * 1.1, rtol=1e-9)
    np.testing.assert_allclose([m[0], v[0]], [0.1, 0.001], rtol=1e-14)
    assert grads.tolist() == [2]
    # again with g = 0: m 0.09, v 0.000999; corrections 0.19 and 0.001999
    grads[:] = 0
    params[:] = 0
    adamw(params, grads, m, v, None, **SETTINGS, decay=None, step=2, grad_scale=1.0)
    want = -0.1 * (0.09 / 0.19) / (math.sqrt(0.000999 / 0.001999) + 1e-8)
    np.testing.assert_allclose(params, want, rtol=1e-13)


def test_equals_the_loop_of_the_c_program(rng):
    """Several steps, every number a Python float."""
    N = 17
    params, m, v = rng.standard_normal(N), np.zeros(N), np.zeros(N)
    loop = [(float(p), 0.0, 0.0) for p in params]
    for step in range(1, 6):
        grads = rng.standard_normal(N)
        adamw(params, grads, m, v, None, **SETTINGS, decay=None, step=step, grad_scale=1.0)
        for i, (p, mi, vi) in enumerate(loop):
            g = float(grads[i])
            mi, vi = 0.9 * mi + (1 - 0.9) * g, 0.999 * vi + (1 - 0.999) * g * g
            m_hat, v_hat = mi / (1 - 0.9**step), vi / (1 - 0.999**step)
            p -= 0.1 * (m_hat / (math.sqrt(v_hat) + 1e-8) + 0.01 * p)
            loop[i] = p, mi, vi
        np.testing.assert_allclose(np.stack([params, m, v], 1), loop, rtol=1e-12, atol=1e-15)


def test_decay_is_decoupled_and_by_range():
    """Without a gradient only the ranges shrink, each by lr * weight_decay of what it was."""
    params = np.full(6, 8.0)
    zeros = np.zeros((3, 6))
    scalars = {**SETTINGS, "step": 1, "grad_scale": 1.0}
    adamw(params, *zeros, None, **scalars, decay=((0, 1), (2, 4)))
    less = 8 * (1 - 0.1 * 0.01)
    np.testing.assert_allclose(params, [less, 8, less, less, 8, 8], rtol=1e-15)
    assert (params[[1, 4, 5]] == 8).all()
    params[:] = 8
    adamw(params, *zeros, None, **scalars, decay=())
    assert (params == 8).all()
    adamw(params, *zeros, None, **scalars, decay=None)
    np.testing.assert_allclose(params, less, rtol=1e-15)


def test_late_steps_and_no_gradient_are_finite():
    params, grads, m, v = np.zeros((4, 3), np.float32)
    adamw(params, grads, m, v, None, **SETTINGS, decay=None, step=10**7, grad_scale=1.0)
    assert not params.any()


def test_nan_stays_visible():
    params, grads, m, v = np.zeros((4, 3))
    grads[1] = np.nan
    adamw(params, grads, m, v, None, **SETTINGS, decay=None, step=1, grad_scale=1.0)
    assert np.isnan(params).tolist() == [False, True, False]


def test_the_outcome_clips(rng):
    """Where the norm is larger, as if the gradients were scaled; NaN or infinity: not at all."""
    start, scalars = rng.standard_normal((4, 5)), {**SETTINGS, "decay": None, "step": 3}
    start[3] **= 2
    for outcome, max_norm, scale in (
        ([3, 8], 2, 0.25), ([3, 8], 9, 1), ([3, 8], 8, 1), ([3, 8], 0, 1), ([np.nan, 8], 2, None),
        ([3, np.inf], 2, None), ([-np.inf, 8], 0, None), ([3, np.nan], 0, None),
    ):  # fmt: skip
        got, want = start.copy(), start.copy()
        limit = {"grad_scale": 0.5, "max_norm": max_norm}
        adamw(*got, np.array(outcome, float), **{**scalars, **limit})
        if scale is not None:
            adamw(*want, None, **{**scalars, "grad_scale": 0.5 * scale})
        np.testing.assert_allclose(got, want, rtol=1e-15, err_msg=str(outcome))
