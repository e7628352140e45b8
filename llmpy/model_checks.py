"""What a model is given, checked before anything changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import UsageError
from .setting import FLOAT32_MAX
from .sizes import GPT2Config


def check_tokens(who: str, what: str, tokens: ArrayLike, config: GPT2Config) -> NDArray[np.int32]:
    """Check a batch of tokens against a model's sizes and give it as int32 (B, T).

    Raises UsageError naming the first token out of range with its place.
    """
    try:
        array = np.asarray(tokens)
    except ValueError:  # rows of different lengths
        raise UsageError(f"{who}: {what} is no array, expected (B, T)") from None
    if array.ndim != 2 or array.size == 0:
        raise UsageError(f"{who}: {what} has shape {array.shape}, expected (B, T), each at least 1")
    if array.dtype.kind not in "iu":
        raise UsageError(f"{who}: {what} has dtype {array.dtype}, expected integers")
    T, maxT, V = array.shape[1], config.max_seq_len, config.vocab_size
    if maxT < T:
        raise UsageError(f"{who}: {what} has T = {T}, expected at most max_seq_len = {maxT}")
    wrong = (array < 0) | (array >= V)
    if wrong.any():
        b, t = (int(i) for i in np.unravel_index(int(wrong.argmax()), array.shape))
        raise UsageError(
            f"{who}: {what}[{b}, {t}] is {array[b, t]}, expected 0 to {V - 1},"
            f" because the vocabulary has V = {V} tokens"
        )
    return np.ascontiguousarray(array, np.int32)


def check_batch(
    who: str, tokens: ArrayLike, targets: ArrayLike | None, config: GPT2Config
) -> tuple[NDArray[np.int32], Any]:
    """Check a batch and give it as int32 (B, T); targets that are None stay None."""
    checked = check_tokens(who, "tokens", tokens, config)
    if targets is None:
        return checked, None
    follow = check_tokens(who, "targets", targets, config)
    if follow.shape != checked.shape:
        raise UsageError(
            f"{who}: targets has shape {follow.shape}, expected {checked.shape},"
            " because each token has one"
        )
    return checked, follow


def check_batches(
    who: str, batches: Sequence[tuple[ArrayLike, ArrayLike]], config: GPT2Config
) -> NDArray[np.int32]:
    """Check micro-batches of one shape and give them as int32 (batches, 2, B, T)."""
    if not batches:
        raise UsageError(f"{who}: batches is empty, expected at least 1")
    checked: list[tuple[NDArray[np.int32], Any]] = []
    for i, (tokens, targets) in enumerate(batches):
        which = f"{who}: batches[{i}]"
        if targets is None:
            raise UsageError(f"{which}: targets is None, expected (B, T)")
        checked.append(check_batch(which, tokens, targets, config))
        shape, first = checked[i][0].shape, checked[0][0].shape
        if shape != first:
            raise UsageError(f"{which} has shape {shape}, expected {first}, that of batches[0]")
    return np.array(checked, np.int32)


def check_update(
    who: str, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, step: int, decay: str,
) -> None:  # fmt: skip
    """Raise UsageError for settings of AdamW that are out of range."""
    if decay not in ("all", "2d"):
        raise UsageError(f"{who}: decay is {decay!r}, expected all or 2d")
    if step < 1 or step != int(step):
        raise UsageError(f"{who}: step is {step}, expected a whole number of at least 1")
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise UsageError(f"{who}: {name} is {beta}, expected at least 0 and below 1")
    require_float32(who, lr=lr, eps=eps, weight_decay=weight_decay)


def require_float32(who: str, **scalars: float) -> None:
    """Raise UsageError for a number that is not finite as a float32."""
    for name, value in scalars.items():
        if not abs(value) <= FLOAT32_MAX:  # NaN is not
            raise UsageError(f"{who}: {name} is {value}, expected a finite float32")
