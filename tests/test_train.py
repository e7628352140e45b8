"""The training loop: its order, its arithmetic against the model's own parts, and its refusals."""

import math

import numpy as np
import pytest

from llmpy.config import TrainConfig
from llmpy.data.loader import DataLoader
from llmpy.errors import ConfigError, NonFiniteError
from llmpy.generate import generate, sampling_rng
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.run_folder import RunFolder
from llmpy.schedule import learning_rate
from llmpy.sizes import GPT2Config
from llmpy.tensors import DECAYED
from llmpy.train import (
    Checkpoint,
    Finished,
    Sample,
    Speed,
    Step,
    Validation,
    train,
    validate,
)

SIZES = GPT2Config(max_seq_len=8, vocab_size=20, num_layers=2, num_heads=2, channels=8)


def make_model(seed=3, dtype="float64"):
    model = GPT2(SIZES, "numpy", dtype)
    model.backend.upload(model.params.memory, init_params(SIZES, seed) * 5)
    return model


def loader(tokens, B=2, T=8, **how):
    return DataLoader.from_tokens(np.asarray(tokens, np.int32), B, T, **how)


def settings(**values):
    base = {
        "batch_size": 2, "seq_len": 8, "steps": 4, "lr": 1e-2, "val_every": 2, "val_batches": 2,
        "sample_every": 2, "sample_tokens": 3,
    }  # fmt: skip
    return TrainConfig(**{**base, **values})


@pytest.fixture
def tokens(rng):
    return rng.integers(0, 20, 500)


def losses(events):
    return [e.loss for e in events if isinstance(e, Step)]


def test_order_of_events(tokens, tmp_path):
    folder = RunFolder(tmp_path)
    folder.start()
    config = settings(checkpoint_every=2, steps=5)
    events = list(train(make_model(), loader(tokens), loader(tokens), config, folder=folder))
    assert [(type(e), getattr(e, "step", None)) for e in events] == [
        (Validation, 0), (Step, 0), (Step, 1),
        (Validation, 2), (Sample, 2), (Checkpoint, 2), (Step, 2), (Step, 3),
        (Validation, 4), (Sample, 4), (Checkpoint, 4), (Step, 4),
        (Validation, 5), (Sample, 5), (Checkpoint, 5), (Finished, None),
    ]  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "DONE_00000002", "DONE_00000004", "DONE_00000005", "main.log",
        "model_00000002.bin", "model_00000004.bin", "model_00000005.bin",
    ]  # fmt: skip
    want = []
    for e in events:
        if isinstance(e, Validation):
            want.append(f"s:{e.step} tel:{e.loss:.4f}")
        elif isinstance(e, Step):
            want.append(f"s:{e.step} trl:{e.loss:.4f} lr:{e.lr:.6f} norm:{e.norm:.2f}")
    assert (tmp_path / "main.log").read_text().splitlines() == want


def test_what_takes_long_is_told(tokens):
    told = []
    config = settings(steps=1, val_every=1, sample_every=1, val_batches=2, sample_tokens=3)
    list(train(make_model(), loader(tokens), loader(tokens), config, working=told.append))
    validation, sample = ["validation 1/2", "validation 2/2"], [f"sample {n}/3" for n in (1, 2, 3)]
    assert told == [*validation, *validation, *sample]


def test_nothing_between_steps_when_all_are_off(tokens):
    config = settings(val_every=0, sample_every=0)
    events = list(train(make_model(), loader(tokens), loader(tokens), config))
    assert [type(e) for e in events] == [Step] * 4 + [Finished]


def test_a_run_of_no_steps_tells_the_model_as_it_is(tokens, tmp_path):
    folder = RunFolder(tmp_path)
    folder.start()
    model = make_model(dtype="float32")
    before = model.params.memory.copy()
    val = loader(tokens)
    events = list(train(model, loader(tokens), val, settings(steps=0), folder=folder))
    assert [type(e) for e in events] == [Validation, Checkpoint, Finished]
    assert np.array_equal(GPT2.from_checkpoint(events[1].path, "numpy").params.memory, before)


