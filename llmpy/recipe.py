"""What llm.c's C program does, line by line: `llmpy train --recipe train_gpt2.c`.

    for step in 0 .. steps - 1:
        every 10:             validation on the first 5 batches of the validation data
        every 20, not at 0:   63 tokens from end-of-text, each one draw
        train on one batch    AdamW on all tensors, constant rate, no clipping

`order` chooses which program. `seed` is that of April 2024: it goes through the training data in
order, and counts by V. `llm.c` is today's: it shuffles, prints padded_vocab_size, counts by Vp.

The C program runs the whole (B, T) buffer for each token that it draws; a token depends on those
before it alone, so here one sequence of t tokens is run. The probabilities are the same up to
rounding. They are float32 and drawn from with xorshift*, state 1337, kept from sample to sample.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .c_lines import activations_line, model_lines
from .config import TrainConfig
from .formats.tokenizer import GPT2_EOT, Tokenizer
from .generate import sample_mult, start_token
from .model import GPT2
from .rng import random_f32
from .train import EPS, Loader, require_finite, validate

RNG_STATE = 1337  # same as llm.c


@dataclass
class Recipe:
    """What the C program has made when its loop begins."""

    model: GPT2
    config: TrainConfig  # its schedule, clipping and micro-batches do not count
    train_loader: Loader
    val_loader: Loader
    tokenizer: Tokenizer | None  # None if its file is missing: ids are written
    tokenizer_path: str
    order: str


def run_recipe(recipe: Recipe) -> Iterator[bytes]:
    """Train the model; give what the C program writes to stdout, piece by piece."""
    model, config, order = recipe.model, recipe.config, recipe.order
    for line in model_lines(model.config, order):
        yield _line(line)
    yield _line(f"train dataset num_batches: {recipe.train_loader.num_batches}")
    yield _line(f"val dataset num_batches: {recipe.val_loader.num_batches}")
    if recipe.tokenizer is None:
        yield from missing_tokenizer_lines(recipe.tokenizer_path)
    if config.steps:  # C tells it in the first forward pass
        yield _line(activations_line(model.config, config.batch_size, config.seq_len, order))
    rng_state = RNG_STATE
    for step in range(config.steps or 0):
        if config.val_every and step % config.val_every == 0:
            val_loss = validate(model, recipe.val_loader, config.val_batches)
            yield _line(f"val loss {val_loss:f}")
        if config.sample_every and step > 0 and step % config.sample_every == 0:
            rng_state = yield from _sample(recipe, rng_state)
        start = time.perf_counter()
        loss = _train_step(recipe, step)
        milliseconds = 1000 * (time.perf_counter() - start)
        yield _line(f"step {step}: train loss {loss:f} (took {milliseconds:f} ms)")


def _train_step(recipe: Recipe, step: int) -> float:
    model, config = recipe.model, recipe.config
    loss = model.forward_backward(*recipe.train_loader.next_batch())
    require_finite(f"step {step}", "loss", loss, model.grad_norm())
    model.update(
        config.lr, config.beta1, config.beta2, EPS, config.weight_decay, step + 1, decay="all"
    )
    model.backend.sync()
    return loss


def missing_tokenizer_lines(path: str) -> Iterator[bytes]:
    """Give the C program's warning."""
    yield b"---\n"
    yield _line(f"WARNING: Failed to open the tokenizer file {path}")
    yield b"The Tokenizer is a new feature added April 14 2024.\n"
    yield b"Re-run `python train_gpt2.py` to write it\n"
    yield b"---\n"


def _sample(recipe: Recipe, rng_state: int) -> Generator[bytes, None, int]:
    """Draw sample_tokens - 1; the generator's value is the state of the random numbers."""
    model, tokenizer = recipe.model, recipe.tokenizer
    maxT, V = model.config.max_seq_len, model.config.vocab_size
    tokens = [min(GPT2_EOT, V - 1) if tokenizer is None else start_token(tokenizer)]
    yield b"generating:\n---\n"
    for _ in range(1, recipe.config.sample_tokens):
        probabilities = softmax(model.next_logits(np.array([tokens[-maxT:]], np.int32))[0])
        rng_state, coin = random_f32(rng_state)
        tokens.append(sample_mult(probabilities, float(coin)))
        if tokenizer is None:
            yield f"{tokens[-1]} ".encode("ascii")
        else:
            yield printable(tokenizer.token_table[tokens[-1]])
    yield b"\n---\n"
    return rng_state


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give the probabilities (V), float32, summed one after the other as in C."""
    exps = np.exp(logits - logits.max(), dtype=np.float32)
    probabilities: NDArray[np.float32] = exps / np.cumsum(exps, dtype=np.float32)[-1]
    return probabilities


def printable(piece: bytes) -> bytes:
    """Give what C prints of a token: up to a NUL, and nothing of a single control byte."""
    piece = piece.split(b"\0", 1)[0]
    if len(piece) == 1 and not (0x20 <= piece[0] < 0x7F or piece in b"\t\n\v\f\r"):
        return b""
    return piece


def _line(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape") + b"\n"
