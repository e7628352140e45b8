"""The whole model beside PyTorch, live: logits, loss, gradients, ten AdamW steps.

small  odd sizes, V < Vp, large weights    1e-5 in relative L2 norm of each tensor
124M   GPT-2's own sizes, B 4, T 64        1e-4
"""

import numpy as np
import pytest
import torch

from llmpy.model import GPT2
from llmpy.sizes import GPT2Config, descriptor_config
from tests import golden_state as golden
from tests.parity.gpt2_torch import TorchGPT2

SMALL = GPT2Config(max_seq_len=37, vocab_size=301, num_layers=3, num_heads=5, channels=40)
SETTINGS = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8}


def random_weights(config, rng, std):
    """Draw every tensor, LayerNorms and biases too, so that no gradient is trivial."""
    parts = []
    for name, start, stop in golden.tensor_ranges(config.dims):
        part = rng.standard_normal(stop - start, np.float32) * np.float32(std)
        if name in ("ln1w", "ln2w", "lnfw"):
            part += 1
        if name == "wte":
            part[config.vocab_size * config.channels :] = 0
        parts.append(part)
    return np.concatenate(parts)


def random_batch(config, rng, B, T):
    text = rng.integers(0, config.vocab_size, B * T + 1)
    return text[:-1].reshape(B, T), text[1:].reshape(B, T)


def both(config, backend, rng, std):
    weights = random_weights(config, rng, std)
    model = GPT2(config, backend)
    model.backend.upload(model.params.memory, weights)
    return model, TorchGPT2(config, weights)


def compare(config, backend, B, T, std, limit, seed=0):
    """Compare one pass, then ten steps of AdamW."""
    rng = np.random.default_rng(seed)
    model, peer = both(config, backend, rng, std)
    tokens, targets = random_batch(config, rng, B, T)
    x, y = torch.from_numpy(tokens), torch.from_numpy(targets)
    with torch.no_grad():
        assert golden.relative_l2(model.forward(tokens), peer(x).numpy()) <= limit

    losses = []
    optimizer = peer.adamw(0.01, decay_2d=False, **SETTINGS)
    for step in range(10):
        optimizer.zero_grad()
        loss = peer.loss(x, y)
        loss.backward()
        assert model.forward_backward(tokens, targets) == pytest.approx(loss.item(), rel=limit)
        if step == 0:
            got = np.asarray(model.backend.download(model.grads.memory))
            golden.assert_grads_close(got, peer.grads(), config.dims, limit)
        optimizer.step()
        model.update(1e-4, 0.9, 0.999, 1e-8, 0.01, step + 1)
        losses.append(loss.item())
    assert losses[-1] < 0.99 * losses[0]  # it learned


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(("B", "T"), [(1, 1), (2, 37), (3, 16)])
def test_small_model(backend, B, T):
    compare(SMALL, backend, B, T, std=0.2, limit=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_training_with_clip_and_decay_of_2d_tensors(backend):
    rng = np.random.default_rng(1)
    model, peer = both(SMALL, backend, rng, 0.2)
    optimizer = peer.adamw(0.1, decay_2d=True, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    for step in range(10):
        tokens, targets = random_batch(SMALL, rng, 2, 20)
        optimizer.zero_grad()
        loss = peer.loss(torch.from_numpy(tokens), torch.from_numpy(targets))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(peer.params.values(), 1.0).item()
        optimizer.step()
        assert model.forward_backward(tokens, targets) == pytest.approx(loss.item(), rel=1e-5)
        assert model.grad_norm() == pytest.approx(norm, rel=1e-5)
        scale = min(1.0, 1 / model.grad_norm())
        model.update(1e-3, 0.9, 0.95, 1e-8, 0.1, step + 1, grad_scale=scale, decay="2d")


def test_gpt2_124m():
    compare(descriptor_config("d12"), "cpu", 4, 64, std=0.02, limit=1e-4)
