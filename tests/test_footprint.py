"""Sizes beyond 32 bits, and the refusal before anything is allocated (R46)."""

import re

import pytest

from llmpy import footprint, ops
from llmpy.config import descriptor_config
from llmpy.errors import UsageError
from llmpy.footprint import (
    available_bytes,
    forward_bytes,
    model_bytes,
    require_memory,
    training_bytes,
)
from llmpy.model import GPT2
from llmpy.tensors import SEED_ACTS, Tensors, table_size

from . import golden_state as golden

D12 = descriptor_config("d12")


def test_sizes_of_gpt2_124m():
    """Worked by hand from the tables: B 64, T 1024, far beyond 2^31 elements."""
    L, NH, C, BT = 12, 12, 768, 64 * 1024
    kept = BT * (C + L * (16 * C + 4 + NH) + 2 * C + 3)  # proj and dln share one C
    assert model_bytes(D12) == 4 * 124_475_904
    assert forward_bytes(D12, 64, 1024) == 4 * kept
    assert training_bytes(D12, 64, 1024) == 4 * (4 * 124_475_904 + kept + BT * 5 * C)
    assert training_bytes(D12, 64, 1024) > 2**35
    assert training_bytes(D12, 64, 1024, itemsize=8) == 2 * training_bytes(D12, 64, 1024)


def test_sizes_of_what_is_made_again():
    """GELU: one layer's 4C for those of all; LayerNorm: one C, in turn, for 2C of each layer."""
    L, C, BT = 12, 768, 4 * 1024
    kept, gelu, layernorm = (forward_bytes(D12, 4, 1024, recompute=level) for level in (0, 1, 2))
    assert kept - gelu == 4 * BT * 4 * C * (L - 1)
    assert gelu - layernorm == 4 * BT * C * (2 * L - 1)


def test_seed_activations_are_counted_in_64_bit():
    dims = {**D12.dims, "B": 64, "T": 1024}
    assert table_size({"logits": SEED_ACTS["logits"]}, dims) == 64 * 1024 * 50304 > 2**31
    # what the C program prints for B 4, T 64, counted by Vp and by V
    dims = {**D12.dims, "B": 4, "T": 64}
    assert table_size(SEED_ACTS, dims) == 73_347_840
    assert table_size(SEED_ACTS, {**dims, "Vp": 50257}) == 73_323_776


def test_offsets_pass_32_bit():
    """The views of a model of 12 billion parameters, on a backend that allocates nothing."""

    class Nothing:
        alloc = staticmethod(lambda shape, dtype: shape)
        view = staticmethod(lambda array, offset, shape: (offset, shape))

    from llmpy.tensors import PARAMS

    config = descriptor_config("d84")
    params = Tensors(Nothing(), PARAMS, config.dims)
    assert params.memory == (12_220_657_920,)
    assert params.lnfb == (12_220_657_920 - 3456, (3456,))
    start, shape = params.layer(83).fcprojw
    assert start == params.offsets["fcprojw"] + 83 * 3456 * 4 * 3456 > 2**33
    assert shape == (3456, 4 * 3456)


def test_too_large_a_model_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(footprint, "available_bytes", lambda: 20 * 10**9)
    message = (
        "GPT2: the model needs 48.9 GB, expected at most the 20.0 GB of memory that are available"
        " here"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        GPT2(descriptor_config("d84"), "numpy")


def test_too_large_a_batch_is_refused_before_it_is_made(monkeypatch):
    model = golden.golden_model("numpy")
    monkeypatch.setattr(footprint, "available_bytes", lambda: 200_000)
    message = (
        r"GPT2: a training step with B=3 and T=13 needs 0\.0 GB,"
        r" expected at most the 0\.0 GB of memory that are available here"
    )
    with pytest.raises(UsageError, match=f"^{message}$"):
        model.forward_backward(golden.TOKENS, golden.TARGETS)
    assert model.grads is None
    model.forward(golden.TOKENS, golden.TARGETS)  # that much there is


def test_too_many_logits_are_refused_before_the_pass(monkeypatch):
    model = golden.golden_model("numpy")
    needed = forward_bytes(golden.CONFIG, golden.B, golden.T)
    logits = 4 * golden.B * golden.T * (128 + golden.V)
    monkeypatch.setattr(footprint, "available_bytes", lambda: needed + logits - 1)
    model.forward(golden.TOKENS, golden.TARGETS)
    monkeypatch.setattr(footprint, "available_bytes", lambda: logits - 1)
    monkeypatch.setattr(ops, "encoder_forward", lambda *_: pytest.fail("the pass began"))
    with pytest.raises(
        UsageError, match=r"^GPT2: an array of logits with B=3 and T=13 needs 0\.0 GB, expected"
    ):
        model.forward(golden.TOKENS)


def test_a_system_that_says_nothing_refuses_nothing(monkeypatch):
    monkeypatch.setattr(footprint, "available_bytes", lambda: None)
    require_memory("GPT2", "the model", 10**18)


def test_available_memory_is_positive():
    available = available_bytes()
    assert available is None or 2**20 < available < 2**50


def group(folder, limit, usage, cache=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon {usage - cache}\ninactive_file {cache}\n")


def test_each_control_group_on_the_way_up_counts(tmp_path):
    """Version 2: the innermost group has no limit, the one around it has."""
    group(tmp_path / "job" / "step", "max", 100)
    group(tmp_path / "job", 1000, 400, cache=150)
    lines = ["0::/job/step", "1:name=systemd:/"]
    assert list(footprint.control_group_bytes(lines, tmp_path)) == [750]


def test_control_groups_of_version_1(tmp_path):
    folder = tmp_path / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("1000\n")
    (folder / "memory.usage_in_bytes").write_text("1200\n")
    (folder / "memory.stat").write_text("cache 9\ntotal_inactive_file 50\n")
    lines = ["4:memory:/job", "2:cpu,cpuacct:/job", "0::/job"]
    assert list(footprint.control_group_bytes(lines, tmp_path)) == [0]


def test_no_control_groups(tmp_path):
    assert list(footprint.control_group_bytes([], tmp_path)) == []
    assert list(footprint.control_group_bytes(["0::/../gone"], tmp_path)) == []
