"""The contract of an op: the table in its docstring, read once and held to at every call.

A row is one array, in the order of the parameters:

    name  f|i32  (axes)  [optional]  reads|writes|adds|accumulates|updates  words

    f            floating point; all `f` arrays of a call have one dtype
    i32          int32
    (axes)       letters of tensors.py, a multiple such as 3C, or a number; one letter is one size
                 in a call
    optional     may be None
    writes       overwritten, whatever it held
    adds         added to, always
    accumulates  written with accumulate=False, added to with accumulate=True
    updates      read and overwritten

Keyword-only scalars have no row. NH and V, where they are parameters, are sizes like those of the
axes; bf16 is False or True. A module that was loaded without docstrings (`python -OO`) runs
unchecked.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..errors import UsageError
from ..tensors import axis_size

F = TypeVar("F", bound=Callable[..., Any])

MODES = "reads|writes|adds|accumulates|updates"
ROW = re.compile(rf"^ +(\w+) +(f|i32) +\(([^)]*)\) +(optional +)?({MODES})\b", re.M)


class Row(NamedTuple):
    """One array of an op."""

    name: str
    kind: str  # f or i32
    axes: tuple[str, ...]
    optional: bool
    mode: str  # reads, writes, adds, accumulates or updates

    @property
    def shape(self) -> str:
        """The axes as the table spells them: `(B, T, 3C)`."""
        return f"({', '.join(self.axes)})"


def rows(fn: Callable[..., Any]) -> tuple[Row, ...]:
    """Read the table of an op, or of a backend's function bound to it; empty without docstrings."""
    names = tuple(inspect.getfullargspec(inspect.unwrap(fn)).args)
    return _parse(fn.__name__, fn.__doc__ or "", names)


@functools.cache
def _parse(who: str, doc: str, names: tuple[str, ...]) -> tuple[Row, ...]:
    table = tuple(
        Row(name, kind, tuple(axes.replace(" ", "").split(",")), bool(optional), mode)
        for name, kind, axes, optional, mode in ROW.findall(doc)
    )
    listed = tuple(row.name for row in table)
    if doc and listed != names:
        raise TypeError(f"{who}: the table lists {listed}, the parameters are {names}")
    return table


def op(fn: F) -> F:
    """Check the arrays and sizes of every call of `fn` against the table in its docstring."""

    @functools.wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        table = rows(checked)
        if table:
            check(fn.__name__, table, *_arguments(fn, args, kwargs))
        # NaN and infinity are results to pass on: the warnings would only repeat them
        with np.errstate(all="ignore"):
            return fn(*args, **kwargs)

    return checked  # type: ignore[return-value]


def bind(spec: Callable[..., Any], fn: F, *, dtype: str = "float32") -> F:
    """Bind a backend's function to the table of its op.

    spec   the op in ops/
    fn     the backend's function, with the same signature
    dtype  of the `f` arrays: what the backend computes in

    The result checks arrays once for each set of shapes and dtypes, scalars at every call, and asks
    for arrays that are contiguous. It has the signature of `fn` and the docstring of `spec`.
    """
    who = spec.__name__
    names = inspect.getfullargspec(inspect.unwrap(spec)).args
    seen: set[Any] = set()

    @functools.wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        key: Any = None
        if len(args) == len(names):
            try:
                key = (kwargs.get("NH"), kwargs.get("V"), *map(_layout, args))
            except AttributeError:  # not an array: the check below has the words for it
                key = None
        if key is None or key not in seen:
            table = rows(spec)
            if table:
                check(who, table, *_arguments(fn, args, kwargs), dtype=dtype, contiguous=True)
            if key is not None:
                seen.add(key)
        elif kwargs:
            _check_scalars(who, kwargs, dict(zip(names, args, strict=True)))
        return fn(*args, **kwargs)

    checked.__doc__ = spec.__doc__
    return checked  # type: ignore[return-value]


def _layout(array: Any) -> Any:
    if array is None:
        return None
    flags = getattr(array, "flags", None)  # a device's arrays have none
    return array.shape, array.dtype, None if flags is None else flags.num


