"""Benchmarks: the arithmetic, a tiny workload in this process, the table and the file."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from llmpy import bench, config, ops
from llmpy.bench import WORKLOADS, Result, Workload, run_workload, table, time_steps
from llmpy.cli import main
from llmpy.config import DeviceConfig
from llmpy.errors import BackendError

from .tiny_run import CONFIG

TINY = Workload(CONFIG, B=2, T=8, warm_up=1, steps=5)
NUMPY = DeviceConfig(backend="numpy")


def test_operations_of_124m():
    """190 GFLOP a step of B 4, T 64, as worked by hand from the shapes of the matmuls."""
    assert WORKLOADS["124m-t64"].operations / 1e9 == pytest.approx(190, abs=1.0)
    C, Vp = 768, 50304
    weights = 12 * (3 * C * C + C * C + 4 * C * C + 4 * C * C) + Vp * C
    assert WORKLOADS["124m-t64"].operations == 3 * (2 * 256 * weights + 2 * 256 * 64 * C * 12)


def test_workloads_are_the_rows_that_are_compared():
    sizes = {n: (w.config.num_layers, w.config.channels, w.B, w.T) for n, w in WORKLOADS.items()}
    assert sizes == {
        "124m-t64": (12, 768, 4, 64),
        "124m-t1024": (12, 768, 4, 1024),
        "char-384": (6, 384, 16, 256),
        "baby": (4, 128, 12, 64),
    }  # fmt: skip
    assert tuple(WORKLOADS) == config.WORKLOADS  # the names that --workload takes


def test_steps_are_timed_without_the_warm_up():
    told = []
    seconds = time_steps(TINY, ops, told.append)
    assert told == ["step 1/6", "step 2/6", "step 3/6", "step 4/6", "step 5/6", "step 6/6"]
    assert len(seconds) == 5
    assert min(seconds) > 0


def test_a_result_adds_up():
    result = run_workload("tiny", TINY, NUMPY)
    assert (result.workload, result.dtype, result.backend) == ("tiny", "float32", "numpy")
    assert result.threads is None
    assert 0 < result.min_s <= result.median_s
    assert result.tokens_per_s == pytest.approx(16 / result.median_s)
    assert result.gflops == pytest.approx(TINY.operations / result.median_s / 1e9)
    assert result.peak_rss_gb is None or 0.01 < result.peak_rss_gb < 100


RESULT = Result(
    workload="baby", dtype="float32", backend="cpu", threads=2, median_s=0.0125, min_s=0.012,
    tokens_per_s=61440.0, gflops=321.5, peak_rss_gb=0.251,
)  # fmt: skip


def test_table():
    assert table([RESULT]) == (
        "workload   dtype    backend threads median s    min s tokens/s GFLOP/s peak GB\n"
        "baby       float32  cpu           2   0.0125   0.0120    61440   321.5    0.25\n"
    )


def test_json_is_a_list_of_objects(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(bench, "_in_own_process", lambda name, device: RESULT)
    path = tmp_path / "r.json"
    assert main(["bench", "--workload", "baby", "--backend", "numpy", "--json", str(path)]) == 0
    assert json.loads(path.read_text()) == [
        {
            "workload": "baby", "dtype": "float32", "backend": "cpu", "threads": 2,
            "median_s": 0.0125, "min_s": 0.012, "tokens_per_s": 61440.0, "gflops": 321.5,
            "peak_rss_gb": 0.251,
        }
    ]  # fmt: skip
    assert capfd.readouterr().out == table([RESULT])


def test_a_json_path_that_cannot_be_written_is_told_before_the_work(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(bench, "_in_own_process", lambda *_: pytest.fail("worked"))
    path = tmp_path / "no" / "r.json"
    assert main(["bench", "--backend", "numpy", "--json", str(path)]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"llmpy bench: {path}: folder {tmp_path}/no does not exist. Make it first."
    )


def test_a_workload_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(bench, "WORKLOADS", {"unknown there": TINY})
    with pytest.raises(BackendError) as error:
        bench.bench("unknown there", NUMPY)
    assert str(error.value) == (
        "bench: process of workload unknown there ended with status 1, expected 0"
    )


def test_what_a_process_cannot_do_is_one_line(monkeypatch):
    monkeypatch.setattr("llmpy.footprint.available_bytes", lambda: 1_000_000)
    with pytest.raises(SystemExit) as end:
        bench._main("baby", json.dumps(dataclasses.asdict(NUMPY)))
    assert re.fullmatch(
        r"baby: GPT2: the model needs \S+ GB, expected at most the 0.0 GB of memory that are"
        " available here",
        str(end.value.code),
    )


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_a_process_shows_its_steps_on_the_terminal_and_ends_silently():
    terminal, its_side = os.openpty()
    words = [sys.executable, "-m", "llmpy.bench", "baby", json.dumps(dataclasses.asdict(NUMPY))]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=its_side) as process:
        os.close(its_side)
        shown = b""
        while b"baby: step 2/220" not in shown:
            shown += os.read(terminal, 1000)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        with contextlib.suppress(OSError):  # the other side is closed
            shown += os.read(terminal, 10000)
    os.close(terminal)
    assert b"Traceback" not in shown
