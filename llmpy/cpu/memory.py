"""Memory of the CPU backend: NumPy arrays aligned to cache lines, and scratch that is kept."""

import contextlib
import math
import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from .jit import serial
from .simd import address

LARGE = 1 << 18  # bytes; a packed block of A has several times as many
HUGE_PAGE = 2 << 20  # bytes of a large page, on x86-64 and most arm64
ALIGNMENT = 64  # bytes of a cache line, and of the widest vector

_scratch = threading.local()  # arrays and addresses by use, of each Python thread; they grow


def alloc(shape: Sequence[int], dtype: str = "float32") -> Any:
    """Allocate an array of zeros, aligned to 64 bytes. The pages come when they are touched.

    Those of LARGE bytes ask for large pages, and take whole ones: the rows of a matrix lie in pages
    of their own, of which the processor remembers few, and a packed block that just fits a cache
    meets itself there where its pages are scattered.

    Raises MemoryError, as NumPy does, where the system has no more.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        whole = -(-size // HUGE_PAGE) * HUGE_PAGE
        try:  # unlike NumPy's, this memory begins at a page
            pages = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise MemoryError(f"cpu: an array of {size:,} bytes is more than there is") from None
        with contextlib.suppress(OSError):  # a kernel without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(pages, np.uint8)
        start = -raw.ctypes.data % HUGE_PAGE
    else:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)


def alloc_places(sizes: Sequence[int], dtype: str = "float32", apart: bool = False) -> Any:
    """Allocate a block of places of so many elements, one behind the other, all zero."""
    return alloc((sum(sizes),), dtype)


def scratch(use, count):
    """Give at least `count` floats of scratch memory for one use, kept from call to call.

    Each Python thread has its own: between two kernels, another may run.
    """
    return _kept(use, count)[0]


def scratch_at(use, count):
    """Give the address of scratch memory."""
    return _kept(use, count)[1]


def _kept(use, count):
    own = vars(_scratch)
    kept = own.get(use)
    if kept is None or kept[0].size < count:
        array = alloc((count,))
        kept = own[use] = array, data(array)
    return kept


@serial
def data(array):
    """Give the address of an array's first element: compiled, 0.3 us; by array.ctypes, 1.5."""
    return address(array)


def row(array):
    """Give the distance between the rows of a matrix of floats, in floats."""
    return array.strides[0] // 4


def max_threads():
    """Count the threads that Numba may use, which is what scratch by thread must reckon with."""
    return numba.config.NUMBA_NUM_THREADS
