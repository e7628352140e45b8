"""The whole model: golden numbers of PyTorch, checkpoints, order of calls, refusals."""

import dataclasses
import re

import numpy as np
import pytest

from llmpy import ops
from llmpy.backends import load_backend
from llmpy.errors import OrderError, UsageError
from llmpy.model import GPT2
from llmpy.sizes import descriptor_config
from llmpy.tensors import DECAYED, PARAMS, Tensors, decay_ranges

from . import golden_state as golden
from .gpu import require_device
from .random_model import TINY, flat, random_batch, random_model

ADAMW = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


@pytest.fixture(
    params=[
        pytest.param(("numpy", "float64", 2e-7), id="numpy-float64"),
        pytest.param(("numpy", "float32", 1e-5), id="numpy-float32"),
        pytest.param(("cpu", "float32", 1e-5), id="cpu"),
        pytest.param(("webgpu", "float32", 1e-5), id="webgpu", marks=pytest.mark.webgpu),
    ]
)
def judged(request):
    """A backend, a dtype, and the relative error allowed; the files are rounded to float32."""
    if request.param[0] == "webgpu":
        require_device()
    return request.param


# against PyTorch


def test_logits_equal_pytorch(judged):
    name, dtype, limit = judged
    logits = golden.golden_model(name, dtype).forward(golden.TOKENS)
    assert logits.shape == (golden.B, golden.T, golden.V)
    assert golden.relative_l2(logits, golden.LOGITS) <= limit


def test_loss_equals_pytorch(judged):
    name, dtype, limit = judged
    model = golden.golden_model(name, dtype)
    loss = model.forward(golden.TOKENS, golden.TARGETS)
    assert type(loss) is float
    assert loss == pytest.approx(golden.LOSS, rel=limit)
    assert model.mean_loss == loss


def test_gradients_equal_pytorch(judged):
    name, dtype, limit = judged
    model = golden.golden_model(name, dtype)
    model.forward_backward(golden.TOKENS, golden.TARGETS)
    grads = np.asarray(model.backend.download(model.grads.memory))
    golden.assert_grads_close(grads, golden.GRADS, model.config.dims, limit)


def test_gradients_in_the_seeds_order_of_calls_equal_pytorch(judged):
    name, dtype, limit = judged
    model = golden.golden_model(name, dtype)
    model.forward(golden.TOKENS, golden.TARGETS)
    model.zero_grad()
    model.backward()
    grads = np.asarray(model.backend.download(model.grads.memory))
    golden.assert_grads_close(grads, golden.GRADS, model.config.dims, limit)


def test_ten_losses_equal_pytorch(judged):
    name, dtype, limit = judged
    model = golden.golden_model(name, dtype)
    losses = []
    for step in range(1, 11):
        losses.append(model.forward_backward(golden.TOKENS, golden.TARGETS))
        model.update(1e-3, **ADAMW, weight_decay=0.01, step=step)
    limit = 1e-9 if dtype == "float64" else limit  # these are not rounded
    np.testing.assert_allclose(losses, golden.LOSSES, rtol=limit)


def test_ten_losses_with_clip_and_decay_of_2d_tensors_equal_pytorch(judged):
    name, dtype, limit = judged
    model = golden.golden_model(name, dtype)
    limit = 1e-9 if dtype == "float64" else limit
    for step in range(10):
        loss = model.forward_backward(golden.TOKENS, golden.TARGETS)
        norm = model.grad_norm()
        assert loss == pytest.approx(golden.CLIP_LOSSES[step], rel=limit)
        assert norm == pytest.approx(golden.CLIP_NORMS[step], rel=limit)
        scale = 1 / norm if norm > 1 else 1.0
        model.update(1e-3, 0.9, 0.99, 1e-8, 0.1, step + 1, grad_scale=scale, decay="2d")


