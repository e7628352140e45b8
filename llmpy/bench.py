"""Time whole training steps: forward, backward, clip, AdamW, on random tokens.

Each workload runs in a process of its own, so that its peak memory is its own and no other's
kernels or memory are warm. After steps to warm up, each step is timed; the median counts.

gflops is the arithmetic of the matmuls and of causal attention over the median:

    forward = 2 B T (12 L C^2 + Vp C) + 2 B T^2 C L        backward = 2 forward
"""

import dataclasses
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .config import DeviceConfig, GPT2Config, descriptor_config
from .console import passing
from .device import open_backend
from .errors import BackendError, UsageError
from .model import GPT2


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of a model and a batch, and how many steps to time."""

    config: GPT2Config
    B: int
    T: int
    warm_up: int
    steps: int

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.B * self.T

    @property
    def operations(self) -> int:
        """Floating-point operations of a step."""
        B, T, L, C = self.B, self.T, self.config.num_layers, self.config.channels
        matmuls = 2 * B * T * (12 * L * C * C + self.config.padded_vocab_size * C)
        attention = 2 * B * T * T * C * L
        return 3 * (matmuls + attention)


D12 = descriptor_config("d12")
CHAR_384 = GPT2Config(max_seq_len=256, vocab_size=65, num_layers=6, num_heads=6, channels=384)
WORKLOADS = {
    "124m-t64": Workload(D12, B=4, T=64, warm_up=2, steps=7),
    "124m-t1024": Workload(D12, B=4, T=1024, warm_up=1, steps=3),
    "char-384": Workload(CHAR_384, B=16, T=256, warm_up=2, steps=7),
    "baby": Workload(descriptor_config("baby", 65), B=12, T=64, warm_up=20, steps=200),
}


@dataclasses.dataclass(frozen=True)
class Result:
    """The times of one workload."""

    workload: str
    dtype: str
    backend: str
    threads: int | None  # None where the backend does not tell
    median_s: float
    min_s: float
    tokens_per_s: float
    gflops: float
    peak_rss_gb: float | None  # None where the system does not tell


def bench(name: str | None, device: DeviceConfig) -> list[Result]:
    """Time one workload, or all, each in a process of its own.

    Raises UsageError for an unknown name, BackendError if a process fails.
    """
    check_workload(name)
    return [_in_own_process(n, device) for n in WORKLOADS if name in (None, n)]


def check_workload(name: str | None) -> None:
    """Raise UsageError for the name of no workload."""
    if name is not None and name not in WORKLOADS:
        raise UsageError(f"--workload is {name}, expected one of {', '.join(WORKLOADS)}")


def _in_own_process(name: str, device: DeviceConfig) -> Result:
    words = json.dumps(dataclasses.asdict(device))
    command = [sys.executable, "-m", "llmpy.bench", name, words]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise BackendError(
            f"bench: process of workload {name} ended with status {done.returncode}, expected 0"
        )
    return Result(**json.loads(done.stdout))


def run_workload(name: str, workload: Workload, device: DeviceConfig) -> Result:
    """Time a workload in this process."""
    backend, _ = open_backend(device)
    passing(f"{name}: making the model")
    seconds = time_steps(workload, backend, lambda step: passing(f"{name}: {step}"))
    passing("")
    median = statistics.median(seconds)
    return Result(
        workload=name,
        dtype=device.dtype,
        backend=backend.name,
        threads=threads_of(backend),
        median_s=median,
        min_s=min(seconds),
        tokens_per_s=workload.tokens / median,
        gflops=workload.operations / median / 1e9,
        peak_rss_gb=peak_rss_gb(),
    )


def time_steps(
    workload: Workload, backend: Any, working: Callable[[str], None] = lambda step: None
) -> list[float]:
    """Give the seconds of each timed step; `working` is told of each, such as `step 3/9`."""
    rng = np.random.default_rng(0)
    model = GPT2(workload.config, backend)
    # any values but zeros take the same time; those of from_descriptor would take long to draw
    weights = rng.standard_normal(model.num_parameters, np.float32) * np.float32(0.02)
    backend.upload(model.params.memory, weights)
    del weights
    size = (2, workload.B, workload.T)
    seconds = []
    steps = workload.warm_up + workload.steps
    for step in range(steps):
        working(f"step {step + 1}/{steps}")
        tokens, targets = rng.integers(0, workload.config.vocab_size, size, np.int32)
        start = time.perf_counter()
        model.forward_backward(tokens, targets)
        norm = model.grad_norm()
        scale = 1 / norm if norm > 1 else 1.0
        model.update(1e-4, 0.9, 0.95, 1e-8, 0.1, step + 1, grad_scale=scale, decay="2d")
        backend.sync()
        seconds.append(time.perf_counter() - start)
    return seconds[workload.warm_up :]


def threads_of(backend: Any) -> int | None:
    """Give the number of threads that compute; None if NumPy's BLAS decides."""
    if backend.name != "cpu":
        return None
    import numba

    return int(numba.get_num_threads())


def peak_rss_gb() -> float | None:
    """Give the most memory that this process has held, in 1e9 bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak * (1 if sys.platform == "darwin" else 1024) / 1e9)


def table(results: list[Result]) -> str:
    """Lay results out in columns, for people."""
    head = f"{'workload':10} {'dtype':8} {'backend':7} {'threads':>7} {'median s':>8} {'min s':>8}"
    lines = [f"{head} {'tokens/s':>8} {'GFLOP/s':>7} {'peak GB':>7}"]
    for r in results:
        peak = "-" if r.peak_rss_gb is None else f"{r.peak_rss_gb:.2f}"
        threads = "-" if r.threads is None else str(r.threads)
        lines.append(
            f"{r.workload:10} {r.dtype:8} {r.backend:7} {threads:>7} {r.median_s:8.4f}"
            f" {r.min_s:8.4f} {r.tokens_per_s:8.0f} {r.gflops:7.1f} {peak:>7}"
        )
    return "\n".join(lines) + "\n"


def _main(name: str, words: str) -> None:
    try:
        result = run_workload(name, WORKLOADS[name], DeviceConfig(**json.loads(words)))
    except (UsageError, BackendError, MemoryError) as error:
        sys.exit(f"{name}: {error or 'memory does not suffice'}")
    sys.stdout.write(json.dumps(dataclasses.asdict(result)) + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a traceback: the parent tells
    _main(*sys.argv[1:])
