"""Memory of the WebGPU backend: arrays on the device, and how they are filled and read.

A kernel may not see one buffer both to read and to write, so activations get a buffer each. What
is of one kind (parameters, gradients, moments) lies together in few buffers, each tensor of each
layer where a binding may begin. From outside, both look like one flat block in the order of
tensors.py: a view of a tensor of a layer can be bound to a kernel, a wider one only be copied.

Copies to and from here go in pieces of STAGED bytes, whatever their size.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .device import ALIGNMENT, Device

STAGED = 16 << 20  # bytes on their way at once
ITEM = 4  # bytes of float32 and of int32


@dataclass(frozen=True, eq=False)
class Piece:
    """A run of elements in a buffer."""

    buffer: Any
    start: int  # elements
    count: int


@dataclass(frozen=True, eq=False, repr=False)
class Array:
    """Elements on a device, in one or several pieces, seen as a shape.

    `numpy.asarray` downloads them.
    """

    device: Device
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Count the elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        """Say what it is, not what is in it."""
        return f"<{self.dtype} {self.shape} on {self.device.adapter.info['device']}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Download for NumPy. Raises ValueError where it must not copy, which it always does."""
        if copy is False:
            raise ValueError("webgpu: an array on a device is always copied, expected copy=None")
        values = download(self)
        return values if dtype is None else values.astype(dtype, copy=False)


def allocate(device: Device, sizes: Sequence[int], dtype: str, *, apart: bool) -> Array:
    """Allocate a flat array of places of so many elements, all zero, one behind the other.

    apart  a buffer for each place; else few buffers of at most a binding's size, but for places
           that are larger

    Raises UsageError for a place that no buffer of the device can hold, BackendError where memory
    does not suffice.
    """
    for size in sizes:
        if size * ITEM > device.max_buffer:
            raise UsageError(
                f"webgpu: a tensor of {size * ITEM:,} bytes, expected at most"
                f" {device.max_buffer:,}, the largest buffer of this adapter. Use --backend cpu."
            )
    groups: list[list[tuple[int, int]]] = []  # of each buffer: (start, count) of its places
    end = 0
    for size in sizes:
        if apart or not groups or (end + size) * ITEM > device.max_binding:
            groups.append([])
            end = 0
        groups[-1].append((end, size))
        end += -(-size * ITEM // ALIGNMENT) * ALIGNMENT // ITEM
    pieces = []
    for places in groups:
        start, count = places[-1]
        buffer = device.buffer((start + count) * ITEM, f"{dtype} tensors")
        pieces += [Piece(buffer, start, count) for start, count in places]
    return Array(device, (sum(sizes),), dtype, tuple(pieces))


def view(array: Array, offset: int, shape: Sequence[int]) -> Array:
    """Give `shape` elements of an array, from element `offset` on, sharing its memory."""
    count = math.prod(shape)
    starts = [0, *itertools.accumulate(piece.count for piece in array.pieces)]
    if not 0 <= offset <= offset + count <= starts[-1]:
        raise IndexError(f"elements {offset} to {offset + count} of {starts[-1]}")
    pieces = []
    i = bisect.bisect_right(starts, offset, hi=len(array.pieces)) - 1
    while count > 0:
        piece, skip = array.pieces[i], offset - starts[i]
        taken = min(count, piece.count - skip)
        if taken > 0:
            pieces.append(Piece(piece.buffer, piece.start + skip, taken))
        offset, count, i = offset + taken, count - taken, i + 1
    return Array(array.device, tuple(shape), array.dtype, tuple(pieces))


def upload(dst: Array, array: NDArray[Any]) -> None:
    """Copy a NumPy array into an array of the device, of the same shape."""
    flat = np.ascontiguousarray(np.broadcast_to(array, dst.shape), dst.dtype).reshape(-1)
    device = dst.device
    device.submit()  # what was asked for before sees the memory as it was
    at = sent = 0
    for piece in dst.pieces:
        for start in range(0, piece.count, STAGED // ITEM):
            part = flat[at + start : at + min(start + STAGED // ITEM, piece.count)]
            device.write(piece.buffer, (piece.start + start) * ITEM, part)
            sent += part.nbytes
            if sent > STAGED:  # else the driver keeps copies of all of it
                device.wait()
                sent = 0
        at += piece.count


def copy(dst: Array, src: Array) -> None:
    """Copy an array into another, of the same shape, in another buffer; both in one piece."""
    (to,), (source,) = dst.pieces, src.pieces
    dst.device.copy(source.buffer, source.start * ITEM, to.buffer, to.start * ITEM, to.count * ITEM)


def download(array: Array) -> NDArray[Any]:
    """Give the values as a NumPy array."""
    flat = np.empty(array.size, array.dtype)
    device = array.device
    at = 0
    for piece in array.pieces:
        for start in range(0, piece.count, STAGED // ITEM):
            count = min(STAGED // ITEM, piece.count - start)
            offset = (piece.start + start) * ITEM
            content = device.read(piece.buffer, offset, count * ITEM)
            flat[at : at + count] = np.frombuffer(content, array.dtype)
            at += count
    return flat.reshape(array.shape)


def zero(array: Array) -> None:
    """Set every element to 0."""
    for piece in array.pieces:
        array.device.clear(piece.buffer, piece.start * ITEM, piece.count * ITEM)


def fit_places(block: Array, sizes: Sequence[int]) -> Array | None:
    """Give the places of a block anew, of other sizes; None if it cannot hold them."""
    if len(sizes) != len(block.pieces):
        return None
    if any(size > piece.count for size, piece in zip(sizes, block.pieces, strict=True)):
        return None
    pieces = tuple(
        Piece(piece.buffer, piece.start, size)
        for size, piece in zip(sizes, block.pieces, strict=True)
    )
    return Array(block.device, (sum(sizes),), block.dtype, pieces)
