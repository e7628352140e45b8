"""Sizes beyond 32 bits, and the refusal before anything is allocated (R46)."""

import re
import tracemalloc

import pytest

from llmpy import footprint, ops
from llmpy.config import TrainConfig
from llmpy.errors import UsageError
from llmpy.footprint import (
    amount,
    available_bytes,
    backward_bytes,
    forward_bytes,
    largest_tensor,
    model_bytes,
    require_memory,
    require_training_memory,
    training_footprint,
)
from llmpy.model import GPT2
from llmpy.sizes import GPT2Config, descriptor_config
from llmpy.tensors import SEED_ACTS, Tensors, table_size

from . import golden_state as golden
from .random_model import random_batch, random_model

D12 = descriptor_config("d12")


def test_sizes_of_gpt2_124m():
    """Worked by hand from the tables: B 64, T 1024, far beyond 2^31 elements."""
    L, NH, C, BT = 12, 12, 768, 64 * 1024
    # encoded, what is kept of each layer, fch_gelu, lnf; ln1 and ln2 share one C, proj and dln
    kept = BT * (C + L * (10 * C + 4 + NH) + 4 * C + C + 2 * C + 3)
    assert model_bytes(D12) == 4 * 124_475_904
    assert forward_bytes(D12, 64, 1024) == 4 * kept
    assert backward_bytes(D12, 64, 1024) == 4 * BT * 5 * C
    needed = training_footprint(Backend, D12, 64, 1024)
    assert needed.model == 4 * 4 * 124_475_904
    assert needed.activations == 4 * (kept + BT * 5 * C) > 2**34
    twice = training_footprint(Backend, D12, 64, 1024, itemsize=8, moments=False)
    assert (twice.model, twice.activations) == (needed.model, 2 * needed.activations)


