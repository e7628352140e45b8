"""Arrays that are larger than what a kernel may see at once, cut into ranges.

An element-wise kernel takes any cut, one with a task for each position whole rows: `parts` cuts all
arrays of a call alike. What goes over all parameters takes them as they lie in their buffers,
tensor after tensor with the zeros between them: `runs` and `spans`.
"""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .device import ALIGNMENT
from .kernels import row_ranges, rows
from .memory import ITEM, Array, Piece

UNIT = ALIGNMENT // ITEM  # elements: a binding begins at a multiple of it


def parts(count: int, *arrays: Array | None) -> Iterator[tuple[Any, ...]]:
    """Cut arrays alike, each seen as `count` rows, so that a binding can hold every part.

    Gives the parts as (rows, elements of a row); None stays None.
    """
    if count == 0:
        return
    tall = [None if a is None else matrix(a, count) for a in arrays]
    widest = max((a for a in tall if a is not None), key=lambda a: a.shape[1])
    for start, stop in row_ranges(widest):
        yield tuple(None if a is None else rows(a, start, stop) for a in tall)


def matrix(array: Array, count: int) -> Array:
    """See an array as `count` rows."""
    return Array(array.device, (count, array.size // count), array.dtype, array.pieces)


@dataclass(frozen=True)
class Run:
    """Pieces of an array that follow each other in a buffer, each where a binding may begin."""

    pieces: tuple[Piece, ...]
    first: int  # elements of the array before the run

    @property
    def start(self) -> int:
        """The first element in the buffer."""
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        """The element of the buffer behind the last."""
        return self.pieces[-1].start + self.pieces[-1].count

    @property
    def count(self) -> int:
        """Count the elements of the array in it."""
        return sum(piece.count for piece in self.pieces)

    def place(self, element: int) -> int:
        """Give where in the buffer an element of the array is."""
        ends = list(itertools.accumulate(piece.count for piece in self.pieces))
        i = bisect.bisect_right(ends, element - self.first)
        piece = self.pieces[i]
        return piece.start + element - self.first - (ends[i] - piece.count)


def runs(array: Array) -> list[Run]:
    """Give the runs of an array, in order: a handful, where there are hundreds of tensors."""
    found: list[list[Piece]] = []
    for piece in array.pieces:
        last = found[-1][-1] if found else None
        if last and last.buffer is piece.buffer and _next_place(last) == piece.start:
            found[-1].append(piece)
        else:
            found.append([piece])
    counts = [sum(piece.count for piece in pieces) for pieces in found]
    firsts = itertools.accumulate(counts, initial=0)
    return [Run(tuple(pieces), first) for pieces, first in zip(found, firsts, strict=False)]


def _next_place(piece: Piece) -> int:
    return -(-(piece.start + piece.count) // UNIT) * UNIT


def spans(start: int, stop: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Cut elements of a buffer so that bindings of `most` elements can hold them.

    Gives (base, start, stop) of each: where the binding begins, and its elements in the buffer.
    """
    for base in range(start // UNIT * UNIT, stop, most):
        yield base, max(start, base), min(base + most, stop)


def bound(array: Array, run: Run, base: int, stop: int) -> Array:
    """Give elements of the buffer of a run, with what lies between the pieces."""
    piece = Piece(run.pieces[0].buffer, base, stop - base)
    return Array(array.device, (piece.count,), array.dtype, (piece,))
