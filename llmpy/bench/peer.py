"""Another framework's program for the same training step, run beside ours.

The programs are bench/peer_torch.py and bench/peer_jax.py of the source tree. Each runs under a
Python that has its framework, trains on random tokens as `steps.py` does, and prints one line of
JSON last: `peer` (its name and version), `median_s` of its steps, and more.
"""

import json
import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendError, UsageError
from .processes import run_group
from .workloads import Workload

PROGRAMS = Path(__file__).parents[2] / "bench"
MODES = {"torch": ("compile", "eager"), "jax": ("compile",)}  # the better one counts
LIMIT_S = 1800.0  # a run that takes longer is ended


class PeerTimeoutError(BackendError):
    """A run of a peer that was ended because it took too long."""


@dataclass(frozen=True)
class PeerRun:
    """What a peer tells of one run."""

    peer: str  # such as `torch 2.13.0 compile`
    median_s: float
    peak_rss_gb: float | None


@dataclass(frozen=True)
class Peer:
    """A framework in one of its modes, and the Python that has it."""

    kind: str  # torch or jax
    mode: str
    python: str

    def run(
        self,
        workload: Workload,
        dtype: str,
        threads: int | None = None,
        *,
        enough_s: float | None = None,
        limit_s: float = LIMIT_S,
        environment: Mapping[str, str] | None = None,
    ) -> PeerRun:
        """Run the program once.

        enough_s     stop early once the timed steps have taken so long
        limit_s      end it, and what it started, after so long
        environment  None is that of this process

        Raises PeerTimeoutError if it takes too long, BackendError if it fails in another way.
        """
        who = f"peer {self.kind} {self.mode}"
        command = [self.python, str(program(self.kind)), *_words(workload)]
        command += ["--dtype", dtype, "--mode", self.mode]
        if threads is not None:
            command += ["--threads", str(threads)]
        if enough_s is not None:
            command += ["--enough-s", str(enough_s)]
        try:
            done = run_group(command, limit_s, environment)
        except subprocess.TimeoutExpired:
            raise PeerTimeoutError(f"{who}: not done after {limit_s:g} s, expected less") from None
        except OSError as error:
            raise BackendError(f"{who}: {self.python}: {error.strerror}") from None
        if done.returncode:
            last = _last_line(done.stderr)
            because = f": {last}" if last else ""
            raise BackendError(f"{who}: process ended {end_of(done.returncode)}{because}")
        return read_answer(who, _last_line(done.stdout))


def end_of(status: int) -> str:
    """Say how a process ended that should have ended with status 0."""
    how = f"with status {status}" if status > 0 else f"by signal {-status}"  # as without memory
    return f"{how}, expected status 0"


def find_peers(kind: str, python: str) -> list[Peer]:
    """Give the modes of a peer, once its program and its Python are known to be there.

    Raises UsageError if they are not.
    """
    program(kind)
    check_python(kind, python)
    return [Peer(kind, mode, python) for mode in MODES[kind]]


def program(kind: str) -> Path:
    """Give the peer's program. Raises UsageError where it is not, in an installed package."""
    path = PROGRAMS / f"peer_{kind}.py"
    if not path.is_file():
        raise UsageError(
            f"--peer {kind} needs bench/{path.name} of the source tree, which is not installed."
            " Run llmpy from a checkout."
        )
    return path


def check_python(kind: str, python: str) -> None:
    """Raise UsageError unless `python` runs and has the framework."""
    got, want = f"--peer-python is {python}", f"a Python that has {kind}"
    if shutil.which(python) is None:
        there = "is no program" if os.path.exists(python) else "does not exist"
        raise UsageError(f"{got}, which {there}, expected {want}")
    # the program will not look in the current folder, which is '' to -c
    probe = (
        "import sys; sys.path = [folder for folder in sys.path if folder];"
        f" import importlib.util; print(importlib.util.find_spec('{kind}') is not None)"
    )
    try:
        done = run_group([python, "-c", probe], 60)
    except (OSError, subprocess.TimeoutExpired) as error:
        because = getattr(error, "strerror", None) or "no answer in 60 s"
        raise UsageError(f"{got}, which does not run: {because}, expected {want}") from None
    answer = _last_line(done.stdout)
    if answer == "False":
        raise UsageError(f"{got}, which has no {kind}, expected {want}")
    if answer != "True":
        raise UsageError(f"{got}, which is no Python, expected {want}")


def read_answer(who: str, line: str) -> PeerRun:
    """Read the line of JSON that a peer prints. Raises BackendError if it is none."""
    try:
        answer: Any = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise BackendError(f"{who}: last line is {line[:80]!r}, expected JSON with median_s")
    median = _number(answer.get("median_s"))
    if median is None or median <= 0:
        got = answer.get("median_s")
        raise BackendError(f"{who}: median_s is {repr(got)[:80]}, expected a number above 0")
    name, peak = answer.get("peer"), _number(answer.get("peak_rss_gb"))
    if not isinstance(name, str) or not name.isprintable():  # it gets a line of the table
        name = who.removeprefix("peer ")
    return PeerRun(
        peer=name,
        median_s=median,
        peak_rss_gb=None if peak is None or peak <= 0 else peak,
    )


def _number(value: Any) -> float | None:
    """Give a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an int of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _words(workload: Workload) -> list[str]:
    """Give the sizes of a workload as the programs take them."""
    config = workload.config
    sizes = {
        "B": workload.B,
        "T": workload.T,
        "V": config.vocab_size,
        "maxT": config.max_seq_len,
        "L": config.num_layers,
        "NH": config.num_heads,
        "C": config.channels,
        "warm-up": workload.warm_up,
        "steps": workload.steps,
    }
    return [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
