"""A process that bench starts: `python -P -m llmpy.bench limits|workload JSON`; it prints JSON.

limits    {"device": {...}}                                                   -> Limits
workload  {"device": {...}, "name": ..., "recompute": ..., "enough_s": ...,
           "limits": {...} or null}                                           -> Timing
"""

import dataclasses
import json
import signal
import sys
from typing import Any

from ..config import DeviceConfig
from ..console import passing, write
from ..device import open_backend
from ..errors import BackendError, UsageError
from .steps import run_workload
from .workloads import WORKLOADS, Limits


def measure_limits(device: DeviceConfig) -> Limits:
    """Measure what the machine can do, with kernels of the backend."""
    backend, _ = open_backend(device)
    passing("measuring the machine")
    if backend.name == "webgpu":
        from ..webgpu import peak

        gpu = backend.device()
        limits = Limits(peak_gflops=peak.peak_gflops(gpu), bandwidth_gbs=peak.bandwidth_gbs(gpu))
    else:
        from ..cpu.limits import bandwidth_gbs, peak_gflops

        bf16 = device.dtype == "bfloat16"
        limits = Limits(peak_gflops=peak_gflops(bf16), bandwidth_gbs=bandwidth_gbs())
    passing("")
    return limits


def main(task: str, words: str) -> None:
    """Do one task; what cannot be done ends the process with one line."""
    order: dict[str, Any] = json.loads(words)
    device = DeviceConfig(**order["device"])
    what = order.get("name", "limits")
    answer: Any
    try:
        if task == "limits":
            answer = dataclasses.asdict(measure_limits(device))
        else:
            backend, _ = open_backend(device)
            answer = run_workload(
                order["name"],
                WORKLOADS[order["name"]],
                backend,
                device.dtype,
                recompute=order["recompute"],
                enough_s=order["enough_s"],
                limits=Limits(**order["limits"]) if order["limits"] else None,
            )
    except (UsageError, BackendError, MemoryError) as error:
        sys.exit(f"{what}: {error or 'memory does not suffice'}")
    write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a traceback: the parent tells
    main(*sys.argv[1:])