def test_padded_rows_take_no_part(backend):
    """Large numbers in the padded rows of wte change nothing, and get no gradient (R09)."""
    model = golden.golden_model(backend)
    C, V, Vp = (model.config.dims[x] for x in ("C", "V", "Vp"))
    weights = golden.WEIGHTS.copy()
    weights[V * C : Vp * C] = 50
    model.backend.upload(model.params.memory, weights)
    assert model.forward_backward(golden.TOKENS, golden.TARGETS) == pytest.approx(golden.LOSS)
    dwte = np.asarray(model.backend.download(model.grads.wte))
    assert not dwte[V:].any()
    assert model.forward(golden.TOKENS).shape[-1] == V


# checkpoints and weights


@pytest.mark.parametrize("version", [1, 3])
def test_golden_checkpoints_load_into_the_padded_model(version):
    model = GPT2.from_checkpoint(golden.FOLDER / f"model_v{version}.bin", "numpy")
    assert model.config == golden.CONFIG
    np.testing.assert_array_equal(flat(model.params), golden.WEIGHTS)


@pytest.mark.parametrize("version", [1, 3])
def test_save_writes_the_file_that_pytorch_wrote(version, tmp_path, backend):
    golden.golden_model(backend).save(tmp_path / "m.bin", version)
    expected = (golden.FOLDER / f"model_v{version}.bin").read_bytes()
    assert (tmp_path / "m.bin").read_bytes() == expected


def test_save_from_float64_rounds_to_float32(tmp_path):
    golden.golden_model("numpy", "float64").save(tmp_path / "m.bin")
    assert (tmp_path / "m.bin").read_bytes() == (golden.FOLDER / "model_v3.bin").read_bytes()


def test_descriptor_gives_seeded_weights():
    one = GPT2.from_descriptor("baby", seed=7, vocab_size=65, backend="numpy")
    same = GPT2.from_descriptor("baby", seed=7, vocab_size=65, backend="numpy")
    other = GPT2.from_descriptor("baby", seed=8, vocab_size=65, backend="numpy")
    assert one.config == descriptor_config("baby", 65)
    assert one.num_parameters == flat(one.params).size
    np.testing.assert_array_equal(flat(one.params), flat(same.params))
    assert (flat(one.params) != flat(other.params)).any()
    assert not one.params.wte[65:].any()
    assert (one.params.ln1w == 1).all()


def test_decay_ranges_cover_the_2d_tensors_once():
    tensors = Tensors(ops, PARAMS, TINY.dims)
    decayed = np.zeros(tensors.memory.size, int)
    for start, stop in decay_ranges(tensors):
        decayed[start:stop] += 1
    two_d = {"wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw"}
    for name, start, stop in golden.tensor_ranges(TINY.dims):
        assert set(decayed[start:stop]) == {int(name in two_d)}, name
    assert set(DECAYED) == two_d


def test_decay_shrinks_only_2d_tensors(backend):
    """R45: no gradient, one update: theta moves by lr * weight_decay * theta, or not at all."""
    model = golden.golden_model(backend)
    model.zero_grad()
    model.update(0.01, **ADAMW, weight_decay=10.0, step=1, decay="2d")
    after = np.asarray(model.backend.download(model.params.memory))
    for name, start, stop in golden.tensor_ranges(model.config.dims):
        before = golden.WEIGHTS[start:stop]
        expected = before * 0.9 if name in DECAYED else before
        np.testing.assert_allclose(after[start:stop], expected, rtol=1e-6, err_msg=name)


# order of calls


def test_backward_adds_and_forward_backward_writes():
    tokens, targets = random_batch(2, 5)
    model = random_model()
    model.forward_backward(tokens, targets)
    once = flat(model.grads)
    model.forward_backward(tokens, targets)
    np.testing.assert_array_equal(flat(model.grads), once)
    model.backward()
    np.testing.assert_allclose(flat(model.grads), 2 * once, rtol=1e-12, atol=1e-15)
    model.forward_backward(tokens, targets, accumulate=True)
    np.testing.assert_allclose(flat(model.grads), 3 * once, rtol=1e-12, atol=1e-15)