def test_steps_are_those_of_the_model_clipped_and_scheduled(tokens):
    config = settings(
        steps=6, warmup=2, schedule="linear", final_lr_frac=0.1, grad_clip=0.5,
        weight_decay=0.1, beta1=0.8, beta2=0.9, val_every=0, sample_every=0,
    )  # fmt: skip
    model, twin = make_model(), make_model()
    events = list(train(model, loader(tokens, shuffle=True), None, config))
    batches = loader(tokens, shuffle=True)
    for step, event in zip(range(6), events, strict=False):
        twin.zero_grad()
        loss = twin.forward(*batches.next_batch())
        twin.backward()
        norm = math.sqrt(sum(float(np.sum(g * g)) for _, g in twin.grads.items()))
        lr = learning_rate(step, lr=1e-2, schedule="linear", warmup=2, steps=6, final_lr_frac=0.1)
        twin.update(lr, 0.8, 0.9, 1e-8, 0.1, step + 1, grad_scale=min(1, 0.5 / norm), decay="2d")
        assert (event.loss, event.norm, event.lr) == pytest.approx((loss, norm, lr), rel=1e-9)
        assert event.norm > 0.5  # or this clips nothing
    # the key third of qkvb has a gradient of rounding alone, of which AdamW makes lr * 1e-17 / eps
    np.testing.assert_allclose(model.params.memory, twin.params.memory, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("clip", [1.0, 0.01, 0.0])
def test_accumulation_gives_the_loss_norm_and_weights_of_one_batch(tokens, clip):
    results = []
    for B in (8, 4, 1):
        model = make_model()
        config = settings(
            batch_size=B, total_batch_size=64, steps=3, grad_clip=clip, val_every=0,
            sample_every=0,
        )  # fmt: skip
        events = list(train(model, loader(tokens, B), None, config))
        steps = [(e.loss, e.norm) for e in events if isinstance(e, Step)]
        results.append((steps, model.params.memory))
    for steps, memory in results[1:]:
        np.testing.assert_allclose(steps, results[0][0], rtol=1e-9)
        np.testing.assert_allclose(memory, results[0][1], rtol=1e-6, atol=1e-9)


def test_decay_shrinks_2d_tensors_alone_by_lr_times_decay(tokens):
    before = make_model().params.memory.copy()
    models = []
    for decay in (0.0, 1000.0):
        model = make_model()
        config = settings(steps=1, lr=1e-5, weight_decay=decay, val_every=0, sample_every=0)
        list(train(model, loader(tokens), None, config))
        models.append(model)
    start = 0
    for name, plain in models[0].params.items():
        decayed = getattr(models[1].params, name)
        old = before[start : start + plain.size].reshape(plain.shape)
        start += plain.size
        want = 1e-5 * 1000 * old if name in DECAYED else np.zeros_like(old)
        np.testing.assert_allclose(plain - decayed, want, rtol=1e-6, atol=1e-13)


def test_validation_is_the_mean_from_the_beginning_each_time(tokens):
    model, val = make_model(), loader(tokens[:100])
    assert val.batches_per_epoch == 6
    means = [model.forward(*val.next_batch()) for _ in range(6)]
    assert validate(model, val, 2) == pytest.approx(np.mean(means[:2]), rel=1e-12)
    assert validate(model, val, -1) == pytest.approx(np.mean(means), rel=1e-12)
    assert validate(model, val, 8) == pytest.approx(np.mean(means + means[:2]), rel=1e-12)


def test_samples_are_those_of_generate_and_the_same_each_time(tokens):
    config = settings(steps=2, lr=0.0, sample_every=1, sample_tokens=12, val_every=0, seed=4)
    model = make_model()
    events = list(train(model, loader(tokens), None, config, start_token=7))
    samples = [e.tokens for e in events if isinstance(e, Sample)]
    assert samples == [tuple(generate(model, [7], 12, rng=sampling_rng(4)))] * 2


def test_overfit_takes_the_first_batch_at_every_step(tokens):
    config = settings(overfit=True, steps=30, val_every=0, sample_every=0)
    model = make_model()
    first = make_model().forward(*loader(tokens).next_batch())
    got = losses(train(model, loader(tokens), None, config))
    assert got[0] == pytest.approx(first, rel=1e-12)
    assert got[-1] < 0.3 * got[0]  # other batches of random tokens could not be learned


def test_steps_default_to_one_pass(tokens):
    config = settings(steps=None, total_batch_size=32, val_every=0, sample_every=0)
    assert len(losses(train(make_model(), loader(tokens), None, config))) == 500 // 32


def test_settings_that_do_not_fit_are_refused_at_the_call(tokens):
    with pytest.raises(ConfigError) as error:
        train(make_model(), loader(tokens), None, settings(seq_len=9))
    assert str(error.value) == (
        "--seq-len is 9, expected at most 8, the model's max_seq_len. The nearest is 8."
    )
    with pytest.raises(ConfigError) as error:
        train(make_model(), loader(tokens), None, settings(steps=None, total_batch_size=512))
    assert str(error.value) == (
        "--total-batch-size is 512 tokens, expected at most 500, the tokens of the training"
        " data. Give --steps for more than one pass."
    )


# what is not finite


def poisoned(value):
    model = make_model(dtype="float32")
    model.params.layer(1).fcw[0, 0] = value
    return model


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, on the way to the message
def test_a_weight_that_is_not_finite_stops_the_first_step(tokens, tmp_path, value):
    model = poisoned(value)
    before = model.params.memory.copy()
    folder = RunFolder(tmp_path)
    folder.start()
    with pytest.raises(NonFiniteError) as error:
        list(train(model, loader(tokens), loader(tokens), settings(), folder=folder))
    assert str(error.value) == (
        "train: loss is nan and gradient norm nan at step 1, expected finite numbers."
        " Nothing was updated or written."
    )
    assert np.array_equal(model.params.memory, before, equal_nan=True)
    assert [p.name for p in tmp_path.iterdir()] == ["main.log"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_of_no_steps_refuses_a_model_that_is_not_finite(tokens):
    with pytest.raises(NonFiniteError) as error:
        list(train(poisoned(np.nan), loader(tokens), loader(tokens), settings(steps=0)))
    assert str(error.value) == (
        "train: validation loss is nan at step 0, expected finite numbers."
        " Nothing was updated or written."
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_that_overflow_are_never_written(tokens, tmp_path):
    folder = RunFolder(tmp_path)
    folder.start()
    config = settings(
        steps=50, lr=1e38, grad_clip=0, val_every=0, sample_every=0, checkpoint_every=1
    )
    with pytest.raises(
        NonFiniteError, match=r"^train: .*norm .*at step \d+, expected|^train: after"
    ):
        list(train(make_model(dtype="float32"), loader(tokens), None, config, folder=folder))
    for path in tmp_path.glob("model_*.bin"):
        assert np.isfinite(GPT2.from_checkpoint(path, "numpy").params.memory).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_last_update_is_checked_before_it_is_written(tokens, tmp_path):
    class Broken(GPT2):
        def train_step(self, *args, **kwargs):
            super().train_step(*args, **kwargs)
            self.params.lnfb[0] = np.nan

    model = Broken(SIZES, "numpy", "float32")
    model.backend.upload(model.params.memory, init_params(SIZES, 3))
    folder = RunFolder(tmp_path)
    folder.start()
    config = settings(steps=1, val_every=0, sample_every=0)
    events = train(model, loader(tokens), None, config, folder=folder)
    norm = next(events).norm
    with pytest.raises(NonFiniteError) as error:
        list(events)
    assert str(error.value) == (
        f"train: after step 1 of gradient norm {norm:g}: checkpoint: weights are nan to nan,"
        " expected finite numbers. Nothing was written."
    )
    assert [p.name for p in tmp_path.iterdir()] == ["main.log"]


# lines


def test_lines_are_those_of_llmc():
    step = Step(
        step=0, steps=40, loss=4.3677779, loss_z=None, norm=15.37, norm_z=None, lr=1e-4,
        seconds=1.17, tokens_per_second=218.8,
    )  # fmt: skip
    assert step.line() == (
        "step    1/40 | loss 4.367778 (+nanz)| norm 15.3700 (+nanz)| lr 1.00e-04 | 1170.00 ms"
        " | -100.0% bf16 MFU | 219 tok/s"
    )
    later = Step(
        step=999, steps=19560, loss=3.25, loss_z=-0.456, norm=0.31239, norm_z=2.0, lr=6e-4,
        seconds=0.25, tokens_per_second=2097152,
    )  # fmt: skip
    assert later.line() == (
        "step 1000/19560 | loss 3.250000 (-0.46z)| norm 0.3124 (+2.00z)| lr 6.00e-04"
        " | 250.00 ms | -100.0% bf16 MFU | 2097152 tok/s"
    )
    assert Validation(3, 11.00915).line() == "val loss 11.009150"
    assert Finished(10, 0.0123).line() == "total average iteration time: 12.300000 ms"
    assert Finished(1, None).line() is None


def test_speed_leaves_out_the_first_step_and_is_unbiased():
    speed = Speed()
    assert speed.update(100, 2.0, first=True) == 50
    assert speed.update(100, 1.0, first=False) == pytest.approx(100)
    assert speed.update(100, 0.5, first=False) == pytest.approx(
        (0.95 * 0.05 * 100 + 0.05 * 200) / (1 - 0.95**2)
    )
    assert (speed.total, speed.counted) == (1.5, 2)


@pytest.mark.parametrize(("B", "T"), [(3, 8), (2, 4)])
def test_batches_of_another_size_than_the_settings_are_refused(tokens, B, T):
    """The gradient of the mean would be of another number of positions."""
    events = train(make_model(), loader(tokens, B, T), None, settings())
    with pytest.raises(ConfigError) as error:
        next(events)
    assert str(error.value) == (
        f"train: the loader's batch has shape ({B}, {T}), expected"
        " (--batch-size, --seq-len) = (2, 8)"
    )
