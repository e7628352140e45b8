"""Models to train on a device, and what a training leaves."""

import numpy as np

from llmpy.sizes import GPT2Config

from ..random_model import random_batch, random_model

# two layers; rows of every kind are no multiple of 64 elements, and V < Vp
CONFIG = GPT2Config(max_seq_len=33, vocab_size=131, num_layers=2, num_heads=3, channels=36)
B, T = 3, 29
ADAMW = {"lr": 3e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def model_of(backend):
    """Make a model of random weights in float32."""
    return random_model(CONFIG, backend, "float32")


def batch(seed):
    """Give tokens and targets."""
    return random_batch(B, T, CONFIG.vocab_size, seed)


def train(model, steps, micro_batches=1, first=1):
    """Train on the same few batches over and over; give loss and norm of each step."""
    outcomes = []
    for step in range(first, first + steps):
        batches = [batch(seed) for seed in range(micro_batches)]
        model.train_step(batches, **ADAMW, step=step, max_norm=1.0, decay="2d")
        outcomes.append(model.outcome())
    return np.array(outcomes)


def host(model, name):
    """Give all elements of `params`, `grads`, `m` or `v`."""
    return np.array(model.backend.download(getattr(model, name).memory))
