"""bench/performance: what is run and what is not, and the page that is made of it."""

import json
import re
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

from bench.performance import __main__ as performance
from bench.performance import machine
from bench.performance.page import render, seconds, write_page
from bench.performance.picture import PARTS, parts_of
from bench.performance.records import ONE_THREAD, OURS, Records
from llmpy.bench import Bench
from llmpy.bench.costs import PRODUCTS
from llmpy.bench.peer import Peer, PeerRun, PeerTimeoutError
from llmpy.bench.workloads import WORKLOADS, Limits
from llmpy.errors import BackendError

COMPILE, EAGER = Peer("torch", "compile", "p"), Peer("torch", "eager", "p")
JAX = Peer("jax", "compile", "p")
MACHINE = {
    "date": "2026-01-02", "cpu": "A chip", "cores": 2, "features": ["avx2"],
    "caches": ["L1 32 KiB"], "tile": "6 x 16", "memory_gb": None, "system": "Linux",
    "versions": {"Python": "3.11"},
    "sources": "abc",
}  # fmt: skip
PROFILE = {
    "step_s": 2.0, "rest_s": 0.5, "ops": [
        {
            "op": "matmul_forward", "calls": 48, "seconds": 1.0, "operations": 10**11, "bytes": 1,
            "limit": "peak", "rate": 100.0, "limit_share": 0.5,
        },
        {
            "op": "adamw", "calls": 1, "seconds": 0.5, "operations": 0, "bytes": 10**10,
            "limit": "bandwidth", "rate": 20.0, "limit_share": 0.4,
        },
    ],
}  # fmt: skip
PACE = performance.Pace(
    rounds=dict.fromkeys(WORKLOADS, 2), limits_s=dict.fromkeys(WORKLOADS, 60), enough_s=1
)


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "performance.jsonl")


def add_run(records, workload, who, median_s, peer=None, dtype="float32", profile=None):
    records.add(
        "run", workload=workload, dtype=dtype, who=who, peer=peer or who, threads=2,
        median_s=median_s, peak_rss_gb=1.5, profile=profile,
    )  # fmt: skip


def add_failure(records, workload, who, cut=True, limit_s=60):
    records.add(
        "failure", workload=workload, dtype="float32", who=who, reason=f"{who}: not done", cut=cut,
        limit_s=limit_s,
    )  # fmt: skip


# the records


def test_records_are_kept_and_a_cut_line_is_passed_over(records):
    add_run(records, "baby", OURS, 1.0)
    with records.path.open("a") as file:
        file.write('{"kind": "run", "wor')
    again = Records(records.path)
    assert again.all == records.all
    assert again.runs("baby", "float32", OURS) == [PeerRun(OURS, 1.0, 1.5)]


def test_a_record_behind_a_cut_line_is_read(records):
    records.path.write_text('{"kind": "ru')
    again = Records(records.path)
    again.add("machine", cpu="x")
    assert Records(records.path).all == [{"kind": "machine", "cpu": "x"}]


def test_the_best_limits_and_the_median_of_runs_count(records):
    for peak, bandwidth in ((100, 40), (200, 20)):
        records.add(
            "limits", dtype="float32", threads=None, peak_gflops=peak, bandwidth_gbs=bandwidth
        )
    assert records.limits("float32") == Limits(200, 40)
    for taken, profile in ((3.0, None), (1.0, PROFILE), (2.0, None)):
        add_run(records, "baby", OURS, taken, profile=profile)
    for taken in (8.0, 4.0):
        add_run(records, "baby", "torch eager", taken, "torch 2 eager")
    add_run(records, "baby", "torch compile", 5.0, "torch 2 compile")
    result = records.result("baby", "float32", "torch")
    assert (result.median_s, result.profile) == (2.0, PROFILE)
    assert (result.peer, result.peer_median_s, result.ratio) == ("torch 2 compile", 5.0, 2.5)
    assert records.result("baby", "float32").ratio is None
    assert records.result("baby", "bfloat16") is None


# what is run


def test_the_plan_makes_a_whole_table_first():
    pace = performance.Pace({"baby": 2, "124m-t64": 1}, {}, 1)
    assert performance.plan(pace, ["124m-t64", "baby"], ["float32", "bfloat16"]) == [
        (0, "float32", "baby"), (0, "bfloat16", "baby"),
        (0, "float32", "124m-t64"), (0, "bfloat16", "124m-t64"),
        (1, "float32", "baby"), (1, "bfloat16", "baby"),
    ]  # fmt: skip


def is_to_run(records, peer, turn, name="char-384", pace=PACE):
    peers = [COMPILE, EAGER, JAX]
    return performance.is_to_run(records, pace, name, "float32", peer, peers, turn)


