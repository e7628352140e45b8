"""A training step of a model of one layer, on Dawn and on a page in Chromium, by the same kernels.

The truth is the reference, in float64.
"""

import json

import numpy as np
import pytest

from llmpy import webgpu
from llmpy.sizes import GPT2Config
from tests import golden_state as golden
from tests.random_model import random_batch, random_model

from . import chromium
from .kernel_files import FILES
from .recording import values

CONFIG = GPT2Config(max_seq_len=19, vocab_size=61, num_layers=1, num_heads=3, channels=24)
B, T = 3, 13
SETTINGS = {
    "lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "step": 1,
    "max_norm": 0.5, "decay": "2d",
}  # fmt: skip


def trained(backend, dtype):
    """Give a model after one step."""
    model = random_model(CONFIG, backend, dtype)
    model.train_step([random_batch(B, T, CONFIG.vocab_size)], **SETTINGS)
    return model


def results_of(model):
    """Give what a step leaves, by name."""
    arrays = {name: getattr(model, name).memory for name in ("params", "grads", "m", "v")}
    return {"outcome": model._outcome, **arrays}


@pytest.fixture(scope="module")
def want():
    model = trained("numpy", "float64")
    return {name: np.array(array) for name, array in results_of(model).items()}


@pytest.fixture(scope="module")
def step(device):
    """A step on Dawn: what it gave, and its recording."""
    found = results_of(trained(webgpu, "float32"))
    device.wait()
    recording = {**device.recording, "commands": list(device.recording["commands"])}
    recording["results"] = {name: device.place(array) for name, array in found.items()}
    return {name: webgpu.download(array) for name, array in found.items()}, recording


def compare(got, want):
    """Compare loss, norm and gradients; then what AdamW made of them."""
    np.testing.assert_allclose(got["outcome"], want["outcome"], rtol=1e-5)
    golden.assert_grads_close(got["grads"], want["grads"], CONFIG.dims, 1e-4)
    golden.assert_grads_close(got["m"], want["m"], CONFIG.dims, 1e-4)
    before = np.array(random_model(CONFIG).params.memory)
    for name, start, stop in golden.tensor_ranges(CONFIG.dims):
        part = slice(start, stop)
        assert golden.relative_l2(got["v"][part], want["v"][part]) <= 1e-4 or name == "qkvb"
        if name != "qkvb":  # the sign of what is zero in exact arithmetic decides there
            change = [x["params"][part] - before[part] for x in (got, want)]
            assert golden.relative_l2(*change) <= 1e-3, name


def test_dawn_trains_as_the_reference(step, want):
    compare(step[0], want)


def test_a_page_in_chromium_trains_as_the_reference(step, want, tmp_path):
    files = {f"{stem}.wgsl": code for stem, code in FILES.items()}
    for name in ("replay.html", "replay.js"):
        files[name] = (chromium.PAGES / name).read_text(encoding="utf-8")
    files["step.json"] = json.dumps(step[1])
    with chromium.served(files) as address:
        told = chromium.open_and_call(f"{address}/replay.html", "replay('step.json')", tmp_path)
    compare({name: values(text) for name, text in told["results"].items()}, want)
    assert told["adapter"]
