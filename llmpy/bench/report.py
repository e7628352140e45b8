"""What a benchmark gives: the result of a workload, as JSON and as a table for people."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import cast

from ..config import DeviceConfig
from .peer import PeerRun
from .profile import Profile
from .steps import Timing
from .turns import median_of
from .workloads import Limits, Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The times of one workload, and what they are measured against."""

    workload: str
    dtype: str
    backend: str
    threads: int | None  # None where the backend does not tell
    recompute: int
    runs: int  # processes; the median of their medians counts
    median_s: float
    min_s: float
    tokens_per_s: float
    gflops: float
    peak_rss_gb: float | None  # None where the system does not tell
    peak_gflops: float
    bandwidth_gbs: float
    floor_s: float
    floor_share: float
    peer: str | None = None
    peer_median_s: float | None = None
    peer_peak_rss_gb: float | None = None
    ratio: float | None = None  # peer_median_s / median_s: above 1, llmpy is faster
    dispatches: float | None = None  # of a step, as the next two; None where there is no device
    submits: float | None = None
    bytes_read_back: float | None = None
    profile: Profile | None = None


def make_result(
    name: str,
    workload: Workload,
    dtype: str,
    recompute: int,
    limits: Limits,
    timings: Sequence[Timing],
    peer: Sequence[PeerRun] = (),
) -> Result:
    """Sum up the runs of a workload, and of its peer if there was one."""
    median = statistics.median(statistics.median(timing["seconds"]) for timing in timings)
    floor = workload.floor_s(limits)
    traffic: Mapping[str, float] = cast("Mapping[str, float]", timings[0]["traffic"] or {})
    peer_median = median_of(peer) if peer else None
    return Result(
        workload=name,
        dtype=dtype,
        backend=timings[0]["backend"],
        threads=timings[0]["threads"],
        recompute=recompute,
        runs=len(timings),
        median_s=median,
        min_s=min(min(timing["seconds"]) for timing in timings),
        tokens_per_s=workload.tokens / median,
        gflops=workload.operations / median / 1e9,
        peak_rss_gb=_largest([timing["peak_rss_gb"] for timing in timings]),
        peak_gflops=limits.peak_gflops,
        bandwidth_gbs=limits.bandwidth_gbs,
        floor_s=floor,
        floor_share=floor / median,
        peer=peer[0].peer if peer else None,
        peer_median_s=peer_median,
        peer_peak_rss_gb=_largest([run.peak_rss_gb for run in peer]),
        ratio=None if peer_median is None else peer_median / median,
        profile=timings[0]["profile"],
        **traffic,
    )


def _largest(sizes: Sequence[float | None]) -> float | None:
    return max((size for size in sizes if size is not None), default=None)


def limits_line(limits: Limits, device: DeviceConfig) -> str:
    """Say what the machine can do."""
    what, threads = "this machine", device.threads
    if threads is not None:
        what += f" on {threads} thread{'' if threads == 1 else 's'}"
    if device.backend == "webgpu":
        what = "this device"
    return (
        f"{what}: {limits.peak_gflops:.1f} GFLOP/s {device.dtype},"
        f" {limits.bandwidth_gbs:.1f} GB/s\n"
    )


def table(results: Sequence[Result]) -> str:
    """Lay results out in columns, for people; what peers took stands below."""
    lines = [
        f"{'workload':10} {'dtype':8} {'median s':>8} {'min s':>8} {'tokens/s':>8} {'GFLOP/s':>7}"
        f" {'floor s':>8} {'share':>6} {'peak GB':>7}"
    ]
    for r in results:
        lines.append(
            f"{r.workload:10} {r.dtype:8} {r.median_s:8.4f} {r.min_s:8.4f} {r.tokens_per_s:8.0f}"
            f" {r.gflops:7.1f} {r.floor_s:8.4f} {r.floor_share:6.1%}"
            f" {_number(r.peak_rss_gb, 2):>7}"
        )
    on_device = [result for result in results if result.submits is not None]
    if on_device:
        lines += [
            "",
            f"{'workload':10} {'dtype':8} {'dispatches':>10} {'submits':>8} {'read back':>9}"
            "  of a step",
        ]
    for r in on_device:
        lines.append(
            f"{r.workload:10} {r.dtype:8} {_number(r.dispatches):>10} {_number(r.submits, 1):>8}"
            f" {_number(r.bytes_read_back):>9}"
        )
    peers = [result for result in results if result.peer]
    if peers:
        lines += [
            "",
            f"{'workload':10} {'dtype':8} {'peer s':>8} {'ratio':>8} {'peak GB':>8}  peer",
        ]
    for r in peers:
        lines.append(
            f"{r.workload:10} {r.dtype:8} {_number(r.peer_median_s, 4):>8}"
            f" {_number(r.ratio, 2):>8} {_number(r.peer_peak_rss_gb, 2):>8}  {r.peer}"
        )
    return "\n".join(lines) + "\n"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def doubt(result: Result) -> str:
    """Say that the limits were measured too low: a step took less than its floor."""
    return (
        f"{result.workload} {result.dtype}: a step took {result.min_s:.4f} s, less than the floor"
        f" of {result.floor_s:.4f} s: the limits were measured too low, most likely beside other"
        " work. Measure again without it."
    )


def profile_table(result: Result) -> str:
    """Lay the profile of a result out, for people; empty without one."""
    profile = result.profile
    if profile is None:
        return ""
    step = profile["step_s"]
    lines = [
        f"{result.workload} {result.dtype}: ops of a step of {1e3 * step:.2f} ms",
        f"{'op':28} {'calls':>5} {'ms':>9} {'of step':>7} {'rate':>7}         {'of limit':>8}",
    ]
    for op in profile["ops"]:
        unit = "GFLOP/s" if op["limit"] == "peak" else "GB/s"
        lines.append(
            f"{op['op']:28} {op['calls']:5} {1e3 * op['seconds']:9.3f} {op['seconds'] / step:7.1%}"
            f" {op['rate']:7.1f} {unit:7} {op['limit_share']:8.1%}"
        )
    calls = sum(op["calls"] for op in profile["ops"])
    in_ops = math.fsum(op["seconds"] for op in profile["ops"])
    lines.append(f"{'all ops':28} {calls:5} {1e3 * in_ops:9.3f} {in_ops / step:7.1%}")
    rest = profile["rest_s"]
    lines.append(f"{'Python between them':28} {'':5} {1e3 * rest:9.3f} {rest / step:7.1%}")
    if profile["tiles"]:
        lines += [
            "",
            "each op was sent to the device and waited for by itself",
            "",
            f"{'--tile':16} {'GFLOP/s':>8} {'of peak':>8}"
            f" {'forward':>8} {'dinp':>8} {'dweight':>8}",
        ]
    for tile in profile["tiles"]:
        lines.append(
            f"{tile['tile']:16} {tile['gflops']:8.1f} {tile['gflops'] / result.peak_gflops:8.1%}"
            f" {tile['forward_gflops']:8.1f} {tile['dinp_gflops']:8.1f}"
            f" {tile['dweight_gflops']:8.1f}"
        )
    return "\n".join(lines) + "\n"