def test_sizes_of_what_is_made_again():
    """Level 2: one fch for one of each layer. LayerNorm and GELU, llm.c's 1, 2, are never kept."""
    L, C, BT = 12, 768, 4 * 1024
    kept, gelu, product = (forward_bytes(D12, 4, 1024, recompute=level) for level in (0, 1, 2))
    assert kept == gelu
    assert gelu - product == 4 * BT * 4 * C * (L - 1)


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
        alloc_places = staticmethod(lambda sizes, dtype: (sum(sizes),))
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
    # gradients, 5 C a position; 7 terms of 4 C and the part of wte that is added
    needed = 4 * (model.num_parameters + 39 * 5 * 24 + 39 * 7 * 4 * 24 + 128 * 24)
    message = (
        f"GPT2: a backward pass with B=3 and T=13 needs {needed / 1e3:.1f} kB,"
        " expected at most the 200.0 kB of memory that are available here"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        model.forward_backward(golden.TOKENS, golden.TARGETS)
    assert model.grads is None
    model.forward(golden.TOKENS, golden.TARGETS)  # that much there is


def test_gradients_alone_want_no_moments(monkeypatch):
    """What is not asked for is not reckoned with; it is once the first update asks."""
    model = golden.golden_model("numpy")
    model.forward(golden.TOKENS, golden.TARGETS)
    monkeypatch.setattr(footprint, "available_bytes", lambda: 300_000)
    moments = 2 * 4 * model.num_parameters
    gradients = 4 * (model.num_parameters + 39 * 5 * 24 + 39 * 7 * 4 * 24 + 128 * 24)
    assert gradients < 300_000 < gradients + moments
    model.forward_backward(golden.TOKENS, golden.TARGETS)
    monkeypatch.setattr(footprint, "available_bytes", lambda: moments - 1)
    before = model.params.memory.copy()
    with pytest.raises(UsageError) as error:
        model.update(0.1, 0.9, 0.999, 1e-8, 0.0, 1)
    assert str(error.value) == (
        f"GPT2: the first update needs {amount(moments)}, expected at most the"
        f" {amount(moments - 1)} of memory that are available here"
    )
    assert (model.m, model.v) == (None, None)
    assert (model.params.memory == before).all()


# training as a whole


@pytest.fixture
def has(monkeypatch):
    """Let so many GB be there."""
    return lambda gb: monkeypatch.setattr(footprint, "available_bytes", lambda: int(gb * 1e9))


class Backend:
    """One whose ops take a GB, whatever the sizes."""

    scratch_bytes = staticmethod(lambda dims, itemsize: 10**9)
    largest_tensor = staticmethod(lambda: None)
    on_host = staticmethod(lambda: True)


class Card(Backend):
    """A device with memory of its own, in buffers of 256 MiB."""

    largest_tensor = staticmethod(lambda: 2**28)
    on_host = staticmethod(lambda: False)


def settings(B=4, recompute=0):
    return TrainConfig(batch_size=B, seq_len=1024, recompute=recompute)


def test_training_is_reckoned_by_part(has):
    """B 4, T 1024 of GPT-2 124M: 4 times 0.498 GB; 10 C + 16 a layer and position, and 13 C."""
    has(22)
    line = require_training_memory("train", Backend, D12, settings())
    assert line == "memory: 4.7 GB of 22.0 GB: 2.0 GB model, 1.7 GB activations, 1.0 GB scratch"
    assert len(line) <= 80
    line = require_training_memory("train", Backend, D12, settings(recompute=2))
    assert "1.1 GB activations" in line


def test_a_system_that_says_nothing_is_told_what_it_takes(monkeypatch):
    monkeypatch.setattr(footprint, "available_bytes", lambda: None)
    line = require_training_memory("train", Backend, D12, settings())
    assert line.startswith("memory: 4.7 GB: 2.0 GB model, ")


NEEDED = (
    "train: training with B={} and T=1024 needs {} GB (2.0 GB model, {} GB activations,"
    " 1.0 GB scratch), expected at most the {} GB of memory that are available here."
)


@pytest.mark.parametrize(
    ("gb", "B", "recompute", "numbers", "remedy"),
    [
        (4.5, 4, 0, ("4.7", "1.7"), " --recompute 2 takes 4.1 GB."),
        (4.5, 4, 1, ("4.7", "1.7"), " --recompute 2 takes 4.1 GB."),
        (4.0, 4, 0, ("4.7", "1.7"), " --batch-size 2 takes 3.8 GB."),
        (4.0, 4, 2, ("4.1", "1.1"), " --batch-size 2 takes 3.6 GB."),
        (20.0, 64, 0, ("29.8", "26.8"), " --batch-size 32 takes 16.4 GB."),
        (3.1, 4, 0, ("4.7", "1.7"), " --batch-size 1 --seq-len 256 takes 3.1 GB."),
        (2.9, 4, 0, ("4.7", "1.7"), " A smaller model takes less."),
    ],
)
def test_a_refusal_says_what_would_fit(has, gb, B, recompute, numbers, remedy):
    has(gb)
    with pytest.raises(UsageError) as error:
        require_training_memory("train", Backend, D12, settings(B, recompute))
    assert str(error.value) == NEEDED.format(B, *numbers, gb) + remedy


def test_the_largest_tensor_has_its_layers_apart():
    assert largest_tensor(D12, 1, 1) == ("wte", 4 * 50304 * 768)
    assert largest_tensor(D12, 64, 1024) == ("fch", 4 * 64 * 1024 * 4 * 768)


def test_memory_of_a_card_is_not_reckoned_with(has):
    """Nobody says how much it has: the estimate is told, and nothing refused for it."""
    has(1)
    line = require_training_memory("train", Card, D12, settings())
    assert line == "memory: 4.7 GB: 2.0 GB model, 1.7 GB activations, 1.0 GB scratch"
    require_memory("GPT2", "the model", 10**10, Card)
    for backend in (Backend, None):
        with pytest.raises(UsageError):
            require_memory("GPT2", "the model", 10**10, backend)


@pytest.mark.parametrize(
    ("sizes", "B", "what", "remedy"),
    [
        (
            D12, 64,
            "B=64 and T=1024 needs 29.8 GB, of which fch takes 805,306,368 bytes",
            "--batch-size 16 takes 9.7 GB.",
        ),
        (
            descriptor_config("d48"), 1,
            "B=1 and T=1024 needs 29.2 GB, of which wte takes 321,945,600 bytes",
            "Use --backend cpu.",
        ),
    ],
)  # fmt: skip
def test_a_tensor_that_no_buffer_holds(sizes, B, what, remedy):
    with pytest.raises(UsageError) as error:
        require_training_memory("train", Card, sizes, settings(B))
    assert str(error.value) == (
        f"train: training with {what} at once, expected at most 268,435,456, the largest buffer of"
        f" this device. {remedy}"
    )


def test_flags_that_would_fit_have_no_tensor_that_does_not(has):
    class Shared(Card):
        on_host = staticmethod(lambda: True)

    has(20)
    with pytest.raises(UsageError) as error:
        require_training_memory("train", Shared, D12, settings(64))
    assert str(error.value) == (
        NEEDED.format(64, "29.8", "26.8", 20.0) + " --batch-size 16 takes 9.7 GB."
    )


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize(("V", "C", "T"), [(61, 48, 32), (3000, 32, 24), (50, 32, 128)])
def test_the_reference_takes_about_what_it_says(V, C, T, itemsize):
    """So that its logits, whole and several times over, are reckoned with."""
    config = GPT2Config(max_seq_len=T, vocab_size=V, num_layers=2, num_heads=2, channels=C)
    model = random_model(config, dtype=f"float{8 * itemsize}")
    batch = random_batch(4, T, V)
    model.forward_backward(*batch)
    tracemalloc.start()
    model.forward_backward(*batch)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reckoned = ops.scratch_bytes({**config.dims, "B": 4, "T": T}, itemsize)
    assert taken / 1.5 <= reckoned <= 1.5 * taken


def test_too_many_logits_are_refused_before_the_pass(monkeypatch):
    model = golden.golden_model("numpy")
    needed = forward_bytes(golden.CONFIG, golden.B, golden.T)
    logits = 4 * golden.B * golden.T * (128 + golden.V)
    monkeypatch.setattr(footprint, "available_bytes", lambda: needed + logits - 1)
    model.forward(golden.TOKENS, golden.TARGETS)
    monkeypatch.setattr(footprint, "available_bytes", lambda: logits - 1)
    monkeypatch.setattr(ops, "encoder_forward", lambda *_: pytest.fail("the pass began"))
    with pytest.raises(
        UsageError, match=r"^GPT2: an array of logits with B=3 and T=13 needs [0-9.]+ kB, expected"
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