def test_writing_leaves_nothing_of_what_the_gradients_held(backend):
    """Every element is written: NaN from before must not survive, not even where T < maxT."""
    tokens, targets = random_batch(2, 5)
    model = random_model(backend=backend, dtype="float32")
    model.forward_backward(tokens, targets)
    once = np.array(model.backend.download(model.grads.memory))
    model.backend.upload(model.grads.memory, np.full(once.shape, np.nan, np.float32))
    model.forward_backward(tokens, targets)
    np.testing.assert_array_equal(model.backend.download(model.grads.memory), once)


def test_micro_batches_add_up_to_the_whole_batch(backend):
    """R43: 1/(B*T) of the whole batch in each part gives the whole batch's gradient."""
    tokens, targets = random_batch(4, 7)
    whole = random_model(backend=backend, dtype="float32")
    loss = whole.forward_backward(tokens, targets)
    parts = random_model(backend=backend, dtype="float32")
    losses = [
        parts.forward_backward(
            tokens[i : i + 2], targets[i : i + 2], dloss=1 / tokens.size, accumulate=i > 0
        )
        for i in (0, 2)
    ]
    assert np.mean(losses) == pytest.approx(loss, rel=1e-6)
    golden.assert_grads_close(
        np.asarray(parts.backend.download(parts.grads.memory)),
        np.asarray(whole.backend.download(whole.grads.memory)),
        TINY.dims,
        1e-6,
    )


def test_a_training_step_of_micro_batches_is_that_of_the_whole_batch():
    """R43, R38: the mean over all of them, the norm before the clip, the clipped update."""
    tokens, targets = random_batch(6, 7)
    step = {"lr": 0.01, **ADAMW, "weight_decay": 0.1, "step": 1}
    whole, by_hand = random_model(), random_model()
    whole.train_step([(tokens, targets)], **step, max_norm=0.2)
    parts = random_model()
    parts.train_step([random_batch(2, 7, seed=7)] * 2, **step)  # queued before, of no influence
    parts.backend.upload(parts.params.memory, random_model().params.memory)
    parts.m = parts.v = None
    batches = [(tokens[i : i + 2], targets[i : i + 2]) for i in (0, 2, 4)]
    parts.train_step(batches, **step, max_norm=0.2)
    loss = by_hand.forward_backward(tokens, targets)
    norm = by_hand.grad_norm()
    assert norm > 0.2
    by_hand.update(**step, grad_scale=0.2 / norm)
    for model in (whole, parts):
        assert model.outcome() == pytest.approx((loss, norm), rel=1e-6)
        np.testing.assert_allclose(flat(model.grads), flat(by_hand.grads), atol=1e-12)
        np.testing.assert_allclose(flat(model.params), flat(by_hand.params), rtol=1e-6, atol=1e-9)


def test_micro_batches_have_one_shape():
    model = random_model()
    model.forward_backward(*random_batch(2, 5))
    before = flat(model.params), flat(model.grads)
    batches = [random_batch(2, 5), random_batch(2, 5), random_batch(1, 5)]
    message = "GPT2.train_step: batches[2] has shape (1, 5), expected (2, 5), that of batches[0]"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        model.train_step(batches, 0.1, **ADAMW, weight_decay=0, step=1)
    assert [x.tobytes() for x in (flat(model.params), flat(model.grads))] == [
        x.tobytes() for x in before
    ]
    model.backward()  # the batch before is still held


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches is empty, expected at least 1"),
        ([random_batch(2, 5), (np.ones((2, 5), int), None)],
         "batches[1]: targets is None, expected (B, T)"),
        ([random_batch(2, 5), (np.ones((2, 5), int), np.full((2, 5), 11))],
         "batches[1]: targets[0, 0] is 11, expected 0 to 10,"
         " because the vocabulary has V = 11 tokens"),
    ],
)  # fmt: skip
def test_bad_micro_batches_are_refused(batches, message):
    with pytest.raises(UsageError, match=f"^{re.escape('GPT2.train_step: ' + message)}$"):
        random_model().train_step(batches, 0.1, **ADAMW, weight_decay=0, step=1)


