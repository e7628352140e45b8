"""Norm and AdamW over parameters as they lie in their buffers: many tensors, zeros between them."""

import re

import numpy as np
import pytest

from llmpy import ops
from llmpy.errors import BackendError
from llmpy.webgpu.memory import allocate

from ..check import close
from ..op_cases import ADAMW
from ..tolerances import TOLERANCES

pytestmark = pytest.mark.webgpu

TENSORS = [3000, 7, 10_001, 5, 64, 64, 777, 16_384, 1]
N = sum(TENSORS)
DECAY = ((0, 3007), (5000, 5001), (13_010, 13_100), (N - 2, N))
OUTCOMES = [None, (1.0, 0.5), (1.0, 4.0), (np.nan, 0.5), (1.0, np.inf), (-np.inf, 4.0)]


def make_block(webgpu, values, tensors=TENSORS):
    block = allocate(webgpu.device(), tensors, "float32", apart=False)
    webgpu.upload(block, values)
    return block


def test_adamw_wants_arrays_that_lie_alike(webgpu, rng):
    blocks = [make_block(webgpu, np.zeros(N)) for _ in range(4)]
    outcome = webgpu.alloc((2,))
    how = {**ADAMW, "decay": None, "step": 3, "grad_scale": 1.0, "max_norm": 1.0}
    for i, name in ((1, "grads"), (2, "m"), (3, "v")):
        wrong = [*blocks]
        wrong[i] = make_block(webgpu, np.zeros(N), TENSORS[::-1])
        message = (
            f"webgpu: adamw: {name} has 1 elements at 0 of a buffer, expected"
            " 3000 elements at 0 of a buffer, as params. Allocate all four alike."
        )
        with pytest.raises(BackendError, match=f"^{re.escape(message)}$"):
            webgpu.adamw(*wrong, outcome, **how)


def outside(webgpu, block):
    """Give what lies in the buffers of a block beside its tensors."""
    buffers = {id(p.buffer): p.buffer for p in block.pieces}
    rest = []
    for key, buffer in buffers.items():
        whole = np.frombuffer(webgpu.device().read(buffer, 0, buffer.size), np.float32).copy()
        keep = np.ones(whole.size, bool)
        for p in block.pieces:
            if id(p.buffer) == key:
                keep[p.start : p.start + p.count] = False
        rest.append(whole[keep])
    return np.concatenate(rest)


@pytest.fixture(params=[None, 65_536, 2_560], ids=["whole", "in halves", "in many"])
def cut(request, small_bindings):
    if request.param is not None:
        small_bindings(request.param)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("decay", [None, DECAY])
def test_adamw_on_tensors_with_zeros_between_them(webgpu, decay, outcome, rng):
    names = ("params", "grads", "m", "v")
    host = {name: rng.standard_normal(N).astype(np.float32) for name in names}
    host["v"] **= 2
    blocks = {name: make_block(webgpu, host[name]) for name in names}
    want = {name: host[name].astype(np.float64) for name in names}
    given = None
    if outcome is not None:
        given = webgpu.alloc((2,))
        webgpu.upload(given, np.array(outcome, np.float32))
    how = {**ADAMW, "decay": decay, "step": 3, "grad_scale": 0.37, "max_norm": 1.0}
    webgpu.adamw(*blocks.values(), given, **how)
    ops.adamw(*want.values(), None if outcome is None else np.array(outcome), **how)
    for name in names:
        got = webgpu.download(blocks[name])
        if outcome is not None and not np.isfinite(outcome).all():
            assert got.tobytes() == host[name].tobytes(), name
        close(got, want[name], TOLERANCES["adamw", "float32"], name)
        assert not outside(webgpu, blocks[name]).any(), name


def test_adamw_takes_a_buffer_at_a_time(webgpu, rng):
    blocks = [make_block(webgpu, rng.random(N, np.float32)) for _ in range(4)]
    before = webgpu.device().dispatches
    how = {**ADAMW, "decay": DECAY, "step": 3, "grad_scale": 1.0, "max_norm": 0.0}
    webgpu.adamw(*blocks, None, **how)
    webgpu.sync()
    assert webgpu.device().dispatches == before + 1


def test_settings_of_each_step_are_those_it_was_called_with(webgpu):
    """Although they lie in one place, and several steps may be on their way."""
    params, grads, m, v = (make_block(webgpu, np.ones(4, np.float32), [4]) for _ in range(4))
    how = {"beta1": 0.0, "beta2": 0.0, "eps": 0.0, "weight_decay": 0.0, "decay": None}
    for lr in (1.0, 10.0, 10.0, 100.0):
        webgpu.adamw(params, grads, m, v, None, lr=lr, step=1, grad_scale=1.0, max_norm=0.0, **how)
    close(webgpu.download(params), np.full(4, 1 - 121.0), TOLERANCES["adamw", "float32"])


def test_settings_that_change_take_no_new_memory(webgpu):
    device = webgpu.device()
    blocks = [make_block(webgpu, np.ones(4, np.float32), [4]) for _ in range(4)]
    how = {**ADAMW, "decay": None, "grad_scale": 1.0, "max_norm": 0.0}
    webgpu.adamw(*blocks, None, step=1, **how)
    before = len(device._scalars)
    for step in range(2, 6):
        webgpu.adamw(*blocks, None, step=step, **how)
    assert len(device._scalars) == before


def norm(webgpu, block):
    outcome = webgpu.alloc((2,))
    webgpu.upload(outcome, np.array([5, -1], np.float32))
    webgpu.global_norm(outcome, block)
    loss, made = webgpu.download(outcome)
    assert loss == 5
    return made


@pytest.mark.usefixtures("cut")
def test_norm_of_tensors_with_zeros_between_them(webgpu, rng):
    values = rng.standard_normal(N).astype(np.float32)
    want = np.linalg.norm(values.astype(np.float64))
    assert norm(webgpu, make_block(webgpu, values)) == pytest.approx(want, rel=3e-7)


def test_norm_has_the_same_bits_wherever_a_large_buffer_is_cut(webgpu, small_bindings, rng):
    for _ in range(8):
        values = make_block(webgpu, rng.standard_normal(70_000).astype(np.float32) ** 3, [70_000])
        made = set()
        for size in (1 << 20, 70_000, 100_000, 160_000):
            small_bindings(size)
            made.add(float(norm(webgpu, values)))
        assert len(made) == 1


@pytest.mark.parametrize("exponents", [(-37, 37), (-30, -30), (30, 30), (-16, -13), (13, 16)])
def test_norm_of_numbers_of_any_size(webgpu, exponents, rng):
    for count in (1, 2, 3, 100, 20_000):
        values = rng.uniform(0.5, 1, count) * 10.0 ** rng.uniform(*exponents, count)
        values = values.astype(np.float32)
        want = np.linalg.norm(values.astype(np.float64))
        got = norm(webgpu, make_block(webgpu, values, [count]))
        assert got == pytest.approx(want, rel=4e-7, abs=0), count


def test_norm_of_what_is_not_finite(webgpu):
    def of(*values):
        return norm(webgpu, make_block(webgpu, np.array(values, np.float32), [len(values)]))

    assert of(0.0, 0.0) == 0
    assert of(1e-30, -np.inf, 1e30) == np.inf
    assert np.isnan(of(1.0, np.nan))
    assert np.isnan(of(np.inf, np.nan, 3.0))
    assert of(3e38, 3e38) == np.inf