def test_what_has_run_does_not_run_again(records):
    assert is_to_run(records, EAGER, 0)
    add_run(records, "char-384", "torch eager", 1.0)
    assert not is_to_run(records, EAGER, 0)
    assert is_to_run(records, EAGER, 1)


def test_the_slower_mode_runs_once(records):
    for who, taken in (("torch compile", 1.0), ("torch eager", 1.2), ("jax compile", 9.0)):
        add_run(records, "char-384", who, taken)
    assert [is_to_run(records, peer, 1) for peer in (COMPILE, EAGER, JAX)] == [True, False, True]


def test_what_was_cut_runs_no_larger_workload(records):
    add_failure(records, "char-384", "torch eager")
    assert not is_to_run(records, EAGER, 0)
    assert not is_to_run(records, EAGER, 0, "124m-t1024")
    assert is_to_run(records, EAGER, 0, "baby")
    assert is_to_run(records, COMPILE, 0)
    longer = performance.Pace(PACE.rounds, {**PACE.limits_s, "char-384": 61}, 1)
    assert is_to_run(records, EAGER, 0, "124m-t1024", longer)


def test_what_failed_says_nothing_of_larger_workloads(records):
    add_failure(records, "char-384", "torch eager", cut=False)
    assert not is_to_run(records, EAGER, 0)
    assert is_to_run(records, EAGER, 0, "124m-t1024")


class FakeBench(Bench):
    """Runs that take no time; the peer eager takes too long on anything but baby."""

    log: list = []  # noqa: RUF012

    def limits(self):
        self.log.append(f"limits {self.device.threads}")
        return Limits(200.0, 50.0)

    def run(self, name, limits=None):
        who = ONE_THREAD if self.device.threads else OURS
        self.log.append(f"{name} {who}{' profiled' if limits else ''}")
        return {
            "backend": "cpu", "threads": 2, "seconds": [1.0, 2.0, 9.0], "peak_rss_gb": None,
            "traffic": None, "profile": PROFILE if limits else None,
        }  # fmt: skip

    def run_peer(self, name, peer):
        self.log.append(f"{name} {peer.mode}")
        if peer.mode == "eager":
            if name == "baby":
                raise BackendError("peer torch eager: process ended with status 1")
            raise PeerTimeoutError("peer torch eager: not done after 60 s, expected less")
        return PeerRun("torch 2 compile", 3.0, None)


def test_a_measurement_goes_on_where_it_was_cut(records, monkeypatch, capfd):
    monkeypatch.setattr(performance, "Bench", FakeBench)
    monkeypatch.setattr(FakeBench, "log", [])
    todo = PACE, ["baby", "124m-t64", "124m-t256"], ["float32"], [COMPILE, EAGER]
    performance.measure(records, *todo)
    first = [
        "limits None", "baby llmpy profiled", "baby compile", "baby eager",
        "124m-t64 llmpy profiled", "limits 1", "124m-t64 llmpy 1 thread", "124m-t64 compile",
        "124m-t64 eager", "124m-t256 llmpy profiled",
    ]  # fmt: skip
    second = [
        "baby llmpy", "baby compile", "124m-t64 llmpy", "124m-t64 llmpy 1 thread",
        "124m-t64 compile", "124m-t256 llmpy",
    ]  # fmt: skip
    assert FakeBench.log == first + second
    assert "torch eager: not done after 60 s" in capfd.readouterr().err
    reasons = [failure["reason"] for failure in records.find("failure")]
    assert reasons == [
        "torch eager: process ended with status 1",
        "torch eager: not done after 60 s",
    ]
    assert records.result("baby", "float32", "torch").median_s == 2.0

    FakeBench.log.clear()
    performance.measure(Records(records.path), *todo)
    assert FakeBench.log == []

    lines = records.path.read_text().splitlines(keepends=True)
    records.path.write_text("".join(lines[:-2]))  # as if it had been cut before the last two runs
    performance.measure(Records(records.path), *todo)
    assert FakeBench.log == ["124m-t64 compile", "124m-t256 llmpy"]


def test_records_of_another_machine_are_not_mixed(records, monkeypatch, tmp_path):
    records.add("machine", **MACHINE)
    monkeypatch.setattr(machine, "describe", lambda: {**MACHINE, "sources": "other"})
    monkeypatch.setattr(performance, "measure", lambda *_: pytest.fail("measured"))
    args = SimpleNamespace(torch_python=None, jax_python=None, quick=True)
    with pytest.raises(ValueError, match="machine") as error:
        performance.measure_all(records, args)
    assert str(error.value) == (
        f"{records.path}: runs are of another machine or other sources."
        " Begin anew with --fresh, or show them with --render."
    )


