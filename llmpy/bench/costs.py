"""What each op has to do at least: operations of matrix products, and bytes to and from memory.

PRODUCTS has the operations, multiplications and additions, as a factor and the sizes that it
multiplies, by their letters in tensors.py. They sum up to those of a step in workloads.py: a causal
product of attention counts half of its (T, T), and so does what its backward pass makes again: it
counts nothing. What --recompute 2 makes again is beyond a step's. Ops of no matrix product count 0;
memory is what limits them.

Bytes follow from the op's contract: an array that is read or written moves once, one that is added
to or updated twice. What an op reads again because a cache is too small counts nothing. WHERE_USED
has the arrays of which an op touches only some rows.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..errors import UsageError
from ..ops.contract import Row, rows

# fmt: off
PRODUCTS: dict[str, tuple[int, str]] = {
    "encoder_forward":               (0, ""),
    "encoder_backward":              (0, ""),
    "layernorm_forward":             (0, ""),
    "layernorm_backward":            (0, ""),
    "residual_layernorm_forward":    (0, ""),
    "matmul_forward":                (2, "B T C OC"),
    "matmul_backward":               (4, "B T C OC"),
    "matmul_gelu_forward":           (2, "B T C OC"),
    "matmul_gelu_backward":          (4, "B T C OC"),
    "attention_forward":             (2, "B T T C"),
    "attention_backward":            (4, "B T T C"),
    "gelu_forward":                  (0, ""),
    "gelu_backward":                 (0, ""),
    "residual_forward":              (0, ""),
    "residual_backward":             (0, ""),
    "softmax_forward":               (0, ""),
    "crossentropy_forward":          (0, ""),
    "crossentropy_softmax_backward": (0, ""),
    "logits_forward":                (2, "N C Vp"),
    "classifier_forward":            (2, "B T C Vp"),
    "classifier_forward_backward":   (6, "B T C Vp"),
    "adamw":                         (0, ""),
    "global_norm":                   (0, ""),
    "mean_loss":                     (0, ""),
    "zero":                          (0, ""),  # of the backend's memory, which has no contract
}

WHERE_USED = {
    ("encoder_forward", "wte"):   "B T C",
    ("encoder_forward", "wpe"):   "T C",
    ("encoder_backward", "dwte"): "B T C",
    ("encoder_backward", "dwpe"): "T C",
}
# fmt: on


class Cost(NamedTuple):
    """What one call has to do."""

    operations: int
    bytes: int


def cost_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Cost:
    """Give the cost of a call of an op, from the shapes of its arrays.

    Raises UsageError where docstrings, and so the contracts, were left out.
    """
    if name == "zero":
        return Cost(0, _bytes(args[0]))
    table = rows(getattr(ops, name))
    if not table:
        raise UsageError("--profile needs docstrings, which -OO leaves out. Run Python without it.")
    arrays: list[tuple[Row, Any]] = []
    for i, row in enumerate(table):
        array = args[i] if i < len(args) else kwargs.get(row.name)
        if array is not None:
            arrays.append((row, array))
    sizes = _sizes(arrays)
    factor, letters = PRODUCTS[name]
    operations = factor and factor * math.prod(sizes[letter] for letter in letters.split())
    moved = 0
    for row, array in arrays:
        if all(axis.isdecimal() for axis in row.axes):
            continue  # a number or two
        used = WHERE_USED.get((name, row.name))
        size = _bytes(array)
        if used is not None:
            rows_used = math.prod(sizes[letter] for letter in used.split())
            size = min(size, rows_used * np.dtype(array.dtype).itemsize)
        twice = row.mode in ("adds", "updates") or (
            row.mode == "accumulates" and kwargs.get("accumulate")
        )
        moved += size * (2 if twice else 1)
    return Cost(operations, moved)


def _sizes(arrays: list[tuple[Row, Any]]) -> dict[str, int]:
    """Give the size of each letter that stands alone in a row."""
    sizes: dict[str, int] = {}
    for row, array in arrays:
        for axis, size in zip(row.axes, array.shape, strict=True):
            sizes.setdefault(axis, size)
    return sizes


def _bytes(array: Any) -> int:
    return int(math.prod(array.shape) * np.dtype(array.dtype).itemsize)
