"""How an op runs a kernel: what stands at which binding, how many workgroups, which constants.

A kernel file holds the entry points of one op, forward and backward:

    group 0   the arrays of the op; the number of a binding is that of the argument
    group 1   binding 0: the scalars, a uniform struct; from 1 on: scratch arrays of the op

Sizes are `override` constants where they shape the code, and else scalars or arrayLength. The
workgroups of a long row of tasks lie in a grid of two dimensions, since one ends at 65,535: the
number of a task is group.y * groups.x + group.x, and may lie beyond the last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BackendError
from .device import ALIGNMENT, Device
from .memory import ITEM, Array, Piece, allocate


def run(
    stem: str,
    entry: str,
    arrays: Mapping[int, Array | None],
    groups: int | tuple[int, int, int],
    scalars: Sequence[int | float] = (),
    scratch: Sequence[Array | Mapping[str, Any]] = (),
    **constants: float,
) -> None:
    """Run an entry point of a kernel file.

    arrays     what stands at the bindings of group 0; None is an array of zeros, of 64 elements
    groups     workgroups: a row of tasks, or a grid as it is
    scalars    the fields of the uniform struct: ints are u32, floats f32
    scratch    what stands at group 1 from binding 1 on: arrays, or resources of `Device.changing`
    constants  values for the file's `override` constants
    """
    device = next(array.device for array in arrays.values() if array is not None)
    grid = _grid(device, entry, groups)
    if 0 in grid:
        return
    pipeline = device.pipeline(stem, entry, constants)
    own = {i: _resource(device, entry, array) for i, array in arrays.items()}
    bindings = [device.bind(pipeline, 0, own)]
    if scalars or scratch:
        extra = {0: device.scalars(scalars)} if scalars else {}
        for i, what in enumerate(scratch, 1):
            extra[i] = _resource(device, entry, what) if isinstance(what, Array) else dict(what)
        bindings.append(device.bind(pipeline, 1, extra))
    device.dispatch(pipeline, tuple(bindings), grid)


def row_threads(width: int) -> int:
    """Give the threads of a workgroup for a row of so many elements: those without any cost, too.

    Sums over a row are in an order that this decides.
    """
    return 32 if width < 512 else 64 if width < 4096 else 256


def scratch_array(device: Device, use: str, count: int, dtype: str = "float32") -> Array:
    """Give `count` elements of scratch memory for one use, kept from call to call."""
    kept = device.scratch
    if use not in kept or kept[use].size < count:
        kept[use] = allocate(device, [max(count, 1)], dtype, apart=True)
    (piece,) = kept[use].pieces
    return Array(device, (count,), dtype, (Piece(piece.buffer, 0, count),))


def rows(array: Array, start: int, stop: int) -> Array:
    """Give part of an array along its first axis."""
    (piece,) = array.pieces
    width = array.size // array.shape[0]
    part = Piece(piece.buffer, piece.start + start * width, (stop - start) * width)
    return Array(array.device, (stop - start, *array.shape[1:]), array.dtype, (part,))


def aligned(array: Array | None) -> tuple[Array | None, int]:
    """Widen an array downwards to where a binding may begin; give by how many elements, too."""
    if array is None:
        return None, 0
    (piece,) = array.pieces
    skip = piece.start % (ALIGNMENT // ITEM)
    part = Piece(piece.buffer, piece.start - skip, piece.count + skip)
    return Array(array.device, (part.count,), array.dtype, (part,)), skip


def row_ranges(array: Array) -> list[tuple[int, int]]:
    """Cut the rows of an array so that a binding can hold each part, and may begin at each."""
    count = array.shape[0]
    width = array.size // count * ITEM  # bytes
    unit = ALIGNMENT // ITEM  # of so many rows the bytes are a multiple of where a binding begins
    most = max(array.device.max_binding // (width * unit) * unit, unit)
    return [(start, min(start + most, count)) for start in range(0, count, most)]


def _resource(device: Device, entry: str, array: Array | None) -> dict[str, Any]:
    if array is None:
        return {"buffer": device.nothing, "offset": 0, "size": device.nothing.size}
    where = f"webgpu: {entry}: an array of {array.shape}"
    if len(array.pieces) != 1:
        raise BackendError(f"{where} lies in {len(array.pieces)} pieces, expected one")
    (piece,) = array.pieces
    offset, size = piece.start * ITEM, piece.count * ITEM
    if offset % ALIGNMENT:
        raise BackendError(f"{where} begins at byte {offset}, expected a multiple of {ALIGNMENT}")
    if size > device.max_binding:
        raise BackendError(f"{where} has {size:,} bytes, expected up to {device.max_binding:,}")
    return {"buffer": piece.buffer, "offset": offset, "size": size}


def _grid(device: Device, entry: str, groups: int | tuple[int, int, int]) -> tuple[int, int, int]:
    most = device.limits["max-compute-workgroups-per-dimension"]
    if isinstance(groups, int):
        across = min(groups, most)
        groups = (across, -(-groups // max(across, 1)), 1)
    if max(groups) > most:
        raise BackendError(f"webgpu: {entry}: a grid of {groups} workgroups, expected up to {most}")
    return groups
