"""Measure llmpy beside its peers, and write docs/performance.md with its picture.

    python bench/performance [--quick] [--torch-python PYTHON] [--jax-python PYTHON]
    python bench/performance --render

Each run is a process of its own; llmpy and its peers take turns. What was measured is kept in
docs/performance.jsonl, a line a run, so that the same command goes on where it was cut. --quick
took 64 minutes on two cores; without it, hours. --render writes page and picture anew from that
file, and measures nothing. Needs llmpy's extra `plot`.
"""

import argparse
import dataclasses
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

ENVIRONMENT = dict(os.environ)  # the peers': importing kernels sets variables

from bench.performance import machine  # noqa: E402
from bench.performance.page import write_page  # noqa: E402
from bench.performance.records import ONE_THREAD, OURS, Records  # noqa: E402
from llmpy.bench import Bench  # noqa: E402
from llmpy.bench.peer import MODES, PeerTimeoutError, find_peers  # noqa: E402
from llmpy.bench.turns import clearly_slower  # noqa: E402
from llmpy.bench.workloads import WORKLOADS  # noqa: E402
from llmpy.config import DTYPES, DeviceConfig  # noqa: E402
from llmpy.console import note  # noqa: E402
from llmpy.errors import BackendError, UsageError  # noqa: E402

ALONE = ("124m-t256",)  # workloads that show how cost grows, without peers
BOTH_THREADS = ("124m-t64",)  # run on one thread, too


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long to measure: for each workload, how many runs, and after what time a peer is cut."""

    rounds: dict[str, int]
    limits_s: dict[str, float]
    enough_s: float  # of a run's timed steps


# fmt: off
QUICK = Pace(
    rounds={"baby": 5, "char-384": 5, "124m-t64": 5, "124m-t256": 1, "124m-t1024": 5},
    limits_s={"baby": 120, "char-384": 120, "124m-t64": 150, "124m-t256": 150, "124m-t1024": 300},
    enough_s=4,
)
WHOLE = Pace(
    rounds={"baby": 5, "char-384": 5, "124m-t64": 5, "124m-t256": 3, "124m-t1024": 5},
    limits_s=dict.fromkeys(WORKLOADS, 900),
    enough_s=40,
)
# fmt: on


def plan(pace, workloads, dtypes):
    """Give (round, dtype, workload) in order: a whole table first, then more runs of each."""
    by_size = sorted(workloads, key=lambda name: WORKLOADS[name].operations)
    return [
        (turn, dtype, name)
        for turn in range(max(pace.rounds.values()))
        for name in by_size
        for dtype in dtypes
        if turn < pace.rounds[name]
    ]


def measure(records, pace, workloads, dtypes, peers):
    """Take all runs of the plan that the records lack."""
    for turn, dtype, name in plan(pace, workloads, dtypes):
        bench = Bench(
            device=DeviceConfig(dtype=dtype), enough_s=pace.enough_s, limit_s=pace.limits_s[name],
            environment=ENVIRONMENT,
        )  # fmt: skip
        single = dataclasses.replace(bench, device=DeviceConfig(dtype=dtype, threads=1))
        measure_limits(records, bench)
        measure_ours(records, bench, name, OURS, turn)
        if name in BOTH_THREADS:
            measure_limits(records, single)
            measure_ours(records, single, name, ONE_THREAD, turn)
        for peer in () if name in ALONE else peers:
            if is_to_run(records, pace, name, dtype, peer, peers, turn):
                measure_peer(records, bench, name, peer)


def measure_limits(records, bench):
    """Measure the machine, once for each dtype and number of threads."""
    key = {"dtype": bench.device.dtype, "threads": bench.device.threads}
    if not records.find("limits", **key):
        note(f"limits {bench.device.dtype}")
        records.add("limits", **key, **dataclasses.asdict(bench.limits()))


def measure_ours(records, bench, name, who, turn):
    """Run llmpy once, unless it has been run so often; the first run is profiled."""
    device = bench.device
    if len(records.runs(name, device.dtype, who)) > turn:
        return
    note(f"{name} {device.dtype}: {who}, run {turn + 1}")
    limits = records.limits(device.dtype) if who == OURS and turn == 0 else None
    timing = bench.run(name, limits)
    records.add(
        "run",
        workload=name,
        dtype=device.dtype,
        who=who,
        peer=who,
        threads=timing["threads"],
        median_s=statistics.median(timing["seconds"]),
        peak_rss_gb=timing["peak_rss_gb"],
        profile=timing["profile"],
    )


def is_to_run(records, pace, name, dtype, peer, peers, turn):
    """Tell whether a peer is still to run: not if it has, was cut, or another mode is faster."""
    if len(records.runs(name, dtype, who_is(peer))) > turn:
        return False
    failed = records.failures(name, dtype, [who_is(peer)])
    if any(failure["limit_s"] >= pace.limits_s[failure["workload"]] for failure in failed):
        return False
    rivals = {rival: records.runs(name, dtype, who_is(rival)) for rival in peers}
    return turn == 0 or peer not in clearly_slower(rivals)


def measure_peer(records, bench, name, peer):
    """Run a peer once; a failure is told and kept."""
    dtype, who = bench.device.dtype, who_is(peer)
    note(f"{name} {dtype}: {who}")
    try:
        run = bench.run_peer(name, peer)
    except BackendError as error:
        note(str(error))
        cut = isinstance(error, PeerTimeoutError)
        reason = str(error).removeprefix("peer ").removesuffix(", expected less")
        records.add(
            "failure",
            workload=name,
            dtype=dtype,
            who=who,
            reason=reason,
            cut=cut,
            limit_s=bench.limit_s,
        )
        return
    records.add("run", workload=name, dtype=dtype, who=who, **dataclasses.asdict(run))


def who_is(peer):
    """Give a peer's name in the records."""
    return f"{peer.kind} {peer.mode}"


def arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    for kind in MODES:
        parser.add_argument(f"--{kind}-python", metavar="PYTHON", help=f"a Python with {kind}")
    parser.add_argument("--workload", action="append", choices=[*WORKLOADS], help="only this one")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="only this one")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs", help="where the files go")
    return parser.parse_args()


def main():
    """Measure what is missing, and write the page."""
    args = arguments()
    path = args.folder / "performance.jsonl"
    if args.fresh and not args.render:
        path.unlink(missing_ok=True)
    records = Records(path)
    if not args.render:
        try:
            measure_all(records, args)
        except (UsageError, BackendError) as error:
            sys.exit(f"performance: {error}")
    if records.machine() is None:
        sys.exit(f"performance: {path}: nothing was measured yet. Run it without --render.")
    for written in write_page(records, args.folder):
        print(f"wrote {written}")


def measure_all(records, args):
    """Measure on this machine. Raises UsageError where the records are of another."""
    here, before = machine.describe(), records.machine()
    if before is None:
        records.add("machine", **here)
    elif any(here[key] != before[key] for key in ("cpu", "cores", "sources")):
        raise UsageError(
            f"{records.path}: runs are of another machine or other sources."
            " Begin anew with --fresh, or show them with --render."
        )
    pythons = {kind: getattr(args, f"{kind}_python") for kind in MODES}
    peers = [p for kind, python in pythons.items() if python for p in find_peers(kind, python)]
    pace = QUICK if args.quick else WHOLE
    measure(records, pace, args.workload or [*WORKLOADS], args.dtype or DTYPES, peers)


if __name__ == "__main__":
    main()
