"""Continue a text: the model's logits, one draw, and again.

    z = logits / temperature        among the V of the vocabulary; padded ids take no part
    p = softmax(z)                  true maximum, float64
    top-k  keeps the k likeliest, top-p the fewest that together reach p; at least one stays
    token = first id with coin < cumulated p

Temperature 0 takes the likeliest token, the lowest id if several are. Everything is drawn from
NumPy's Philox, so that a seed gives the same text on every machine that gives the same logits.

A text longer than the model's maxT is cut from the left: each token sees the last maxT before it.
So exactly n tokens come, for any prompt. The whole model runs for every token.

`sample_mult` is the draw of llm.c's C program, bit for bit.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import SamplingConfig
from .errors import NonFiniteError, UsageError
from .formats.tokenizer import Tokenizer


def sample_mult(probabilities: NDArray[np.float32], coin: float) -> int:
    """Draw an id as llm.c does: the first whose cumulated float32 probability passes `coin`.

    probabilities  float32 (V)
    coin           in [0, 1)

    Where rounding leaves the sum at or below the coin, the last id.
    """
    cdf = np.cumsum(probabilities, dtype=np.float32)  # one after the other, as a loop in C
    passed = np.float32(coin) < cdf
    first = int(passed.argmax())
    return first if passed[first] else len(probabilities) - 1


def sampling_rng(seed: int, sample: int = 0) -> np.random.Generator:
    """Give the generator of one sample: its draws don't depend on how many samples there are."""
    return np.random.Generator(np.random.Philox(seed).jumped(sample))


def sample(
    logits: NDArray[Any],
    rng: np.random.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> int:
    """Draw one id from logits (V).

    Raises ConfigError for settings that SamplingConfig refuses, NonFiniteError for logits that are
    NaN or +inf; -inf is a probability of zero.
    """
    SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    z = np.asarray(logits, np.float64)
    highest = z.max()
    if not np.isfinite(highest):
        raise NonFiniteError(f"sample: largest logit is {highest}, expected a finite number")
    if temperature == 0:
        return int(z.argmax())
    with np.errstate(over="ignore"):  # a tiny temperature: -inf, a probability of zero
        z = (z - highest) / temperature
    ids = None
    if top_k is not None or top_p is not None:
        ids = np.argsort(-z, kind="stable")[:top_k]  # likeliest first, lowest id on ties
        z = z[ids]
    p = np.exp(z)
    p /= p.sum()
    if top_p is not None:
        p = p[: 1 + int(np.searchsorted(np.cumsum(p), top_p))]
    cdf = np.cumsum(p)
    drawn = int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))
    return drawn if ids is None else int(ids[drawn])


def generate(
    model: Any,
    tokens: Sequence[int],
    n: int,
    sampling: SamplingConfig | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[int]:
    """Give n ids that continue `tokens`, one by one.

    tokens    at least one id; for an empty text `start_token`
    sampling  default temperature 1, all of the vocabulary
    rng       default one of sampling.seed

    >>> ids = list(generate(model, tokenizer.encode("To be"), 100, SamplingConfig(top_k=10)))
    """
    if not len(tokens):
        raise UsageError("generate: prompt has 0 tokens, expected at least 1. See start_token.")
    if n < 0:
        raise UsageError(f"generate: n is {n}, expected at least 0")
    sampling = sampling or SamplingConfig()
    return _generate(model, list(tokens), n, sampling, rng or sampling_rng(sampling.seed))


def _generate(
    model: Any, tokens: list[int], n: int, sampling: SamplingConfig, rng: np.random.Generator
) -> Iterator[int]:
    maxT = model.config.max_seq_len
    for _ in range(n):
        logits = model.next_logits(np.array([tokens[-maxT:]], np.int32))  # (1, V)
        token = sample(logits[0], rng, sampling.temperature, sampling.top_k, sampling.top_p)
        tokens.append(token)
        yield token


def start_token(tokenizer: Tokenizer | None) -> int:
    """Give the id that an empty text starts from: end-of-text, else newline, else id 0."""
    if tokenizer is None:
        return 0
    if tokenizer.eot is not None:
        return tokenizer.eot
    try:
        return tokenizer.token_table.index(b"\n")
    except ValueError:
        return 0
