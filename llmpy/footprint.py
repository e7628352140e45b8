"""How much memory a model takes, and how much there is.

Sizes are Python ints, so nothing wraps: B*T*Vp passes 2^31 from B 42 at T 1024.

On Linux the memory that is left is the smallest of MemAvailable and what each control group
around the process still allows; a group's page cache can be reclaimed and counts as free.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from .config import GPT2Config
from .control_groups import ROOT, group_folders, own_groups
from .errors import UsageError
from .tensors import PARAMS, SCRATCH, acts_table, table_size


def model_bytes(config: GPT2Config, itemsize: int = 4) -> int:
    """Count the bytes of the parameters."""
    return table_size(PARAMS, config.dims) * itemsize


def forward_bytes(config: GPT2Config, B: int, T: int, itemsize: int = 4, recompute: int = 0) -> int:
    """Count the bytes of the activations of a batch of B sequences of T tokens."""
    return table_size(acts_table(recompute), {**config.dims, "B": B, "T": T}) * itemsize


def scratch_bytes(config: GPT2Config, B: int, T: int, itemsize: int = 4) -> int:
    """Count the bytes of the backward pass's scratch."""
    return table_size(SCRATCH, {**config.dims, "B": B, "T": T}) * itemsize


def training_bytes(config: GPT2Config, B: int, T: int, itemsize: int = 4) -> int:
    """Count the bytes of a training run: parameters, gradients, m, v, activations, scratch."""
    activations = forward_bytes(config, B, T, itemsize) + scratch_bytes(config, B, T, itemsize)
    return 4 * model_bytes(config, itemsize) + activations


def available_bytes() -> int | None:
    """Give the memory that this process can still take; None where the system does not say."""
    known = [*_machine_bytes(), *control_group_bytes(own_groups())]
    return min(known, default=None)


def require_memory(who: str, what: str, needed: int) -> None:
    """Raise UsageError if `needed` bytes are more than there are.

    who     what the message begins with, such as `GPT2`
    what    what takes the memory, such as `a training step with B=4 and T=64`
    """
    available = available_bytes()
    if available is not None and needed > available:
        raise UsageError(
            f"{who}: {what} needs {needed / 1e9:.1f} GB, expected at most the"
            f" {available / 1e9:.1f} GB of memory that are available here"
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
