"""The lines in which the C program tells the sizes of a model.

The program of April 2024 (`seed`) did not pad the vocabulary and counts by V; that of today
(`llm.c`) counts by Vp, and says so.
"""

from .sizes import GPT2Config
from .tensors import PARAMS, SEED_ACTS, table_size


def model_lines(config: GPT2Config, order: str) -> list[str]:
    """Give what is printed when a model is loaded; `order` is `seed` or `llm.c`."""
    padded = [f"padded_vocab_size: {config.padded_vocab_size}"] if order == "llm.c" else []
    return [
        "[GPT-2]",
        f"max_seq_len: {config.max_seq_len}",
        f"vocab_size: {config.vocab_size}",
        *padded,
        f"num_layers: {config.num_layers}",
        f"num_heads: {config.num_heads}",
        f"channels: {config.channels}",
        f"num_parameters: {table_size(PARAMS, counted_dims(config, order))}",
    ]


def activations_line(config: GPT2Config, B: int, T: int, order: str) -> str:
    """Give what is printed at the first forward pass."""
    dims = {**counted_dims(config, order), "B": B, "T": T}
    return f"num_activations: {table_size(SEED_ACTS, dims)}"


def counted_dims(config: GPT2Config, order: str) -> dict[str, int]:
    """Give the sizes by which the program counts."""
    return config.dims if order == "llm.c" else {**config.dims, "Vp": config.vocab_size}
