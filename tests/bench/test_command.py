"""`llmpy bench`: what goes where, and its processes."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from llmpy import bench, ops
from llmpy.bench import Bench, __main__
from llmpy.bench.peer import Peer, PeerRun
from llmpy.bench.report import limits_line, table
from llmpy.cli import main
from llmpy.config import DeviceConfig
from llmpy.errors import BackendError

from .sizes import LIMITS
from .test_report import RESULT, WITH_PEER, timing

NUMPY = DeviceConfig(backend="numpy")


@pytest.fixture
def measured(monkeypatch):
    """Let the machine be measured at once."""
    monkeypatch.setattr(Bench, "limits", lambda self: LIMITS)


def order(name="baby", device=NUMPY, limits=None):
    return json.dumps({
        "device": dataclasses.asdict(device), "name": name, "recompute": 0, "enough_s": 0.001,
        "limits": limits,
    })  # fmt: skip


def test_json_is_a_list_of_objects(tmp_path, monkeypatch, capfd, measured):
    monkeypatch.setattr(Bench, "result", lambda self, name, limits, peers, profile: WITH_PEER)
    path = tmp_path / "r.json"
    assert main(["bench", "--workload", "baby", "--backend", "numpy", "--json", str(path)]) == 0
    assert json.loads(path.read_text()) == [
        {
            "workload": "124m-t1024", "dtype": "float32", "backend": "cpu", "threads": None,
            "recompute": 0, "runs": 1, "median_s": 0.0125, "min_s": 0.012,
            "tokens_per_s": 61440.0, "gflops": 321.5, "peak_rss_gb": None, "peak_gflops": 500.0,
            "bandwidth_gbs": 60.0, "floor_s": 0.01, "floor_share": 0.8,
            "peer": "torch 2.13.0 eager", "peer_median_s": 0.025, "peer_peak_rss_gb": 10.5,
            "ratio": 2.0, "dispatches": None, "submits": None, "bytes_read_back": None,
            "profile": None,
        }
    ]  # fmt: skip
    line = limits_line(LIMITS, NUMPY)
    assert capfd.readouterr().out == line + table([WITH_PEER])


@pytest.mark.parametrize(("floor", "doubtful"), [(0.0119, False), (0.0121, True)])
def test_a_step_below_its_floor_is_told(floor, doubtful, monkeypatch, capfd, measured):
    result = dataclasses.replace(RESULT, floor_s=floor)
    monkeypatch.setattr(Bench, "result", lambda self, *args, profile: result)
    assert main(["bench", "--workload", "baby", "--backend", "numpy"]) == 0
    told = (
        "baby float32: a step took 0.0120 s, less than the floor of 0.0121 s: the limits were"
        " measured too low, most likely beside other work. Measure again without it."
    )
    assert (told in capfd.readouterr().err.splitlines()) == doubtful


def test_what_was_not_asked_for_is_null_in_json(tmp_path, monkeypatch, capfd, measured):
    monkeypatch.setattr(Bench, "result", lambda self, *args, profile: RESULT)
    path = tmp_path / "r.json"
    assert main(["bench", "--workload", "baby", "--backend", "numpy", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())
    assert {key for key, value in row.items() if value is None} == {
        "peer", "peer_median_s", "peer_peak_rss_gb", "ratio", "dispatches", "submits",
        "bytes_read_back", "profile",
    }  # fmt: skip


def test_all_workloads_in_order(monkeypatch, capfd, measured):
    names = []
    monkeypatch.setattr(Bench, "result", lambda self, name, *_, **how: names.append(name) or RESULT)
    assert main(["bench", "--backend", "numpy"]) == 0
    assert names == list(bench.WORKLOADS)


def test_a_json_path_that_cannot_be_written_is_told_before_the_work(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(Bench, "limits", lambda self: pytest.fail("worked"))
    path = tmp_path / "no" / "r.json"
    assert main(["bench", "--backend", "numpy", "--json", str(path)]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"llmpy bench: {path}: folder {tmp_path}/no does not exist. Make it first."
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--peer tinygrad", "--peer is tinygrad, expected one of torch, jax"),
        ("--peer-python p", "--peer-python is given without --peer, expected both"),
        ("--recompute 3", "--recompute is 3, expected 0, 1 or 2"),
        ("--recompute x", "--recompute is x, expected a whole number"),
        (
            "--peer jax --peer-python no/python",
            "--peer-python is no/python, which does not exist, expected a Python that has jax",
        ),
    ],
)
def test_what_cannot_be_carried_out(words, message, capfd):
    assert main(["bench", "--backend", "numpy", *words.split()]) == 2
    assert capfd.readouterr().err == f"llmpy bench: {message}\n"


def test_a_run_beside_a_peer(monkeypatch, capfd, measured, tmp_path):
    """The whole way, with a program of our own in the peer's place and our own timing given."""
    program = tmp_path / "peer_jax.py"
    program.write_text("""
import json, os, sys
assert "OURS" not in os.environ  # what a backend sets for itself
assert sys.argv[sys.argv.index("--dtype") + 1] == "float32"
print(json.dumps({"peer": "jax 1.2", "median_s": 0.5, "peak_rss_gb": 2.0}))
""")

    def open_backend(device):
        monkeypatch.setenv("OURS", "1")
        return ops, "backend numpy"

    monkeypatch.setattr("llmpy.cli.bench.open_backend", open_backend)
    monkeypatch.setattr("llmpy.bench.peer.PROGRAMS", tmp_path)
    monkeypatch.setattr("llmpy.bench.peer.check_python", lambda kind, python: None)
    runs = []
    monkeypatch.setattr(
        Bench, "run", lambda self, name, limits=None: runs.append(limits) or timing(0.25)
    )
    path = tmp_path / "r.json"
    words = ["--peer", "jax", "--peer-python", sys.executable, "--profile", "--json", str(path)]
    assert main(["bench", "--backend", "numpy", "--workload", "baby", *words]) == 0
    (row,) = json.loads(path.read_text())
    assert (row["peer"], row["peer_median_s"], row["ratio"]) == ("jax 1.2", 0.5, 2.0)
    assert (row["runs"], row["peer_peak_rss_gb"]) == (5, 2.0)
    assert runs == [LIMITS, None, None, None, None]  # profiled once


