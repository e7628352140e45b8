"""bfloat16: the upper half of a float32, with 8 bits of mantissa, and rounding to it.

Rounding is to the nearest, ties to even. NaN stays NaN and infinity infinity; what is nearer to
2**128 than to the largest bfloat16, 2**128 - 2**120, becomes infinity. Numbers below 2**-126 are
multiples of 2**-133.

bfloat16 is a kind of number for files and for the operands of matrix products, never one to sum in:
two of them have an exact product in float32.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def from_bfloat16(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16, given as uint16, to float32; exact."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Round numbers of any float dtype to bfloat16, given back as uint16."""
    bits = np.ascontiguousarray(_to_float32(values)).view(np.uint32)
    kept_is_odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):  # only a NaN can overflow, and is replaced below
        rounded = (bits + np.uint32(0x7FFF) + kept_is_odd) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # cutting the bits could leave infinity
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, rounded).astype(np.uint16)


def rounded_to_bfloat16(values: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """Give the nearest bfloat16 of each number, in the dtype of `values`."""
    with np.errstate(over="ignore"):  # float16 has no 2**16
        return from_bfloat16(to_bfloat16(values)).astype(values.dtype)


def operands(bf16: bool, *arrays: Any) -> tuple[Any, ...]:
    """Give the operands of a matrix product as they are multiplied: rounded if `bf16` is set."""
    return tuple(rounded_to_bfloat16(x) for x in arrays) if bf16 else arrays


def _to_float32(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Bring numbers to float32 so that rounding them again equals rounding them once.

    One that float32 can't hold becomes its neighbour with an odd last bit ("round to odd"): what
    lies beside the middle between two bfloat16 never becomes the middle.
    """
    if values.dtype == np.float32:
        return values
    with np.errstate(all="ignore"):
        nearest = values.astype(np.float32)
        other = np.nextafter(
            nearest, np.where(values > nearest, np.inf, -np.inf).astype(np.float32)
        )
    is_even = nearest.view(np.uint32) & np.uint32(1) == 0
    return np.where((nearest != values) & is_even, other, nearest)
