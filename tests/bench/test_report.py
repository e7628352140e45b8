"""Results: the sums worked by hand, and the tables read whole."""

import dataclasses

import pytest

from llmpy.bench.peer import PeerRun
from llmpy.bench.report import Result, limits_line, make_result, profile_table, table
from llmpy.bench.workloads import Limits
from llmpy.config import DeviceConfig

from .sizes import LIMITS, TINY


def timing(*seconds, peak=0.5, traffic=None, profile=None):
    return {
        "backend": "cpu", "threads": 2, "seconds": list(seconds), "peak_rss_gb": peak,
        "traffic": traffic, "profile": profile,
    }  # fmt: skip


def test_the_median_of_the_runs_medians():
    timings = [timing(1.0, 2.0, 9.0), timing(3.0, 3.0), timing(8.0, peak=0.7)]
    peer = [PeerRun("torch 2 eager", s, gb) for s, gb in ((6.0, 1.0), (12.0, 2.0), (9.0, None))]
    result = make_result("tiny", TINY, "float32", 1, LIMITS, timings, peer)
    assert result.median_s == 3.0
    assert result.min_s == 1.0
    assert (result.runs, result.recompute) == (3, 1)
    assert result.tokens_per_s == pytest.approx(16 / 3.0)
    assert result.gflops == pytest.approx(TINY.operations / 3.0 / 1e9)
    assert result.floor_s == pytest.approx(TINY.operations / 200e9 + TINY.optimizer_bytes / 50e9)
    assert result.floor_share == pytest.approx(result.floor_s / 3.0)
    assert result.peak_rss_gb == 0.7
    assert (result.peer, result.peer_median_s, result.peer_peak_rss_gb) == ("torch 2 eager", 9, 2)
    assert result.ratio == pytest.approx(3.0)  # llmpy takes a third


def test_without_a_peer():
    result = make_result("tiny", TINY, "float32", 0, LIMITS, [timing(2.0, peak=None)])
    assert (result.peer, result.peer_median_s, result.ratio) == (None, None, None)
    assert result.peak_rss_gb is None
    assert result.profile is None


RESULT = Result(
    workload="baby", dtype="float32", backend="cpu", threads=2, recompute=0, runs=1,
    median_s=0.0125, min_s=0.012, tokens_per_s=61440.0, gflops=321.5, peak_rss_gb=0.251,
    peak_gflops=500.0, bandwidth_gbs=60.0, floor_s=0.01, floor_share=0.8,
)  # fmt: skip

WITH_PEER = dataclasses.replace(
    RESULT, workload="124m-t1024", threads=None, peak_rss_gb=None, peer="torch 2.13.0 eager",
    peer_median_s=0.025, peer_peak_rss_gb=10.5, ratio=2.0,
)  # fmt: skip


def test_table():
    assert table([RESULT]) == (
        "workload   dtype    median s    min s tokens/s GFLOP/s  floor s  share peak GB\n"
        "baby       float32    0.0125   0.0120    61440   321.5   0.0100  80.0%    0.25\n"
    )


def test_table_with_peers():
    assert table([RESULT, WITH_PEER]) == (
        "workload   dtype    median s    min s tokens/s GFLOP/s  floor s  share peak GB\n"
        "baby       float32    0.0125   0.0120    61440   321.5   0.0100  80.0%    0.25\n"
        "124m-t1024 float32    0.0125   0.0120    61440   321.5   0.0100  80.0%       -\n"
        "\n"
        "workload   dtype      peer s    ratio  peak GB  peer\n"
        "124m-t1024 float32    0.0250     2.00    10.50  torch 2.13.0 eager\n"
    )


def test_what_a_step_asks_of_a_device():
    traffic = {"dispatches": 317.0, "submits": 2.0, "bytes_read_back": 0.0}
    result = make_result("tiny", TINY, "float32", 0, LIMITS, [timing(2.0, traffic=traffic)])
    assert (result.dispatches, result.submits, result.bytes_read_back) == (317, 2, 0)
    assert table([dataclasses.replace(RESULT, backend="webgpu", threads=None, **traffic)]) == (
        "workload   dtype    median s    min s tokens/s GFLOP/s  floor s  share peak GB\n"
        "baby       float32    0.0125   0.0120    61440   321.5   0.0100  80.0%    0.25\n"
        "\n"
        "workload   dtype    dispatches  submits read back  of a step\n"
        "baby       float32         317      2.0         0\n"
    )


@pytest.mark.parametrize(
    ("device", "what"),
    [
        (DeviceConfig(), "this machine"),
        (DeviceConfig(threads=1), "this machine on 1 thread"),
        (DeviceConfig(threads=2), "this machine on 2 threads"),
        (DeviceConfig(backend="webgpu"), "this device"),
    ],
)
def test_limits_line(device, what):
    line = limits_line(Limits(203.25, 41.04), device)
    assert line == f"{what}: 203.2 GFLOP/s float32, 41.0 GB/s\n"


def test_profile_table():
    ops = [
        {
            "op": "matmul_forward", "calls": 48, "seconds": 0.006, "operations": 10**9,
            "bytes": 10**6, "limit": "peak", "rate": 166.7, "limit_share": 0.834,
        },
        {
            "op": "adamw", "calls": 1, "seconds": 0.002, "operations": 0,
            "bytes": 10**8, "limit": "bandwidth", "rate": 50.0, "limit_share": 1.0,
        },
    ]  # fmt: skip
    result = dataclasses.replace(RESULT, profile={
        "step_s": 0.010, "rest_s": 0.002, "ops": ops, "tiles": []
    })  # fmt: skip
    text = (
        "baby float32: ops of a step of 10.00 ms\n"
        "op                           calls        ms of step    rate         of limit\n"
        "matmul_forward                  48     6.000   60.0%   166.7 GFLOP/s    83.4%\n"
        "adamw                            1     2.000   20.0%    50.0 GB/s      100.0%\n"
        "all ops                         49     8.000   80.0%\n"
        "Python between them                    2.000   20.0%\n"
    )
    assert profile_table(result) == text
    tiles = [
        {
            "tile": "64x64-few", "forward_gflops": 300.0, "dinp_gflops": 250.0,
            "dweight_gflops": 200.0, "gflops": 243.2,
        },
        {
            "tile": "32x32", "forward_gflops": 30.0, "dinp_gflops": 20.0, "dweight_gflops": 9.0,
            "gflops": 15.5,
        },
    ]  # fmt: skip
    on_device = dataclasses.replace(result, profile={**result.profile, "tiles": tiles})
    assert profile_table(on_device) == text + (
        "\n"
        "each op was sent to the device and waited for by itself\n"
        "\n"
        "--tile            GFLOP/s  of peak  forward     dinp  dweight\n"
        "64x64-few           243.2    48.6%    300.0    250.0    200.0\n"
        "32x32                15.5     3.1%     30.0     20.0      9.0\n"
    )
    assert profile_table(RESULT) == ""
