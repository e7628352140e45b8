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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import GPT2Config, TrainConfig
from .formats.tokenizer import GPT2_EOT, Tokenizer
from .generate import sample_mult, start_token
from .rng import random_f32
from .tensors import PARAMS, SEED_ACTS, table_size
from .train import EPS, Loader, require_finite, validate

RNG_STATE = 1337  # same as llm.c

DATA = {  # order -> the first pair of files that exists
    "seed": (
        ("data/tiny_shakespeare_train.bin", "data/tiny_shakespeare_val.bin"),
        ("data/TinyStories_train.bin", "data/TinyStories_val.bin"),
    ),
    "llm.c": (
        (
            "dev/data/tinyshakespeare/tiny_shakespeare_train.bin",
            "dev/data/tinyshakespeare/tiny_shakespeare_val.bin",
        ),
        ("dev/data/tinystories/TinyStories_train.bin", "dev/data/tinystories/TinyStories_val.bin"),
    ),
}
MODEL_NAME = "gpt2_124M.bin"
TOKENIZER_NAME = "gpt2_tokenizer.bin"


def run_recipe(
    model: Any,
    train_loader: Loader,
    val_loader: Loader,
    tokenizer: Tokenizer | None,
    config: TrainConfig,
    *,
    order: str,
    tokenizer_path: str = TOKENIZER_NAME,
) -> Iterator[bytes]:
    """Give what the C program writes to stdout, piece by piece, and train the model.

    tokenizer       None if the file `tokenizer_path` is missing: ids are written
    config          of it count B, T, steps, lr, betas, decay, and what happens how often
    order           `seed` or `llm.c`
    """
    yield from model_lines(model.config, order)
    per_batch = config.tokens_per_micro_batch
    yield _line(f"train dataset num_batches: {train_loader.num_tokens // per_batch}")
    yield _line(f"val dataset num_batches: {val_loader.num_tokens // per_batch}")
    if tokenizer is None:
        yield from missing_tokenizer_lines(tokenizer_path)
    rng_state = RNG_STATE
    told = False
    for step in range(config.steps or 0):
        if config.val_every and step % config.val_every == 0:
            val_loss = validate(model, val_loader, config.val_batches)
            if not told:
                told = True
                yield _activations_line(model.config, config, order)
            yield _line(f"val loss {val_loss:f}")
        if config.sample_every and step > 0 and step % config.sample_every == 0:
            rng_state = yield from _sample(model, tokenizer, config.sample_tokens, rng_state)
        start = time.perf_counter()
        loss = model.forward_backward(*train_loader.next_batch())
        require_finite(f"step {step}", "loss", loss, model.grad_norm())
        model.update(
            config.lr, config.beta1, config.beta2, EPS, config.weight_decay, step + 1, decay="all"
        )
        model.backend.sync()
        milliseconds = 1000 * (time.perf_counter() - start)
        if not told:
            told = True
            yield _activations_line(model.config, config, order)
        yield _line(f"step {step}: train loss {loss:f} (took {milliseconds:f} ms)")


def model_lines(config: GPT2Config, order: str) -> Iterator[bytes]:
    """Give the lines about the model that the C program begins with."""
    yield b"[GPT-2]\n"
    yield _line(f"max_seq_len: {config.max_seq_len}")
    yield _line(f"vocab_size: {config.vocab_size}")
    if order == "llm.c":
        yield _line(f"padded_vocab_size: {config.padded_vocab_size}")
    yield _line(f"num_layers: {config.num_layers}")
    yield _line(f"num_heads: {config.num_heads}")
    yield _line(f"channels: {config.channels}")
    yield _line(f"num_parameters: {table_size(PARAMS, _counted(config, order))}")


def _activations_line(config: GPT2Config, train: TrainConfig, order: str) -> bytes:
    dims = {**_counted(config, order), "B": train.batch_size, "T": train.seq_len}
    return _line(f"num_activations: {table_size(SEED_ACTS, dims)}")


def _counted(config: GPT2Config, order: str) -> dict[str, int]:
    """The sizes by which the program counts: that of April 2024 did not pad the vocabulary."""
    return config.dims if order == "llm.c" else {**config.dims, "Vp": config.vocab_size}


def missing_tokenizer_lines(path: str) -> Iterator[bytes]:
    """Give the C program's warning."""
    yield b"---\n"
    yield _line(f"WARNING: Failed to open the tokenizer file {path}")
    yield b"The Tokenizer is a new feature added April 14 2024.\n"
    yield b"Re-run `python train_gpt2.py` to write it\n"
    yield b"---\n"


def _sample(
    model: Any, tokenizer: Tokenizer | None, count: int, rng_state: int
) -> Generator[bytes, None, int]:
    """Draw count - 1 tokens; the generator's value is the state of the random numbers."""
    maxT, V = model.config.max_seq_len, model.config.vocab_size
    tokens = [min(GPT2_EOT, V - 1) if tokenizer is None else start_token(tokenizer)]
    yield b"generating:\n---\n"
    for _ in range(1, count):
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
