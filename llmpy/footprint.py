"""How much memory a model takes, and how much there is.

Sizes are Python ints, so nothing wraps: B*T*Vp passes 2^31 from B 42 at T 1024.

A tensor may also be larger than the backend can hold in one piece, whatever memory there is. Where
tensors lie in a device's own memory, nobody says how much of it there is.

On Linux the memory that is left is the smallest of MemAvailable and what each control group
around the process still allows; a group's page cache can be reclaimed and counts as free.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import TrainConfig
from .control_groups import ROOT, group_folders, own_groups
from .errors import UsageError
from .sizes import GPT2Config
from .tensors import ACTS, PARAMS, SCRATCH, acts_table, axis_size, table_size


def model_bytes(config: GPT2Config, itemsize: int = 4) -> int:
    """Count the bytes of the parameters."""
    return table_size(PARAMS, config.dims) * itemsize


def forward_bytes(config: GPT2Config, B: int, T: int, itemsize: int = 4, recompute: int = 0) -> int:
    """Count the bytes of the activations of a batch of B sequences of T tokens."""
    return table_size(acts_table(recompute), {**config.dims, "B": B, "T": T}) * itemsize


def backward_bytes(config: GPT2Config, B: int, T: int, itemsize: int = 4) -> int:
    """Count the bytes of the gradients of activations, which the backward pass needs besides."""
    return table_size(SCRATCH, {**config.dims, "B": B, "T": T}) * itemsize


def ops_bytes(backend: Any, config: GPT2Config, B: int, T: int, itemsize: int = 4) -> int:
    """Give about how many bytes a backend's ops take besides their arguments."""
    return int(backend.scratch_bytes({**config.dims, "B": B, "T": T}, itemsize))


@dataclass(frozen=True)
class Footprint:
    """The bytes of a training run, by what they are for."""

    model: int  # parameters, gradients, m, v
    activations: int  # with their gradients
    scratch: int  # of the backend's ops, roughly

    @property
    def total(self) -> int:
        """All of them."""
        return self.model + self.activations + self.scratch

    def parts(self) -> str:
        """Say what is for what, within a terminal's line."""
        return (
            f"{amount(self.model)} model, {amount(self.activations)} activations,"
            f" {amount(self.scratch)} scratch"
        )


def training_footprint(
    backend: Any,
    config: GPT2Config,
    B: int,
    T: int,
    *,
    itemsize: int = 4,
    recompute: int = 0,
    moments: bool = True,
) -> Footprint:
    """Reckon what a training run takes, or without AdamW's moments a backward pass."""
    return Footprint(
        model=(4 if moments else 2) * model_bytes(config, itemsize),
        activations=forward_bytes(config, B, T, itemsize, recompute)
        + backward_bytes(config, B, T, itemsize),
        scratch=ops_bytes(backend, config, B, T, itemsize),
    )


def require_training_memory(who: str, backend: Any, sizes: GPT2Config, config: TrainConfig) -> str:
    """Reckon what a training run takes, and give a line about it.

    who  what the message begins with, such as `train`

    Raises UsageError if there is less; it names flags with which there would be enough.
    """
    B, T, recompute = config.batch_size, config.seq_len, config.recompute
    available = available_bytes() if backend.on_host() else None
    most = backend.largest_tensor()
    room = math.inf if available is None else available
    width = math.inf if most is None else most
    needed = training_footprint(backend, sizes, B, T, recompute=recompute)
    name, largest = largest_tensor(sizes, B, T)
    if needed.total <= room and largest <= width:
        of = "" if available is None else f" of {amount(available)}"
        return f"memory: {amount(needed.total)}{of}: {needed.parts()}"
    remedy = ""
    for flags, b, t, level in _smaller(B, T, recompute):
        less = training_footprint(backend, sizes, b, t, recompute=level)
        if less.total <= room and largest_tensor(sizes, b, t)[1] <= width:
            remedy = f" {flags} takes {amount(less.total)}."
            break
    if needed.total > room:
        raise UsageError(
            f"{who}: training with B={B} and T={T} needs {amount(needed.total)} ({needed.parts()}),"
            f" expected at most the {amount(int(room))} of memory that are available here."
            + (remedy or " A smaller model takes less.")
        )
    raise UsageError(
        f"{who}: training with B={B} and T={T} needs {amount(needed.total)}, of which {name} takes"
        f" {largest:,} bytes at once, expected at most {most:,}, the largest buffer of this device."
        + (remedy or " Use --backend cpu.")
    )


def largest_tensor(config: GPT2Config, B: int, T: int) -> tuple[str, int]:
    """Give name and bytes of the largest float32 tensor of a training run, layers apart."""
    dims = {**config.dims, "B": B, "T": T}
    sizes = {
        name: 4 * math.prod(axis_size(axis, dims) for axis in axes if axis != "L")
        for name, axes in {**PARAMS, **ACTS, **SCRATCH}.items()
    }
    name = max(sizes, key=lambda name: sizes[name])
    return name, sizes[name]


def _smaller(B: int, T: int, recompute: int) -> Iterator[tuple[str, int, int, int]]:
    """Give flags that take less memory, those that change least first, and B, T, recompute."""
    if recompute < 2:  # level 1 takes as much as 0
        yield "--recompute 2", B, T, 2
    for b in _halves(B):
        yield f"--batch-size {b}", b, T, recompute
    for t in _halves(T):
        yield f"--batch-size 1 --seq-len {t}", 1, t, recompute


def _halves(size: int) -> Iterator[int]:
    while size > 1:
        size //= 2
        yield size


def amount(size: int) -> str:
    """Write a number of bytes with a unit."""
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def available_bytes() -> int | None:
    """Give the memory that this process can still take; None where the system does not say."""
    known = [*_machine_bytes(), *control_group_bytes(own_groups())]
    return min(known, default=None)


def require_memory(who: str, what: str, needed: int, backend: Any = None) -> None:
    """Raise UsageError if `needed` bytes are more than there are.

    who      what the message begins with, such as `GPT2`
    what     what takes the memory, such as `a training step with B=4 and T=64`
    backend  whose memory it is; None is NumPy's
    """
    available = available_bytes() if backend is None or backend.on_host() else None
    if available is not None and needed > available:
        raise UsageError(
            f"{who}: {what} needs {amount(needed)}, expected at most the"
            f" {amount(available)} of memory that are available here"
        )


def _machine_bytes() -> Iterator[int]:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
                return
    except (OSError, ValueError):
        pass
    try:  # macOS: all of it, since what is free is not told without a library
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return


def control_group_bytes(lines: list[str], root: Path = ROOT) -> Iterator[int]:
    """Give what each control group on the way up leaves."""
    for version, folder in group_folders("memory", lines, root):
        limit, usage = (
            ("memory.max", "memory.current")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        left = _group_left(folder, limit, usage)
        if left is not None:
            yield left


def _group_left(folder: Path, limit_name: str, usage_name: str) -> int | None:
    try:
        limit = int((folder / limit_name).read_text(encoding="ascii"))  # "max": no limit
        usage = int((folder / usage_name).read_text(encoding="ascii"))
        stat = (folder / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    fields = dict(line.split(" ", 1) for line in stat.splitlines())
    cache = int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))
    return max(0, limit - usage + cache)
