"""Whole training steps on a device, beside those of the CPU backend."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from llmpy import cpu
from llmpy.errors import BackendError
from llmpy.webgpu.device import Device

from .. import golden_state as golden
from ..random_model import random_batch
from .training import ADAMW, CONFIG, B, batch, host, model_of, train

pytestmark = pytest.mark.webgpu
MODULE = sys.modules[Device.__module__]  # llmpy.webgpu.device is also a function
STATE = ("params", "m", "v")


def test_twenty_steps_are_those_of_the_cpu(webgpu):
    got, want = train(model_of(webgpu), 20), train(model_of(cpu), 20)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert want[-1, 0] < 0.8 * want[0, 0]  # it learned


def test_gradients_are_those_of_the_cpu(webgpu):
    both = [model_of(backend) for backend in (webgpu, cpu)]
    for model in both:
        model.forward_backward(*batch(0))
    golden.assert_grads_close(*(host(model, "grads") for model in both), CONFIG.dims, 1e-4)


def test_same_bits_in_every_run(webgpu):
    once, again = model_of(webgpu), model_of(webgpu)
    assert train(once, 3, micro_batches=2).tobytes() == train(again, 3, micro_batches=2).tobytes()
    for name in ("grads", *STATE):
        assert host(once, name).tobytes() == host(again, name).tobytes(), name


def test_micro_batches_add_up_to_one_batch(webgpu):
    """Of 4 and of 2 * 2 sequences: loss, norm and gradients are the same but for rounding."""
    tokens, targets = (np.concatenate(x) for x in zip(batch(0), batch(1), strict=True))
    whole, parts = model_of(webgpu), model_of(webgpu)
    whole.train_step([(tokens, targets)], **ADAMW, step=1)
    parts.train_step([(tokens[:B], targets[:B]), (tokens[B:], targets[B:])], **ADAMW, step=1)
    np.testing.assert_allclose(parts.outcome(), whole.outcome(), rtol=1e-5)
    golden.assert_grads_close(host(parts, "grads"), host(whole, "grads"), CONFIG.dims, 1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_a_step_that_is_not_finite_changes_nothing(webgpu, value):
    model = model_of(webgpu)
    train(model, 2)
    weights = host(model, "params")
    spoiled = weights.copy()
    spoiled[-CONFIG.channels] = value  # of lnfb, which each logit sees
    webgpu.upload(model.params.memory, spoiled)
    before = {name: host(model, name).tobytes() for name in STATE}
    assert before["params"] == spoiled.tobytes()
    model.train_step([batch(0)], **ADAMW, step=3, max_norm=1.0)
    assert not np.isfinite(model.outcome()).all()
    assert {name: host(model, name).tobytes() for name in STATE} == before

    webgpu.upload(model.params.memory, weights)
    model.train_step([batch(0)], **ADAMW, step=3, max_norm=1.0)
    assert np.isfinite(model.outcome()).all()
    for name in STATE:
        assert host(model, name).tobytes() != before[name]
        assert np.isfinite(host(model, name)).all()


def test_a_step_is_few_submits_and_reads_loss_and_norm_alone(webgpu):
    device, model = webgpu.device(), model_of(webgpu)
    train(model, 1)
    for reads in (0, 1, 1):
        before = device.submits, device.bytes_read
        model.train_step([batch(0)], **ADAMW, step=2)
        for _ in range(reads):
            model.outcome()
        submits, bytes_read = device.submits - before[0], device.bytes_read - before[1]
        assert submits <= 4
        assert bytes_read == 8 * reads


@pytest.mark.parametrize("count", [1, 7])
def test_micro_batches_go_in_one_submit(webgpu, count):
    device, model = webgpu.device(), model_of(webgpu)
    batches = [batch(seed) for seed in range(count)]
    for step in (1, 2):
        before = device.submits
        model.train_step(batches, **ADAMW, step=step)
        model.outcome()
        if step == 2:  # all is recorded
            assert device.submits - before <= 2


def test_long_work_is_waited_for_in_parts(webgpu, monkeypatch):
    """The bits are the same; and nothing more is told as read."""
    device, model, cut = webgpu.device(), model_of(webgpu), model_of(webgpu)
    train(model, 2)
    monkeypatch.setattr(MODULE, "CUT_S", 1e-9)  # from the first read on, one dispatch is enough
    before = device.submits, device.dispatches, device.bytes_read
    train(cut, 1)
    first = device.submits - before[0], device.dispatches - before[1]
    assert first[0] >= first[1] // MODULE.CUT_AT_FIRST
    train(cut, 1, first=2)
    submits, dispatches = device.submits - before[0], device.dispatches - before[1]
    assert submits - first[0] > 0.9 * (dispatches - first[1])
    assert device.bytes_read - before[2] == 2 * 8
    for name in ("grads", *STATE):
        assert host(cut, name).tobytes() == host(model, name).tobytes(), name


def test_a_model_of_a_device_that_was_replaced(webgpu, monkeypatch):
    """It can be read, and computes no more: no number is silently that of before."""
    device, model = webgpu.device(), model_of(webgpu)
    loss = model.forward(*batch(0))
    weights = host(model, "params")
    monkeypatch.setattr(device, "replaced", True)
    message = (
        "webgpu: an array is on a device that open_device has replaced, expected one on"
        " the device that is open. Make the model again."
    )
    other = random_batch(B, 7, CONFIG.vocab_size)
    for call in (
        lambda: model.forward(*batch(1)),
        lambda: model.forward(*other),
        lambda: model.forward_backward(*batch(0)),
        lambda: model.next_logits(batch(0)[0]),
    ):
        with pytest.raises(BackendError, match=f"^{re.escape(message)}$"):
            call()
    assert host(model, "params").tobytes() == weights.tobytes()
    monkeypatch.setattr(device, "replaced", False)
    assert model.forward(*batch(0)) == loss


def test_updates_that_follow_each_other(webgpu, small_bindings, monkeypatch):
    """Each of the dispatches of an update sees its own settings, however many there are."""
    device, model, again = webgpu.device(), model_of(webgpu), model_of(webgpu)
    for each in (model, again):
        train(each, 1)
    small_bindings(4096)
    for each, wait in ((model, True), (again, False)):
        webgpu.sync()
        before = device.dispatches
        for step, lr in ((2, 3e-3), (3, 1.0)):
            each.update(**{**ADAMW, "lr": lr}, step=step)
            if wait:
                webgpu.sync()
        assert device.dispatches - before > 4
    for name in STATE:
        assert host(again, name).tobytes() == host(model, name).tobytes(), name


def test_how_much_goes_in_a_submit_is_learned_for_each_recording(webgpu, monkeypatch):
    """Half a second for 5 dispatches: CUT_S is that for 10. Of fast ones, some times as many."""
    device = webgpu.device()
    out, inp1, inp2 = (webgpu.alloc((1, 2, 3)) for _ in range(3))
    long, short = MODULE.Recording(), MODULE.Recording()
    for recording, count in ((long, 5), (short, 5)):
        with device.capture() as made:
            for _ in range(count):
                webgpu.residual_forward(out, inp1, inp2)
        recording.commands = made.commands
    webgpu.sync()
    ticks = iter([10.0, 10.5, 20.0, 20.001])
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(perf_counter=ticks.__next__))
    assert long.cut == short.cut == MODULE.CUT_AT_FIRST
    device.replay(long)
    webgpu.sync()
    device.replay(short)
    webgpu.sync()
    assert long.cut == 10 * MODULE.CUT_S
    assert short.cut == MODULE.GROWTH * MODULE.CUT_AT_FIRST


def test_another_shape_of_as_many_tokens(webgpu):
    """What is recorded for a shape is not used for another."""
    both = [model_of(backend) for backend in (webgpu, cpu)]
    for shape in ((3, 8), (2, 12), (6, 4), (3, 8)):
        tokens, targets = random_batch(*shape, CONFIG.vocab_size)
        got, want = (model.forward_backward(tokens, targets) for model in both)
        assert got == pytest.approx(want, rel=1e-5)
        golden.assert_grads_close(*(host(m, "grads") for m in both), CONFIG.dims, 1e-4)


def test_tensors_are_read_as_numpy_reads(webgpu):
    """A tensor of a layer, and one of all; with another dtype; never without a copy."""
    model = model_of(webgpu)
    model.forward_backward(*batch(0))
    whole = model.backend.download(model.grads.wte)
    np.testing.assert_array_equal(np.asarray(model.grads.wte), whole)
    assert np.asarray(model.grads.layer(1).qkvw, np.float64).dtype == np.float64
    assert whole.any()
    with pytest.raises(ValueError, match="always copied"):
        np.asarray(model.grads.wte, copy=False)
    name = webgpu.device().adapter.info["device"]
    assert repr(model.grads.wte) == f"<float32 {whole.shape} on {name}>"
