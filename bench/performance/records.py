"""What was measured, one JSON object a line, so that a run that was cut goes on where it was.

    {"kind": "machine", ...}                      what it was measured on: see machine.py
    {"kind": "limits", "dtype", "threads", "peak_gflops", "bandwidth_gbs"}
    {"kind": "run", "workload", "dtype", "who", "peer", "median_s", "peak_rss_gb", "profile"}
    {"kind": "failure", "workload", "dtype", "who", "reason", "cut", "limit_s"}

`who` is `llmpy`, `llmpy 1 thread`, or a peer and its mode, such as `torch compile`. Of several
limits the largest count: the machine can do that. Of several runs the median counts.
"""

import json
from pathlib import Path
from typing import Any

from llmpy.bench.peer import MODES, PeerRun
from llmpy.bench.report import Result, make_result
from llmpy.bench.turns import median_of
from llmpy.bench.workloads import WORKLOADS, Limits

Record = dict[str, Any]
OURS, ONE_THREAD = "llmpy", "llmpy 1 thread"


class Records:
    """The records of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[Record] = []
        self._begin = ""
        text = path.read_text(encoding="ascii") if path.exists() else ""
        for line in text.splitlines():
            try:
                self.all.append(json.loads(line))
            except ValueError:
                continue  # the last one, if writing it was cut
        if text and not text.endswith("\n"):
            self._begin = "\n"

    def add(self, kind: str, **record: Any) -> None:
        """Append a record to the file."""
        self.all.append({"kind": kind, **record})
        line = json.dumps(self.all[-1], separators=(",", ":"))
        with self.path.open("a", encoding="ascii") as file:
            file.write(f"{self._begin}{line}\n")
        self._begin = ""

    def find(self, kind: str, **where: Any) -> list[Record]:
        """Give the records of a kind that have these values."""
        return [
            record
            for record in self.all
            if record["kind"] == kind and all(record[key] == value for key, value in where.items())
        ]

    def machine(self) -> Record | None:
        """Give the machine; None before anything was measured."""
        return next(iter(self.find("machine")), None)

    def dtypes(self) -> list[str]:
        """Give the dtypes that were measured, in their order."""
        return list(dict.fromkeys(run["dtype"] for run in self.find("run")))

    def limits(self, dtype: str, threads: int | None = None) -> Limits:
        """Give the best that was measured of the machine."""
        found = self.find("limits", dtype=dtype, threads=threads)
        return Limits(
            max(record["peak_gflops"] for record in found),
            max(record["bandwidth_gbs"] for record in found),
        )

    def runs(self, workload: str, dtype: str, who: str) -> list[PeerRun]:
        """Give the runs of a player."""
        return [
            PeerRun(run["peer"], run["median_s"], run["peak_rss_gb"])
            for run in self.find("run", workload=workload, dtype=dtype, who=who)
        ]

    def failures(self, workload: str, dtype: str, players: list[str]) -> list[Record]:
        """Give the failures of players on a workload, and where they were cut on a smaller one."""
        operations = WORKLOADS[workload].operations
        return [
            failed
            for failed in self.find("failure", dtype=dtype)
            if failed["who"] in players
            and (
                failed["workload"] == workload
                or (failed["cut"] and WORKLOADS[failed["workload"]].operations < operations)
            )
        ]

    def best(self, workload: str, dtype: str, kind: str) -> list[PeerRun]:
        """Give the runs of the better mode of a peer; empty if it has none."""
        players = [self.runs(workload, dtype, f"{kind} {mode}") for mode in MODES[kind]]
        return min(filter(None, players), key=median_of, default=[])

    def result(self, workload: str, dtype: str, peer: str | None = None) -> Result | None:
        """Sum up a workload, beside a peer (`torch`) if one is named; None if it was not run."""
        ours = self.find("run", workload=workload, dtype=dtype, who=OURS)
        if not ours:
            return None
        timings = [
            {
                "backend": "cpu", "threads": run["threads"], "seconds": [run["median_s"]],
                "peak_rss_gb": run["peak_rss_gb"], "traffic": None,
                "profile": run["profile"],
            }
            for run in ours
        ]  # fmt: skip
        timings.sort(key=lambda timing: timing["profile"] is None)  # the profiled one first
        theirs = [] if peer is None else self.best(workload, dtype, peer)
        limits = self.limits(dtype)
        return make_result(workload, WORKLOADS[workload], dtype, 0, limits, timings, theirs)
