"""What a command computes with: the backend by name, its threads, a line that says so."""

import functools
import importlib.util
import os
import re
from typing import Any

from .backends import load_backend
from .config import DeviceConfig
from .console import note, passing
from .errors import UsageError


def open_backend(device: DeviceConfig, largest: int = 0) -> tuple[Any, str]:
    """Load the backend and set its threads or open its device, before any model is made.

    largest  bytes of the largest tensor, for `auto` to take a GPU that can hold it

    Returns the backend module and one line about it. Raises BackendError or UsageError for a
    device that is not to be had.
    """
    name, adapter, why = device.backend, device.adapter, ""
    if name == "auto":
        name, adapter, why = _choose(device, largest)
    if name == "cpu":
        check_environment()
        tell_of_compiling()
    backend = load_backend(name)
    if name == "cpu":
        backend.set_threads(device.threads)
    if name == "webgpu":
        backend.open_device(adapter, tile=device.tile)
    rounded = ", matrix products of bfloat16" if device.dtype == "bfloat16" else ""
    return backend, f"backend {name}: {backend.describe()}{rounded}{why}"


def _choose(device: DeviceConfig, largest: int) -> tuple[str, Any, str]:
    """Give what `auto` means here: backend, adapter, and in a few words why."""
    if device.threads is not None:
        return "cpu", None, " (auto, for --threads)"
    if device.dtype != "float32":
        return "cpu", None, f" (auto, for {device.dtype})"
    if importlib.util.find_spec("wgpu") is None and device.adapter is None:
        return "cpu", None, " (auto: wgpu is not installed)"
    from .webgpu.adapters import automatic

    adapter, why = automatic(device.adapter, largest)
    if adapter is None and device.adapter is not None:
        raise UsageError(
            f"--adapter is {device.adapter}: {why}, expected a GPU that --backend auto takes."
            " Use --backend webgpu, or leave --adapter out."
        )
    return ("webgpu", adapter, " (auto)") if adapter else ("cpu", None, f" (auto: {why})")


def check_environment() -> None:
    """Raise UsageError for a NUMBA_NUM_THREADS that Numba would stumble over when imported."""
    value = os.environ.get("NUMBA_NUM_THREADS")
    if value is not None and not re.fullmatch(r"0*[1-9][0-9]*", value.strip()):
        raise UsageError(f"NUMBA_NUM_THREADS is {value!r}, expected a whole number of at least 1")


@functools.cache  # once a process
def tell_of_compiling() -> None:
    """Say once, when it begins, that Numba compiles: half a minute on a machine's first run.

    A terminal shows which kernel it is at.
    """
    from numba.core import event

    from .cpu.jit import cache_works

    class Compiling(event.Listener):  # type: ignore[misc]  # numba has no types
        def __init__(self) -> None:
            self.told = False
            self.kernels: list[str] = []  # each is compiled for the one before it

        def on_start(self, event: Any) -> None:
            if not self.told:
                self.told = True
                kept = ", which are kept for the next run" if cache_works() else ""
                note(f"compiling kernels for this machine{kept}")
            kernel = event.data["dispatcher"]
            module = kernel.__module__.split(".")[-1]
            self.kernels.append(f"{module}.{kernel.__name__}")
            passing(f"compiling {self.kernels[0]}")

        def on_end(self, event: object) -> None:
            self.kernels.pop()
            if not self.kernels:
                passing("")

    event.register("numba:compile", Compiling())