def test_a_peer_that_fails_is_one_line_and_status_1(monkeypatch, capfd, measured, tmp_path):
    (tmp_path / "peer_jax.py").write_text("raise ImportError('no jaxlib')")
    monkeypatch.setattr("llmpy.bench.peer.PROGRAMS", tmp_path)
    monkeypatch.setattr("llmpy.bench.peer.check_python", lambda kind, python: None)
    monkeypatch.setattr(Bench, "run", lambda self, name, limits=None: timing(0.25))
    assert main(["bench", "--backend", "numpy", "--workload", "baby", "--peer", "jax"]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "llmpy bench: peer jax compile: process ended with status 1, expected status 0:"
        " ImportError: no jaxlib"
    )


def test_a_peer_runs_with_the_conditions_of_ours(monkeypatch):
    asked = []
    monkeypatch.setattr(
        Peer, "run", lambda self, *args, **how: asked.append((args, how)) or PeerRun("p", 1, None)
    )
    device = DeviceConfig(dtype="bfloat16", threads=1)
    Bench(device=device, enough_s=2.0, limit_s=3.0).run_peer("baby", Peer("jax", "compile", "p"))
    assert asked == [
        (
            (bench.WORKLOADS["baby"], "bfloat16", 1),
            {"enough_s": 2.0, "limit_s": 3.0, "environment": None},
        )
    ]


# the processes


def test_a_process_that_fails(monkeypatch):
    with pytest.raises(BackendError) as error:
        Bench(device=NUMPY).run("unknown there")
    assert str(error.value) == (
        "bench: process of workload unknown there ended with status 1, expected status 0"
    )


def test_a_process_that_is_killed(monkeypatch, tmp_path):
    """As the system does where memory does not suffice."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(BackendError) as error:
        Bench(device=NUMPY).run("baby")
    assert str(error.value) == (
        "bench: process of workload baby ended by signal 9, expected status 0"
    )


def test_what_a_process_cannot_do_is_one_line(monkeypatch):
    monkeypatch.setattr("llmpy.footprint.available_bytes", lambda: 1_000_000)
    with pytest.raises(SystemExit) as end:
        __main__.main("workload", order())
    assert re.fullmatch(
        r"baby: GPT2: the model needs \S+ MB, expected at most the 1.0 MB of memory that are"
        " available here",
        str(end.value.code),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_limits_are_those_of_the_dtype(monkeypatch, dtype):
    asked = []
    monkeypatch.setattr(__main__, "open_backend", lambda device: (ops, ""))
    monkeypatch.setattr("llmpy.cpu.limits.peak_gflops", lambda bf16: asked.append(bf16) or 200.0)
    monkeypatch.setattr("llmpy.cpu.limits.bandwidth_gbs", lambda: 50.0)
    assert __main__.measure_limits(DeviceConfig(dtype=dtype)) == LIMITS
    assert asked == [dtype == "bfloat16"]


def test_a_process_tells_the_limits(monkeypatch, capfd):
    monkeypatch.setattr(__main__, "measure_limits", lambda device: LIMITS)
    __main__.main("limits", json.dumps({"device": dataclasses.asdict(NUMPY)}))
    assert json.loads(capfd.readouterr().out) == {"peak_gflops": 200.0, "bandwidth_gbs": 50.0}


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_a_process_shows_its_steps_on_the_terminal_and_ends_silently():
    terminal, its_side = os.openpty()
    words = [sys.executable, "-m", "llmpy.bench", "workload", order()]
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


@pytest.mark.parametrize(("name", "enough"), [("webgpu", 20.0), ("numpy", None)])
def test_a_device_is_timed_for_so_long(monkeypatch, measured, name, enough):
    """However slow it is; on the CPU all steps are timed."""
    made = []
    monkeypatch.setattr("llmpy.cli.bench.open_backend", lambda d: (SimpleNamespace(name=name), ""))
    monkeypatch.setattr(Bench, "result", lambda self, *a, profile: made.append(self) or RESULT)
    assert main(["bench", "--workload", "baby", "--backend", name]) == 0
    assert made[0].enough_s == enough