def _arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the arguments of a call into arrays and keyword-only scalars."""
    signature = inspect.signature(fn)
    bound = signature.bind(*args, **kwargs).arguments  # TypeError for a wrong call, as in Python
    only = inspect.Parameter.KEYWORD_ONLY
    scalars = {n: v for n, v in bound.items() if signature.parameters[n].kind is only}
    return {n: v for n, v in bound.items() if n not in scalars}, scalars


def check(
    who: str,
    table: tuple[Row, ...],
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    *,
    dtype: str | None = None,
    contiguous: bool = False,
) -> None:
    """Hold the arguments of one call to the table; raise UsageError at the first that differs."""
    present = []
    for row in table:
        array = arrays[row.name]
        if array is None and row.optional:
            continue
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            got = "None" if array is None else f"of type {type(array).__name__}"
            raise UsageError(f"{who}: {row.name} is {got}, expected an array {row.shape}")
        present.append((row, array))
    _check_shapes(who, present, scalars)
    _check_dtypes(who, present, dtype)
    _check_memory(who, present, contiguous)
    _check_scalars(who, scalars, arrays)


def _check_shapes(who: str, present: list[tuple[Row, Any]], scalars: Mapping[str, Any]) -> None:
    sizes = {letter: scalars[letter] for letter in ("NH", "V") if letter in scalars}
    for row, array in present:  # the first array that has a letter gives its size
        if len(array.shape) == len(row.axes):
            for axis, size in zip(row.axes, array.shape, strict=True):
                sizes.setdefault(axis, size)
    for axis, size in list(sizes.items()):  # a multiple gives it where no array has the letter
        letter = axis.lstrip("0123456789")
        if letter not in ("", axis):
            sizes.setdefault(letter, size // int(axis[: -len(letter)]))
    sizes = {letter: size for letter, size in sizes.items() if letter.isalpha()}
    for row, array in present:
        letters = [axis.lstrip("0123456789") for axis in row.axes if not axis.isdecimal()]
        known = all(letter in sizes for letter in letters)
        if known and tuple(array.shape) == tuple(axis_size(axis, sizes) for axis in row.axes):
            continue
        given = ", ".join(f"{x}={sizes[x]}" for x in dict.fromkeys(letters) if x in sizes)
        got = f"{row.name} has shape {tuple(array.shape)}"
        raise UsageError(
            f"{who}: {got}, expected {row.shape}" + (f" with {given}" if given else "")
        )
    for letter, largest in (("T", "maxT"), ("V", "Vp")):
        if letter in sizes and largest in sizes and sizes[letter] > sizes[largest]:
            got = f"{who}: {letter} is {sizes[letter]}"
            raise UsageError(f"{got}, expected at most {largest} = {sizes[largest]}")
    if "NH" in scalars and (scalars["NH"] < 1 or sizes["C"] % scalars["NH"]):
        got = f"{who}: NH is {scalars['NH']}"
        raise UsageError(f"{got}, expected a divisor of C = {sizes['C']}")


def _check_dtypes(who: str, present: list[tuple[Row, Any]], dtype: str | None) -> None:
    because = ""
    for row, array in present:
        got = np.dtype(array.dtype)
        if row.kind == "i32":
            if got != np.int32:
                raise UsageError(f"{who}: {row.name} has dtype {got}, expected int32")
            continue
        if dtype is None:
            if got.kind != "f":
                raise UsageError(f"{who}: {row.name} has dtype {got}, expected floating point")
            dtype, because = str(got), f", that of {row.name}"
        if str(got) != dtype:
            raise UsageError(f"{who}: {row.name} has dtype {got}, expected {dtype}{because}")


def _check_memory(who: str, present: list[tuple[Row, Any]], contiguous: bool) -> None:
    for row, array in present:
        flags = getattr(array, "flags", None)
        if flags is None:
            continue
        if row.mode != "reads" and not flags.writeable:
            raise UsageError(f"{who}: {row.name} is read-only, expected an array to write to")
        if contiguous and not flags.c_contiguous:
            got = f"{who}: {row.name} has strides {array.strides}"
            raise UsageError(f"{got}, expected contiguous rows. Copy it with np.ascontiguousarray.")


def _check_scalars(who: str, scalars: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    if scalars.get("bf16", False) not in (False, True):
        raise UsageError(f"{who}: bf16 is {scalars['bf16']!r}, expected False or True")
    if "V" in scalars and scalars["V"] < 1:
        raise UsageError(f"{who}: V is {scalars['V']}, expected at least 1")
    if "step" in scalars and scalars["step"] < 1:
        raise UsageError(f"{who}: step is {scalars['step']}, expected at least 1")
    if scalars.get("decay") is not None:
        N = arrays["params"].shape[0]
        for start, stop in scalars["decay"]:
            if not 0 <= start <= stop <= N:
                got = f"{who}: decay has the range ({start}, {stop})"
                raise UsageError(f"{got}, expected 0 <= start <= stop <= N = {N}")
