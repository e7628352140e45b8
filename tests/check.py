"""How a number is judged. test_check.py shows that these checks can fail."""

import numpy as np


def check_backward(forward, backward, inputs, rng, eps=1e-6, rtol=1e-6):
    """Check <dout, J v> == <J^T dout, v> for random v and dout, in float64.

    forward   inputs -> output
    backward  dout, inputs -> gradient of each input

    The idea is from HIPS autograd: one scalar checks a whole Jacobian.
    """
    v = [rng.standard_normal(x.shape) for x in inputs]
    plus = forward(*[x + eps * d for x, d in zip(inputs, v, strict=True)])
    minus = forward(*[x - eps * d for x, d in zip(inputs, v, strict=True)])
    assert plus.dtype == np.float64, f"forward computes in {plus.dtype}"
    dout = rng.standard_normal(plus.shape)
    numeric = np.sum(dout * (plus - minus)) / (2 * eps)
    grads = backward(dout, *inputs)
    assert all(g.dtype == np.float64 for g in grads), "backward doesn't compute in float64"
    analytic = sum(np.sum(g * d) for g, d in zip(grads, v, strict=True))
    message = f"numeric {numeric:.9g}, analytic {analytic:.9g}"
    assert abs(numeric - analytic) <= rtol * max(1, abs(numeric)), message


def close(got, want, tolerance, what=""):
    """Check each element, and the tensor as a whole by its relative L2 norm.

    NaN must meet NaN, and an infinity the same infinity; the rest is compared in float64. One
    element far off shows in the first check, all of them a little off in the second.
    """
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    finite = np.isfinite(want)
    same = np.array_equal(got[~finite], want[~finite], equal_nan=True)
    assert same, f"{what}: where NaN or infinity is expected: {got[~finite][:4]}"
    assert np.isfinite(got[finite]).all(), (
        f"{what}: not finite where {want[finite][:4]} is expected"
    )
    got, want = got[finite], want[finite]
    if want.size == 0:
        return
    difference, norm = np.abs(got - want), np.linalg.norm(want)
    atol = tolerance.atol * max(1, norm / np.sqrt(want.size))
    excess = difference - (atol + tolerance.rtol * np.abs(want))
    worst = int(np.argmax(excess))
    message = f"{what}: {got[worst]:.9g}, expected {want[worst]:.9g} ({tolerance.reason})"
    assert excess[worst] <= 0, message
    l2, largest = np.linalg.norm(difference), tolerance.l2 * max(1, norm)
    assert l2 <= largest, f"{what}: L2 norm of the difference {l2:.3g}, at most {largest:.3g}"


class Together:
    """The L2 norm of the differences of many tensors, as if they were one, relative to theirs.

    For what may be far off in an element now and then, but not in many.
    """

    def __init__(self):
        self.difference = self.norm = 0.0

    def add(self, got, want):
        """Take one more tensor in."""
        want = np.asarray(want, np.float64)
        self.difference = np.hypot(self.difference, np.linalg.norm(got - want))
        self.norm = np.hypot(self.norm, np.linalg.norm(want))

    def close(self, limit, what=""):
        """Check the norm."""
        message = f"{what}: relative L2 norm of all differences {{:.3g}}, at most {limit:.3g}"
        assert self.difference <= limit * self.norm, message.format(self.difference / self.norm)
