"""How much memory the kernels take besides their arguments, about, before it is taken."""

from collections.abc import Mapping

from .attention import scratch_words as attention_words
from .caches import second_cache_bytes
from .classifier import chunk_rows
from .gemm import B_PANEL, KC
from .memory import max_threads


def scratch_bytes(dims: Mapping[str, int], itemsize: int = 4) -> int:
    """Give about how many bytes a training step's kernels keep as scratch.

    dims  the letters of a model, and B and T
    """
    T, C = dims["T"], dims["C"]
    positions = dims["B"] * T
    logits = min(positions, chunk_rows(dims["V"])) * dims["V"]  # of a chunk of the classifier
    block = min(positions * min(KC, 4 * C), second_cache_bytes() // 8)  # of A, packed for L2
    packed = max_threads() * (block + B_PANEL) + (4 * C * C if positions > KC else 0)
    layernorm = positions * C // 8  # sums over a few rows
    attention = attention_words(dims["B"], T, dims["NH"], C // dims["NH"])
    return itemsize * (logits + packed + layernorm + attention)