def test_a_queue_without_memory_is_made_again(monkeypatch):
    """After MemoryError the next step of as many tokens makes its queue."""
    model = random_model()
    step = {"lr": 0.1, **ADAMW, "weight_decay": 0, "step": 1}
    model.train_step([random_batch(2, 5)], **step)
    alloc = model.backend.alloc

    def fail(shape, dtype):
        raise MemoryError

    monkeypatch.setattr(model.backend, "alloc", fail)
    with pytest.raises(MemoryError):
        model.train_step([random_batch(2, 5)] * 2, **step)
    monkeypatch.setattr(model.backend, "alloc", alloc)
    model.train_step([random_batch(2, 5)], **step)


def test_a_batch_may_change_after_forward(backend):
    """The model keeps its own copy of the tokens until backward, as the C program."""
    tokens, targets = random_batch(2, 5)
    model = random_model(backend=backend, dtype="float32")
    model.forward_backward(tokens, targets)
    expected = np.array(model.backend.download(model.grads.memory))
    again = random_model(backend=backend, dtype="float32")
    again.forward(tokens, targets)
    tokens[:], targets[:] = 0, 0
    again.zero_grad()
    again.backward()
    np.testing.assert_allclose(again.backend.download(again.grads.memory), expected, atol=1e-7)


BEFORE_BACKWARD = {
    "missing": lambda m, x, y: None,
    "without targets": lambda m, x, y: m.forward(x),
    "older than the last update": lambda m, x, y: (
        m.forward_backward(x, y),
        m.update(0.1, **ADAMW, weight_decay=0, step=1),
    ),
}


@pytest.mark.parametrize("state", BEFORE_BACKWARD)
def test_backward_wants_a_forward_with_targets(state):
    model = random_model()
    BEFORE_BACKWARD[state](model, *random_batch(2, 5))
    message = (
        f"GPT2.backward: the last forward pass is {state},"
        " expected one with targets and no update since"
    )
    with pytest.raises(OrderError, match=f"^{re.escape(message)}$"):
        model.backward()


@pytest.mark.parametrize("call", ["update", "grad_norm"])
def test_update_and_norm_want_gradients(call):
    model = random_model()
    model.forward(*random_batch(2, 5))
    message = f"GPT2.{call}: there are no gradients, expected a backward pass first"
    with pytest.raises(OrderError, match=f"^{re.escape(message)}$"):
        model.grad_norm() if call == "grad_norm" else model.update(
            0.1, **ADAMW, weight_decay=0, step=1
        )


def test_mean_loss_is_none_without_targets():
    model = random_model()
    tokens, targets = random_batch(2, 5)
    assert model.mean_loss is None
    model.forward(tokens, targets)
    assert model.mean_loss is not None
    model.forward(tokens)
    assert model.mean_loss is None


def test_memory_is_made_when_it_is_needed():
    model = random_model()
    tokens, targets = random_batch(2, 5)
    model.forward(tokens, targets)
    assert (model.grads, model.m, model.v) == (None, None, None)
    model.forward_backward(tokens, targets)
    assert model.grads is not None
    assert model.m is None


def test_a_freed_model_refuses():
    model = random_model()
    model.forward_backward(*random_batch(2, 5))
    model.free()
    message = "GPT2.forward: the model is freed, expected no call after free"
    with pytest.raises(OrderError, match=f"^{re.escape(message)}$"):
        model.forward(*random_batch(2, 5))
    with pytest.raises(OrderError, match=r"^GPT2\.update: the model is freed"):
        model.update(0.1, **ADAMW, weight_decay=0, step=1)


