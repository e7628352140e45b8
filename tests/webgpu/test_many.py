"""More elements and more positions than a row of workgroups has: 65,535, or 64 times as many."""

import numpy as np
import pytest

from llmpy import ops
from llmpy.ops.contract import rows

from ..check import close
from ..op_cases import call
from ..tolerances import SUMMED, tolerance_of

pytestmark = pytest.mark.webgpu

ELEMENTS = 64 * 65_535 + 1


def test_elements(webgpu, rng):
    a, b = rng.standard_normal((2, 1, 1, ELEMENTS), np.float32)
    added = call(webgpu, "residual_forward", {"out": a, "inp1": a, "inp2": b}, {}, "float32")
    assert np.array_equal(added["out"], a + b)
    flat = {"params": a[0, 0], "grads": b[0, 0], "m": a[0, 0], "v": b[0, 0] ** 2, "outcome": None}
    how = {"lr": 0.1, "beta1": 0.5, "beta2": 0.5, "eps": 1e-3, "weight_decay": 0.5, "step": 1}
    how |= {"decay": ((ELEMENTS - 1, ELEMENTS),), "grad_scale": 1.0, "max_norm": 0.0}
    got = call(webgpu, "adamw", flat, how, "float32")
    want = call(ops, "adamw", flat, how, "float64")
    for name in got:
        close(got[name], want[name], tolerance_of("adamw", name, how), name)
    norm = call(webgpu, "global_norm", {"outcome": np.zeros(2), "grads": b[0, 0]}, {}, "float32")
    assert norm["outcome"][1] == pytest.approx(np.linalg.norm(b.astype(np.float64)), rel=3e-7)


SIZES = {"B": 3, "T": 22_000, "C": 2, "Vp": 3, "maxT": 22_000}


@pytest.mark.parametrize(
    ("name", "scalars"),
    [
        ("encoder_forward", {}),
        ("encoder_backward", {"accumulate": False}),
        ("layernorm_forward", {}),
        ("softmax_forward", {"V": 2}),
        ("crossentropy_softmax_backward", {"V": 2}),
    ],
)
def test_positions(webgpu, name, scalars, rng):
    arrays = {}
    for row in rows(getattr(ops, name)):
        shape = tuple(SIZES[axis] for axis in row.axes)
        arrays[row.name] = rng.standard_normal(shape).astype(np.float32).astype(np.float64)
        if row.kind == "i32":
            arrays[row.name] = rng.integers(0, 2, shape, np.int32)
    if "inp" in arrays:
        arrays["inp"][..., 0] += 8
    got = call(webgpu, name, arrays, scalars, "float32")
    want = call(ops, name, arrays, scalars, "float64")
    for output in got:
        tolerance = SUMMED if name == "encoder_backward" else tolerance_of(name, output, scalars)
        close(got[output], want[output], tolerance, output)
