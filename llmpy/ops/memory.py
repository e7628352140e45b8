"""The memory of a backend whose arrays are NumPy's."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def alloc(shape: Sequence[int], dtype: str = "float32") -> Any:
    """Allocate an array of zeros."""
    return np.zeros(tuple(shape), dtype)


def alloc_places(sizes: Sequence[int], dtype: str = "float32", apart: bool = False) -> Any:
    """Allocate a block of places of so many elements, one behind the other, all zero.

    apart  what lies in two places is read and written by the same op; a device minds
    """
    return alloc((sum(sizes),), dtype)


def fit_places(block: Any, sizes: Sequence[int]) -> Any:
    """Give the places of a block anew, of other sizes; None if it cannot hold them."""
    size = sum(sizes)
    return view(block, 0, (size,)) if size <= block.size else None


def view(array: Any, offset: int, shape: Sequence[int]) -> Any:
    """Give `shape` elements of a flat array, from element `offset` on, sharing its memory."""
    return array[offset : offset + math.prod(shape)].reshape(shape)


def upload(dst: Any, array: Any) -> None:
    """Copy a NumPy array into an array of the backend, of the same shape."""
    dst[...] = array


def copy(dst: Any, src: Any) -> None:
    """Copy an array of the backend into another, of the same shape."""
    dst[...] = src


def download(array: Any) -> Any:
    """Give the values as a NumPy array, which here is the array itself."""
    return array


def zero(array: Any) -> None:
    """Set every element to 0."""
    array.fill(0)


def scratch_bytes(dims: Mapping[str, int], itemsize: int = 4) -> int:
    """Give about how many bytes the reference takes for what it makes on the way.

    dims  the letters of a model, and B and T
    """
    positions, C = dims["B"] * dims["T"], dims["C"]
    classifier = 5 * positions * dims["V"]  # logits, their exponentials and gradients
    mlp = 7 * positions * 4 * C  # GELU, term by term
    return itemsize * (max(classifier, mlp) + dims["Vp"] * C)  # and the gradient to be added


def largest_tensor() -> int | None:
    """Give the most bytes that a tensor may take; None where only memory is a limit."""
    return None


def on_host() -> bool:
    """Tell whether tensors lie in the memory of this machine, of which the system tells."""
    return True


def sync() -> None:
    """Wait until all calls are done; here they are when they return."""


def record(passes: Callable[[], None]) -> Callable[[], None]:
    """Give a function that does what `passes` does, for a step that is done again and again.

    A device keeps the commands; here they are the calls themselves.
    """
    return passes
