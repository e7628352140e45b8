"""How much memory the kernels take besides their arguments, before it is taken.

It is reckoned in Python alone: nothing compiles before the user is told.
"""

from collections.abc import Iterator, Mapping

from numba import get_num_threads

from .attention import scratch_words as attention_words
from .classifier import chunk_rows
from .gemm import KC, can_lie, piece_of, plan
from .layernorm import ROWS
from .memory import max_threads


def scratch_bytes(dims: Mapping[str, int], itemsize: int = 4) -> int:
    """Give how many bytes a training step's kernels keep as scratch, in the dtype that takes more.

    dims  the letters of a model, and B and T
    """
    return itemsize * max(sum(scratch_words(dims, bf16).values()) for bf16 in (False, True))


def scratch_words(dims: Mapping[str, int], bf16: bool) -> dict[str, int]:
    """Give the words of scratch by use, as memory.py keeps them."""
    B, T, C, V, NH = (dims[letter] for letter in ("B", "T", "C", "V", "NH"))
    positions = B * T
    chunk = min(positions, chunk_rows(V))  # of the classifier
    words = {
        **attention_words(B, T, NH, C // NH, bf16),
        "logits": chunk * V,
        "sums": -(-positions // piece_of(bf16)) * 4 * C,
        "layernorm": 2 * -(-positions // ROWS) * C,
    }
    piece = piece_of(bf16)
    products = set(layer_products(positions, C, piece))
    for rows in {chunk, positions % chunk or chunk}:  # the last chunk may be shorter
        products |= set(linear_products(rows, C, V, piece, KC))
    for M, N, K, unit_k, terms in products:
        in_place = unit_k and can_lie(M, K, bf16)
        made = plan(
            M,
            N,
            K,
            piece=terms,
            bf16=bf16,
            in_place=in_place,
            threads=get_num_threads(),
            most=max_threads(),
        )
        for use, count in made.scratch.items():
            words[use] = max(words.get(use, 0), count)
    return words


def layer_products(positions: int, C: int, piece: int) -> Iterator[tuple[int, int, int, bool, int]]:
    """Give M, N, K, a_unit_k and piece of a layer's matrix products, forward and backward."""
    for inputs, outputs in ((C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)):
        yield from linear_products(positions, inputs, outputs, piece, piece)


def linear_products(
    rows: int, inputs: int, outputs: int, piece: int, piece_of_rows: int
) -> Iterator[tuple[int, int, int, bool, int]]:
    """Give the same of inp weight^T, its dinp and its dweight, whose sums run over rows."""
    yield rows, outputs, inputs, True, piece
    yield rows, inputs, outputs, True, piece
    yield outputs, inputs, rows, False, piece_of_rows
