"""What it was measured on: processor, memory, versions, and the sources."""

import hashlib
import os
import platform
import sys
import time
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np

import llmpy
from llmpy.cpu.caches import data_caches
from llmpy.cpu.simd import MR, NR
from llmpy.cpu.threads import available

ROOT = Path(llmpy.__file__).parent.parent
FEATURES = ("avx2", "fma", "avx512f", "avx512bf16", "avx512fp16", "amx-bf16", "neon", "bf16", "sve")


def describe():
    """Give all of it, as JSON takes it."""
    features = llvmlite.binding.get_host_cpu_features()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": f"{cpu_model()} ({llvmlite.binding.get_host_cpu_name()})",
        "cores": available(),
        "features": [name for name in FEATURES if features.get(name)],
        "caches": [f"L{level} {size // 1024} KiB" for level, size in dict(data_caches()).items()],
        "tile": f"{MR} x {NR}",
        "memory_gb": memory_gb(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {
            "Python": platform.python_version(),
            "NumPy": np.__version__,
            "Numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
        },
        "sources": sources(),
    }


def cpu_model(path=Path("/proc/cpuinfo")):
    """Give the processor's name, as far as the system tells."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_gb():
    """Give the machine's memory in 1e9 bytes; None where the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def sources():
    """Give a hash of all that computes: two runs of other sources are not to be mixed."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted([*(ROOT / "llmpy").rglob("*.py"), *(ROOT / "bench").glob("peer_*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
