"""Time whole training steps in this process: forward, backward, clip, AdamW, on random tokens."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..console import passing
from ..model import GPT2
from .profile import Profile, Recorder
from .workloads import Limits, Workload

if TYPE_CHECKING:
    from ..webgpu.search import TileRate

PROFILED_STEPS = 3  # the one of median time is told


class Traffic(TypedDict):
    """What a step asks of a device, on average."""

    dispatches: float
    submits: float
    bytes_read_back: float


class Timing(TypedDict):
    """What a process tells of its steps."""

    backend: str
    threads: int | None  # None where the backend does not tell
    seconds: list[float]  # of each timed step
    peak_rss_gb: float | None  # None where the system does not tell
    traffic: Traffic | None  # of a device
    profile: Profile | None


class Trainer:
    """A model of a workload's sizes that trains on random tokens."""

    def __init__(
        self, workload: Workload, backend: Any, dtype: str = "float32", recompute: int = 0
    ) -> None:
        self.workload = workload
        self._rng = np.random.default_rng(0)
        self.model = GPT2(workload.config, backend, dtype, recompute=recompute)
        # any values but zeros take the same time; those of from_descriptor would take long to draw
        size = self.model.num_parameters
        weights = self._rng.standard_normal(size, np.float32) * np.float32(0.02)
        backend.upload(self.model.params.memory, weights)
        self._taken = 0

    def step(self) -> float:
        """Take one step; give its seconds."""
        size = (2, self.workload.B, self.workload.T)
        tokens, targets = self._rng.integers(0, self.workload.config.vocab_size, size, np.int32)
        model = self.model
        self._taken += 1
        start = time.perf_counter()
        batches = [(tokens, targets)]
        model.train_step(batches, 1e-4, 0.9, 0.95, 1e-8, 0.1, self._taken, max_norm=1.0, decay="2d")
        model.backend.sync()
        return time.perf_counter() - start


def time_steps(
    trainer: Trainer,
    enough_s: float | None = None,
    working: Callable[[str], None] = lambda step: None,
) -> list[float]:
    """Give the seconds of each timed step, those to warm up left out.

    enough_s  stop early once the timed steps have taken so long
    working   is told of each step, such as `step 3/9`
    """
    warm_up, steps = trainer.workload.warm_up, trainer.workload.steps
    seconds: list[float] = []
    for step in range(warm_up + steps):
        working(f"step {step + 1}/{warm_up + steps}")
        taken = trainer.step()
        if step >= warm_up:
            seconds.append(taken)
            if enough_s is not None and sum(seconds) >= enough_s:
                break
    return seconds


def profile_step(trainer: Trainer, limits: Limits) -> Profile:
    """Take a few steps and give the ops of the one of median time."""
    model = trainer.model
    plain = model.backend
    recorder = Recorder(plain)
    model.backend = recorder.backend
    try:
        profiles = [recorder.take(trainer.step(), limits) for _ in range(PROFILED_STEPS)]
    finally:
        model.backend = plain
    return sorted(profiles, key=lambda profile: profile["step_s"])[PROFILED_STEPS // 2]


def run_workload(
    name: str,
    workload: Workload,
    backend: Any,
    dtype: str = "float32",
    *,
    recompute: int = 0,
    enough_s: float | None = None,
    limits: Limits | None = None,
) -> Timing:
    """Time a workload; with `limits`, profile it against them afterwards."""
    passing(f"{name}: making the model")
    trainer = Trainer(workload, backend, dtype, recompute)
    before = counts_of(backend)
    seconds = time_steps(trainer, enough_s, lambda step: passing(f"{name}: {step}"))
    traffic = traffic_between(before, counts_of(backend), workload.warm_up + len(seconds))
    peak = peak_rss_gb()
    profile = None
    if limits is not None:
        passing(f"{name}: profile")
        profile = profile_step(trainer, limits)
        profile["tiles"] = tiles_of(backend, workload, lambda tile: passing(f"{name}: {tile}"))
    passing("")
    return Timing(
        backend=backend.name,
        threads=threads_of(backend),
        seconds=seconds,
        peak_rss_gb=peak,
        traffic=traffic,
        profile=profile,
    )


def tiles_of(
    backend: Any, workload: Workload, working: Callable[[str], None] = lambda tile: None
) -> "list[TileRate]":
    """Time the shapes that a device's matrix products may have; there are none on a CPU."""
    if backend.name != "webgpu":
        return []
    from ..webgpu.search import time_tiles

    C = workload.config.channels
    return time_tiles(backend.device(), workload.tokens, 4 * C, C, working)


def counts_of(backend: Any) -> tuple[int, ...]:
    """Give what a device was asked for so far: dispatches, submits, bytes read; else nothing."""
    if backend.name != "webgpu":
        return ()
    device = backend.device()
    return device.dispatches, device.submits, device.bytes_read


def traffic_between(before: tuple[int, ...], after: tuple[int, ...], steps: int) -> Traffic | None:
    """Give the traffic of a step, from the counts before so many steps and after them."""
    if not after:
        return None
    each = [(end - start) / steps for start, end in zip(before, after, strict=True)]
    return Traffic(dispatches=each[0], submits=each[1], bytes_read_back=each[2])


def threads_of(backend: Any) -> int | None:
    """Give the number of threads that compute; None if NumPy's BLAS decides."""
    if backend.name != "cpu":
        return None
    import numba

    return int(numba.get_num_threads())


def peak_rss_gb() -> float | None:
    """Give the most memory that this process has held, in 1e9 bytes.

    Linux's own counter is that of this program; getrusage's has what its parent held when it began.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak * (1 if sys.platform == "darwin" else 1024) / 1e9)