def test_this_machine():
    here = machine.describe()
    assert here["cores"] >= 1
    assert here == json.loads(json.dumps(here))
    assert set(here) == set(MACHINE)


# the page


@pytest.fixture
def filled(records):
    """Two workloads, by hand: 124m-t64 with all there is, and 124m-t1024 where a peer was cut."""
    records.add("machine", **MACHINE)
    for threads, peak in ((None, 200), (1, 100)):
        records.add("limits", dtype="float32", threads=threads, peak_gflops=peak, bandwidth_gbs=50)
    add_run(records, "124m-t64", OURS, 2.0, profile=PROFILE)
    add_run(records, "124m-t64", ONE_THREAD, 3.8)
    add_run(records, "124m-t64", "torch compile", 3.0, "torch 2.13.0 compile")
    add_run(records, "124m-t64", "torch eager", 4.0, "torch 2.13.0 eager")
    add_run(records, "124m-t64", "jax compile", 5.0, "jax 0.10.2")
    add_run(records, "124m-t1024", OURS, 20.0)
    add_failure(records, "124m-t1024", "torch compile")
    return records


def test_the_page(filled):
    page = render(filled)
    assert page.isascii()
    assert [line for line in page.splitlines() if line != line.rstrip()] == []
    floor = 190.1e9 / 200e9 + 28 * 124475904 / 50e9  # 0.95 + 0.07 s
    row = re.search(r"^\| 124m-t64 \| float32 \| \d+ \| 2 s .*$", page, re.M)[0]
    assert row == (
        f"| 124m-t64 | float32 | 1 | 2 s | 128 | 95 | {floor:.3g} s | {floor / 2:.0%} | 1.50"
        " | 3 s (compile) | 1.50 | 1.50 | 5 s | 2.50 | 1.50 |"
    )
    assert re.search(r"^\| 124m-t1024 .* \| cut \| - \| - \| - \| - \| - \|$", page, re.M)
    assert "- `124m-t1024` in float32: torch compile: not done." in page
    assert "| 124m-t64 | float32 | 3.8 s | 2 s | 1.90 |" in page  # one thread
    assert "| matmul_forward | GFLOP/s | 48 | 1000.0 | 50.0% | 100.0 | 50% |" in page
    assert "| Python between them |  |  | 500.0 | 25.0% |  |  |" in page
    assert "Python 3.11, torch 2.13.0, jax 0.10.2 |" in page
    assert "| 64 | float32 | 2 s | 128 |" in page  # how cost grows
    for section in ("A step", "Threads", "How cost grows", "What was cut", "How it was measured"):
        assert f"\n## {section}\n" in page


def test_page_and_picture_are_written_from_the_records_alone(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(
        performance.sys, "argv", ["performance", "--render", "--folder", str(tmp_path)]
    )
    monkeypatch.setattr(performance, "measure_all", lambda *_: pytest.fail("measured"))
    performance.main()
    svg = (tmp_path / "performance.svg").read_text(encoding="utf-8")
    told = [element.text for element in ElementTree.fromstring(svg).iter() if element.text]
    text = " ".join(told)
    for words in ("124m-t64", "llmpy float32", "torch 2.13.0 compile float32", "3 s", "floor"):
        assert words in text
    assert (tmp_path / "performance.md").read_text() == render(filled)
    again = tmp_path / "again"
    again.mkdir()
    write_page(filled, again)
    assert (again / "performance.svg").read_text(encoding="utf-8") == svg  # the same bytes


def test_nothing_measured_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(
        performance.sys, "argv", ["performance", "--render", "--folder", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as end:
        performance.main()
    assert end.value.code == (
        f"performance: {tmp_path}/performance.jsonl: nothing was measured yet."
        " Run it without --render."
    )


def test_parts_sum_up_to_the_step():
    parts = parts_of(PROFILE, 4.0)  # scaled by two
    assert parts.pop("matmul") == pytest.approx(2.0)
    assert parts.pop("AdamW, norm") == pytest.approx(1.0)
    assert parts.pop("Python") == pytest.approx(1.0)
    assert set(parts.values()) == {0.0}


def test_every_op_has_its_part():
    for op in PRODUCTS:
        parts = [name for name, (starts, _) in PARTS.items() if op.startswith(starts)]
        assert len(parts) == 1, op


def test_times_have_a_unit():
    assert [seconds(x) for x in (None, 12.345, 1.0, 0.0305)] == ["-", "12.3 s", "1 s", "30.5 ms"]
