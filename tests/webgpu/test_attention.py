"""Attention in WGSL: several tiles of rows, columns and channels, and sequences in several calls.

What holds for every backend is in test_backends.py and test_non_finite.py.
"""

import numpy as np
import pytest

from llmpy import ops
from llmpy.errors import UsageError

from ..check import close
from ..op_cases import call, make_arrays
from ..tolerances import tolerance_of

pytestmark = pytest.mark.webgpu
PASSES = ("attention_forward", "attention_backward")
B, T, NH, HS = 2, 150, 2, 40  # three tiles of rows, and more than 32 channels
C = NH * HS


def arrays_of(name, sizes, rng):
    scalars = {"NH": sizes["NH"], "bf16": False}
    return make_arrays(name, sizes, scalars, rng), scalars


def compare(webgpu, name, sizes, rng):
    arrays, scalars = arrays_of(name, sizes, rng)
    want = call(ops, name, arrays, scalars, "float64")
    got = call(webgpu, name, arrays, scalars, "float32")
    for output in want:
        close(got[output], want[output], tolerance_of(name, output, scalars), f"{sizes}: {output}")
    return got


@pytest.mark.parametrize("name", PASSES)
def test_several_tiles(webgpu, name, rng):
    compare(webgpu, name, {"B": B, "T": T, "NH": NH, "C": C}, rng)
    compare(webgpu, name, {"B": 1, "T": 70, "NH": 2, "C": 2 * 150}, rng)  # three of channels


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", range(3), ids=["query", "key", "value"])
def test_what_a_later_tile_holds_has_no_influence(webgpu, part, value, rng):
    """Earlier rows keep their bits; what is not finite is just what isn't in the reference."""
    sizes = {"B": 1, "T": T, "NH": NH, "C": C}
    arrays, scalars = arrays_of("attention_backward", sizes, rng)
    forward = {key: arrays[key] for key in ("out", "lse", "qkv")}
    clean = call(webgpu, "attention_forward", forward, scalars, "float32")
    for t in (0, 31, 32, 63, 64, 149):
        arrays["qkv"][0, t, part * C + HS + 3], kept = value, arrays["qkv"][0, t, part * C + HS + 3]
        want = call(ops, "attention_forward", forward, scalars, "float64")
        got = call(webgpu, "attention_forward", forward, scalars, "float32")
        assert got["out"][:, :t].tobytes() == clean["out"][:, :t].tobytes(), f"before {t}"
        assert np.array_equal(np.isfinite(got["out"]), np.isfinite(want["out"])), t
        both = {**arrays, **want}
        want = call(ops, "attention_backward", both, scalars, "float64")["dqkv"]
        got = call(webgpu, "attention_backward", both, scalars, "float32")["dqkv"]
        assert np.array_equal(np.isfinite(got), np.isfinite(want)), t
        arrays["qkv"][0, t, part * C + HS + 3] = kept


@pytest.fixture
def narrow(webgpu, monkeypatch):
    """Give a function that narrows what the device binds at once."""
    limits = webgpu.alloc((1,)).device.limits

    def narrow(size):
        monkeypatch.setitem(limits, "max-storage-buffer-binding-size", size)

    return narrow


@pytest.mark.parametrize("name", PASSES)
def test_sequences_go_in_several_calls_where_a_binding_is_too_small(webgpu, narrow, name, rng):
    sizes = {"B": 5, "T": 16, "NH": 2, "C": 6}  # a binding may begin at every other sequence
    arrays, scalars = arrays_of(name, sizes, rng)
    once = call(webgpu, name, arrays, scalars, "float32")
    dispatches = webgpu.alloc((1,)).device.dispatches
    narrow(3 * 16 * 18 * 4 + 256)
    cut = call(webgpu, name, arrays, scalars, "float32")
    assert webgpu.alloc((1,)).device.dispatches > dispatches + 1
    for output in once:
        assert cut[output].tobytes() == once[output].tobytes(), output


def test_a_batch_that_cannot_be_cut_is_refused(webgpu, narrow):
    out, lse, qkv = (webgpu.alloc(shape) for shape in ((4, 3, 5), (4, 1, 3), (4, 3, 15)))
    narrow(512)
    with pytest.raises(UsageError) as e:
        webgpu.attention_forward(out, lse, qkv, NH=1)
    assert str(e.value) == (
        "attention_forward: qkv of 4 sequences takes 720 bytes, expected at most 512, what this"
        " device binds at once. Take a batch of 2 at most."
    )