def test_a_nan_weight_stays_visible(backend):
    """R37, R40: loss and norm are NaN, so that the guard before the update sees it."""
    model = golden.golden_model(backend)
    weights = golden.WEIGHTS.copy()
    weights[5] = np.nan  # in wte[0], which the classifier reads for every position
    model.backend.upload(model.params.memory, weights)
    assert np.isnan(model.forward_backward(golden.TOKENS, golden.TARGETS))
    assert np.isnan(model.grad_norm())


# backends and refusals


def test_backends_by_name():
    assert load_backend("numpy") is ops
    assert load_backend("cpu").name == "cpu"
    assert load_backend("webgpu").name == "webgpu"
    assert GPT2(TINY, ops).backend is ops


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("auto", "backend is 'auto', expected cpu, webgpu or numpy"),
        ("cuda", "backend is 'cuda', expected cpu, webgpu or numpy"),
    ],
)
def test_unknown_backends_are_refused(name, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        GPT2(TINY, name)


@pytest.mark.parametrize(
    ("backend", "dtype", "message"),
    [
        (
            "numpy",
            "float16",
            "GPT2: dtype is 'float16', expected float32, bfloat16 or float64",
        ),
        (
            "cpu",
            "float64",
            "GPT2: dtype is float64, expected float32 or bfloat16 on backend cpu."
            " Use backend numpy.",
        ),
        (
            "webgpu",
            "float64",
            "GPT2: dtype is float64, expected float32 on backend webgpu. Use backend numpy.",
        ),
        (
            "webgpu",
            "bfloat16",
            "GPT2: dtype is bfloat16, expected float32 on backend webgpu. Use backend cpu.",
        ),
    ],
)
def test_other_dtypes_are_refused(backend, dtype, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        GPT2(TINY, backend, dtype)


def test_update_refuses_impossible_arguments():
    model = random_model()
    model.zero_grad()
    for step in (0, 1.5):
        message = f"GPT2.update: step is {step}, expected a whole number of at least 1"
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            model.update(0.1, **ADAMW, weight_decay=0, step=step)
    with pytest.raises(UsageError, match=r"^GPT2\.update: decay is '3d', expected all or 2d$"):
        model.update(0.1, **ADAMW, weight_decay=0, step=1, decay="3d")
    good = {**ADAMW, "lr": 0.1, "weight_decay": 0.0, "step": 1}
    for name, value, want in (
        ("beta1", 1.0, "at least 0 and below 1"),
        ("beta2", -0.1, "at least 0 and below 1"),
        ("lr", 1e39, "a finite float32"),
        ("weight_decay", float("nan"), "a finite float32"),
        ("grad_scale", float("inf"), "a finite float32"),
    ):
        with pytest.raises(UsageError) as error:
            model.update(**{**good, name: value})
        assert str(error.value) == f"GPT2.update: {name} is {value}, expected {want}"


def test_a_gradient_of_the_losses_that_float32_does_not_hold():
    model = random_model()
    with pytest.raises(UsageError) as error:
        model.forward_backward(*random_batch(1, 2), dloss=1e39)
    message = "GPT2.forward_backward: dloss is 1e+39, expected a finite float32"
    assert str(error.value) == message


def test_one_layer_and_one_head(backend):
    config = dataclasses.replace(TINY, num_layers=1, num_heads=1)
    tokens, targets = random_batch(2, 3)
    reference = random_model(config)
    model = random_model(config, backend, "float32")
    loss = reference.forward_backward(tokens, targets)
    assert model.forward_backward(tokens, targets) == pytest.approx(loss, rel=1e-5)
    got = np.asarray(model.backend.download(model.grads.memory))
    golden.assert_grads_close(got, flat(reference.grads), config.dims, 1e-5)
