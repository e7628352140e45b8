"""A tiny model of random weights, and batches for it."""

import numpy as np

from llmpy import ops
from llmpy.model import GPT2
from llmpy.sizes import GPT2Config

TINY = GPT2Config(max_seq_len=9, vocab_size=11, num_layers=2, num_heads=2, channels=8)


def flat(tensors):
    return np.array(ops.download(tensors.memory))


def random_model(config=TINY, backend="numpy", dtype="float64", seed=0, recompute=0):
    model = GPT2(config, backend, dtype, recompute)
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.3, model.num_parameters)
    weights[config.vocab_size * config.channels : config.padded_vocab_size * config.channels] = 0
    model.backend.upload(model.params.memory, weights)
    return model


def random_batch(B, T, V=TINY.vocab_size, seed=1):
    text = np.random.default_rng(seed).integers(0, V, B * T + 1)
    return text[:-1].reshape(B, T), text[1:].reshape(B, T)
