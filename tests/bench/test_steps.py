"""A tiny workload in this process: which steps are timed, and what is told of them."""

import pytest

from llmpy import ops
from llmpy.bench import steps
from llmpy.bench.steps import Trainer, peak_rss_gb, run_workload, time_steps

from .sizes import LIMITS, TINY


def test_steps_are_timed_without_the_warm_up():
    told = []
    seconds = time_steps(Trainer(TINY, ops), working=told.append)
    assert told == ["step 1/6", "step 2/6", "step 3/6", "step 4/6", "step 5/6", "step 6/6"]
    assert len(seconds) == 5
    assert min(seconds) > 0


@pytest.mark.parametrize(("enough_s", "timed"), [(0.0, 1), (3.0, 1), (3.5, 2), (99.0, 5)])
def test_a_run_ends_early_once_its_steps_have_taken_long_enough(monkeypatch, enough_s, timed):
    trainer = Trainer(TINY, ops)
    monkeypatch.setattr(trainer, "step", lambda: 3.0)
    assert time_steps(trainer, enough_s) == [3.0] * timed


def test_a_timing():
    timing = run_workload("tiny", TINY, ops)
    assert (timing["backend"], timing["threads"], timing["profile"]) == ("numpy", None, None)
    assert len(timing["seconds"]) == 5
    assert timing["peak_rss_gb"] is None or 0.01 < timing["peak_rss_gb"] < 100


def test_a_timing_with_a_profile():
    profile = run_workload("tiny", TINY, ops, limits=LIMITS)["profile"]
    assert profile["ops"][0]["calls"] >= 1


def test_a_trainer_learns_its_batches_apart():
    """Weights change in a step, so that no step is timed on zeros."""
    trainer = Trainer(TINY, ops)
    before = trainer.model.params.memory.copy()
    trainer.step()
    assert abs(before).min() > 0
    assert (trainer.model.params.memory != before).mean() > 0.5


def test_peak_memory_is_this_programs_own(monkeypatch, tmp_path):
    status = tmp_path / "status"
    status.write_text("VmPeak:\t 9999 kB\nVmHWM:\t   2000 kB\nVmRSS:\t 1000 kB\n")
    monkeypatch.setattr(steps, "Path", lambda path: status)
    assert peak_rss_gb() == 2000 * 1024 / 1e9
    status.unlink()
    assert peak_rss_gb() is None or peak_rss_gb() > 0.01  # of getrusage


@pytest.mark.parametrize(("dtype", "recompute"), [("float32", 0), ("bfloat16", 1), ("float32", 2)])
def test_a_trainer_has_the_model_that_was_asked_for(monkeypatch, dtype, recompute):
    made = []
    real = steps.GPT2

    def model(*args, **how):
        made.append((*args, how))
        return real(*args, **how)

    monkeypatch.setattr(steps, "GPT2", model)
    trainer = Trainer(TINY, ops, dtype, recompute)
    assert made == [(TINY.config, ops, dtype, {"recompute": recompute})]
    assert trainer.step() > 0
