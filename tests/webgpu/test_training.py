"""Whole training steps on a device, beside those of the CPU backend."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from llmpy import cpu
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


def test_long_work_is_cut_for_drivers_that_watch(webgpu, monkeypatch):
    """In several submits the bits are the same, and none has more dispatches than is told."""
    device, model, cut = webgpu.device(), model_of(webgpu), model_of(webgpu)
    train(model, 2)
    monkeypatch.setattr(device, "watched", True)
    monkeypatch.setattr(device, "_cut", 7)
    monkeypatch.setattr(MODULE, "CUT_S", 1e-9)  # so that one is enough from the first read on
    before = device.submits, device.dispatches
    train(cut, 2)
    submits, dispatches = device.submits - before[0], device.dispatches - before[1]
    assert submits >= dispatches // 2 // 7 + dispatches // 2
    for name in ("grads", *STATE):
        assert host(cut, name).tobytes() == host(model, name).tobytes(), name


def test_how_much_goes_in_a_submit_is_learned(webgpu, monkeypatch):
    """Half a second for 100 dispatches: CUT_S is that for 200."""
    device = webgpu.device()
    webgpu.sync()
    ticks = iter([10.0, 10.5])
    monkeypatch.setattr(MODULE, "time", SimpleNamespace(perf_counter=ticks.__next__))
    monkeypatch.setattr(device, "_cut", 64)
    out, inp1, inp2 = (webgpu.alloc((1, 2, 3)) for _ in range(3))
    for _ in range(100):
        webgpu.residual_forward(out, inp1, inp2)
    webgpu.sync()
    assert device._cut == 200 * MODULE.CUT_S


def test_another_shape_of_as_many_tokens(webgpu):
    """What is recorded for a shape is not used for another."""
    both = [model_of(backend) for backend in (webgpu, cpu)]
    for shape in ((3, 8), (2, 12), (6, 4), (3, 8)):
        tokens, targets = random_batch(*shape, CONFIG.vocab_size)
        got, want = (model.forward_backward(tokens, targets) for model in both)
        assert got == pytest.approx(want, rel=1e-5)
        golden.assert_grads_close(*(host(m, "grads") for m in both), CONFIG.dims, 1e-4)
