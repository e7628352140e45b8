"""What a command computes with: the backend by name, its threads, a line that says so."""

import functools
import os
import re
from typing import Any

from .backends import load_backend
from .config import DeviceConfig
from .console import note, passing
from .errors import UsageError


def open_backend(device: DeviceConfig) -> tuple[Any, str]:
    """Load the backend and set its threads, before any model is made.

    Returns the backend module and one line about it. Raises UsageError for what is not built yet.
    """
    if device.backend == "webgpu":
        raise UsageError("--backend webgpu is not built yet, expected cpu or numpy")
    if device.backend == "numpy" and device.threads is not None:
        raise UsageError("--threads is given with --backend numpy, expected --backend cpu")
    if device.backend != "numpy":
        check_environment()
        tell_of_compiling()
    backend = load_backend("cpu" if device.backend == "auto" else device.backend)
    if backend.name == "cpu":
        backend.set_threads(device.threads)
    rounded = ", matrix products of bfloat16" if device.dtype == "bfloat16" else ""
    return backend, f"backend {backend.name}: {backend.describe()}{rounded}"


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
