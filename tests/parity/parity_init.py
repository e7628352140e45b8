"""Initial weights beside those that PyTorch draws from the same seed, in llm.c's order."""

import math

import numpy as np
import pytest
import torch

from llmpy import ops
from llmpy.rng import init_params
from llmpy.sizes import GPT2Config, descriptor_config
from llmpy.tensors import PARAMS, Tensors

CONFIGS = {
    "d6": descriptor_config("d6"),
    "d12": descriptor_config("d12"),
    # draws of fewer than 16, and of numbers that 16 does not divide
    "tiny": GPT2Config(max_seq_len=3, vocab_size=7, num_layers=2, num_heads=1, channels=1),
    "odd": GPT2Config(max_seq_len=5, vocab_size=11, num_layers=2, num_heads=3, channels=3),
}


def ulps(a, b):
    """Count the float32 numbers between two arrays, element by element."""
    keys = [x.view(np.int32).astype(np.int64) for x in (a, b)]
    keys = [np.where(k < 0, -(k & 0x7FFFFFFF), k) for k in keys]
    return np.abs(keys[0] - keys[1])


def near(got, want, std):
    """Within 4 ulp of a number of the size of std, which is where normal_'s own paths differ."""
    got, want = np.asarray(got).reshape(-1), np.asarray(want).reshape(-1)
    limit = 4 * np.spacing(np.float32(std))
    return bool(((ulps(got, want) <= 4) | (np.abs(got - want) <= limit)).all())


@pytest.mark.parametrize(
    ("name", "seed"), [("d6", 42), ("d12", 42), ("tiny", 42), ("tiny", 137), ("odd", 137)]
)
def test_init_draws_what_pytorch_draws(name, seed):
    config = CONFIGS[name]
    params = Tensors(ops, PARAMS, config.dims, memory=init_params(config, seed))
    generator = torch.Generator().manual_seed(seed)

    def draw(got, std):
        want = torch.empty(got.shape).normal_(0, std, generator=generator).numpy()
        assert near(got, want, std)

    V, L = config.vocab_size, config.num_layers
    draw(params.wte[:V], 0.02)
    draw(params.wpe, 0.02)
    for l in range(L):
        p = params.layer(l)
        draw(p.qkvw, 0.02)
        draw(p.attprojw, 0.02 / math.sqrt(2 * L))
        draw(p.fcw, 0.02)
        draw(p.fcprojw, 0.02 / math.sqrt(2 * L))
    assert not params.wte[V:].any()
    for tensor in ("ln1b", "ln2b", "lnfb", "qkvb", "attprojb", "fcb", "fcprojb"):
        assert not getattr(params, tensor).any()
    for tensor in ("ln1w", "ln2w", "lnfw"):
        assert (getattr(params, tensor) == 1).all()
