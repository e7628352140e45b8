"""What is measured of a device: the kernels do what is counted."""

import numpy as np
import pytest

from llmpy.bench.steps import counts_of, traffic_between
from llmpy.webgpu import peak
from llmpy.webgpu.kernels import run

from ..random_model import TINY, random_batch, random_model

pytestmark = pytest.mark.webgpu


def arrays(webgpu, rng, count):
    """Give two arrays of the device and their values."""
    values = rng.uniform(0, 0.5, (2, count)).astype(np.float32)
    made = [webgpu.alloc((count,)) for _ in values]
    for array, value in zip(made, values, strict=True):
        webgpu.upload(array, value)
    return made, values.astype(np.float64)


def test_multiplications_are_those_that_are_counted(webgpu, rng):
    (out, inp), (_, x) = arrays(webgpu, rng, 4 * peak.WG)
    run("peak", "multiply_add", {0: out, 1: inp}, 1, (3,))
    sums = [x + i for i in range(8)]
    rounds = peak.OPERATIONS // (2 * 4 * len(sums))  # of each sum, by vectors of four
    for _ in range(3 * rounds):
        sums = [s * x + x for s in sums]
    np.testing.assert_allclose(webgpu.download(out), sum(sums), rtol=1e-5)


def test_the_stream_reads_both_and_writes_one(webgpu, rng):
    (out, inp), (before, x) = arrays(webgpu, rng, 4 * peak.WG + 4)
    run("peak", "stream", {0: out, 1: inp}, 2)
    np.testing.assert_allclose(webgpu.download(out), before * 0.5 + x, rtol=1e-6)


def test_what_is_measured_is_more_than_nothing(webgpu, monkeypatch):
    monkeypatch.setattr(peak, "STREAMED", 1 << 20)
    monkeypatch.setattr(peak, "VECTORS", 1 << 12)
    device = webgpu.device()
    assert peak.peak_gflops(device) > 0.01
    assert peak.bandwidth_gbs(device) > 0.001


def test_what_a_step_asks_is_counted(webgpu):
    model = random_model(backend="webgpu", dtype="float32")
    step = (1e-3, 0.9, 0.95, 1e-8, 0.1)
    batches = [random_batch(2, 5)]
    for i in (1, 2, 3):
        if i == 2:  # all is compiled and recorded
            before = counts_of(webgpu)
        model.train_step(batches, *step, i, max_norm=1.0)
        webgpu.sync()
    traffic = traffic_between(before, counts_of(webgpu), 2)
    assert traffic["dispatches"] > 10 * TINY.num_layers
    assert traffic["submits"] == 1
    assert traffic["bytes_read_back"] == 0
