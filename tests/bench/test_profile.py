"""The profile of a step: what is recorded, shares worked by hand, and that the parts sum up."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from llmpy import ops
from llmpy.bench.profile import Recorder
from llmpy.bench.steps import Trainer, profile_step

from .sizes import LIMITS, TINY


def clock(monkeypatch, *times):
    """Let time.perf_counter give these times."""
    ticks = iter(times)
    monkeypatch.setattr("llmpy.bench.profile.time", SimpleNamespace(perf_counter=ticks.__next__))


def fake_backend(log):
    return SimpleNamespace(
        name="fake",
        alloc=lambda shape: "memory",
        sync=lambda: log.append("sync"),
        matmul_forward=lambda *args: log.append("matmul"),
        adamw=lambda *args, **how: log.append(how) or "done",
    )


def test_shares_by_hand(monkeypatch):
    """200 GFLOP/s and 50 GB/s: matmuls of 2e9 operations take 10 ms, 28e6 bytes 0.56 ms."""
    clock(monkeypatch, 0.0, 0.020, 1.0, 1.030, 2.0, 2.0014)
    recorder = Recorder(fake_backend([]))
    wide = np.empty((1, 1000, 1000), np.float32)
    matmul = wide, wide, np.empty((1000, 1000), np.float32), None
    recorder.backend.matmul_forward(*matmul)
    recorder.backend.matmul_forward(*matmul)
    recorder.backend.adamw(*[np.empty(1_000_000, np.float32)] * 4)
    profile = recorder.take(0.060, LIMITS)
    assert profile == {
        "step_s": 0.060,
        "rest_s": pytest.approx(0.060 - 0.050 - 0.0014),
        "ops": [
            {
                "op": "matmul_forward", "calls": 2, "seconds": pytest.approx(0.050),
                "operations": 4_000_000_000, "bytes": 24_000_000, "limit": "peak",
                "rate": pytest.approx(80.0), "limit_share": pytest.approx(0.4),
            },
            {
                "op": "adamw", "calls": 1, "seconds": pytest.approx(0.0014),
                "operations": 0, "bytes": 28_000_000, "limit": "bandwidth",
                "rate": pytest.approx(20.0), "limit_share": pytest.approx(0.4),
            },
        ],
        "tiles": [],
    }  # fmt: skip
    nothing = {"step_s": 1.0, "rest_s": 1.0, "ops": [], "tiles": []}
    assert recorder.take(1.0, LIMITS) == nothing  # taken


def test_a_call_goes_through_and_is_waited_for():
    log = []
    backend = fake_backend(log)
    before = vars(backend).copy()
    recorder = Recorder(backend)
    array = np.zeros(2, np.float32)
    assert recorder.backend.adamw(array, array, array, array, lr=0.1) == "done"
    assert log == [{"lr": 0.1}, "sync"]
    assert recorder.backend.name == "fake"
    assert recorder.backend.alloc((1,)) == "memory"
    assert vars(backend) == before  # nothing is patched


def test_ops_that_a_clock_is_too_coarse_for(monkeypatch):
    clock(monkeypatch, 1.0, 1.0)
    recorder = Recorder(fake_backend([]))
    recorder.backend.adamw(*[np.empty(1, np.float32)] * 4)
    (op,) = recorder.take(1.0, LIMITS)["ops"]
    assert (op["seconds"], op["rate"], op["limit_share"]) == (0.0, 0.0, 0.0)


def test_a_profiled_step_trains_as_any_other():
    plain, profiled = Trainer(TINY, ops), Trainer(TINY, ops)
    for _ in range(3):
        plain.step()
    profile = profile_step(profiled, LIMITS)
    assert np.array_equal(plain.model.params.memory, profiled.model.params.memory)
    assert profiled.model.backend is ops  # as it was

    in_ops = sum(op["seconds"] for op in profile["ops"])
    assert in_ops + profile["rest_s"] == pytest.approx(profile["step_s"])
    assert 0 < in_ops < profile["step_s"]
    assert all(a["seconds"] >= b["seconds"] for a, b in itertools.pairwise(profile["ops"]))
    calls = {op["op"]: op["calls"] for op in profile["ops"]}
    assert calls["matmul_forward"] == 3  # qkv, attproj, fcproj of one layer
    assert calls["adamw"] == calls["global_norm"] == calls["classifier_forward_backward"] == 1
