"""A tiny model, vocabulary and data on disk, for tests of whole commands on the reference."""

import numpy as np

from llmpy.formats.checkpoint import write_checkpoint
from llmpy.formats.tokenizer import Tokenizer, write_tokenizer
from llmpy.formats.tokens import write_tokens
from llmpy.rng import init_params
from llmpy.sizes import GPT2Config

CONFIG = GPT2Config(max_seq_len=16, vocab_size=30, num_layers=1, num_heads=2, channels=8)
CHARACTERS = "\n !" + "abcdefghijklmnopqrstuvwxyz" + "\u00e9"  # the last takes two bytes
TOKENIZER = Tokenizer([c.encode() for c in CHARACTERS], eot=None)


def write_model(path, config=CONFIG, seed=1, memory=None):
    """Write a checkpoint of random weights that are large enough to tell tokens apart."""
    write_checkpoint(path, config, init_params(config, seed) * 8 if memory is None else memory)
    return str(path)


def write_files(folder, rng, train=400, validation=200):
    """Write model.bin, tokenizer.bin, train.bin and val.bin; give the arguments that name them."""
    write_model(folder / "model.bin")
    write_tokenizer(folder / "tokenizer.bin", TOKENIZER)
    for name, count in (("train.bin", train), ("val.bin", validation)):
        write_tokens(folder / name, rng.integers(0, CONFIG.vocab_size, count))
    return [
        *("--init", str(folder / "model.bin")),
        *("--train-data", str(folder / "train.bin")),
        *("--val-data", str(folder / "val.bin")),
        *("--backend", "numpy"),
    ]


def int32_file(path, tokens):
    """Write a token file of April 2024: no header."""
    np.asarray(tokens, "<i4").tofile(path)
    return str(path)
