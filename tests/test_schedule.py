"""Learning rates against llm.c's formulas in float64, worked values, and every edge."""

import math

import pytest

from llmpy.config import SCHEDULES
from llmpy.errors import ConfigError
from llmpy.schedule import learning_rate


def rate(step, schedule="cosine", lr=1.0, warmup=0, steps=10, final_lr_frac=0.0):
    return learning_rate(
        step,
        lr=lr,
        schedule=schedule,
        warmup=warmup,
        steps=steps,
        final_lr_frac=final_lr_frac,
    )


@pytest.mark.parametrize(
    ("schedule", "step", "want"),
    [
        ("cosine", 0, 1.0),
        ("cosine", 5, 0.55),  # half-way between 1 and 0.1
        ("linear", 5, 0.55),
        ("linear", 9, 0.19),
        ("constant", 9, 1.0),
        ("wsd", 7, 1.0),
        ("wsd", 8, 1.0),  # int(0.8 * 10): the fall begins, r = 0
        ("wsd", 9, 0.1 + (1 - math.sqrt(0.5)) * 0.9),
    ],
)
def test_worked_values(schedule, step, want):
    assert rate(step, schedule, final_lr_frac=0.1) == pytest.approx(want, rel=1e-6)


def test_formulas_in_float64(rng):
    steps, warmup = int(rng.integers(50, 400)), int(rng.integers(1, 30))
    lr, frac = float(rng.uniform(1e-5, 1e-2)), float(rng.uniform(0, 1))
    low = lr * frac
    for step in range(warmup, steps):
        r = (step - warmup) / (steps - warmup)
        want = {
            "cosine": low + 0.5 * (1 + math.cos(math.pi * r)) * (lr - low),
            "linear": lr - r * (lr - low),
        }
        for schedule, value in want.items():
            got = rate(step, schedule, lr, warmup, steps, frac)
            assert got == pytest.approx(value, rel=1e-5, abs=lr * 1e-6)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_warm_up_begins_above_zero_and_reaches_the_peak(schedule):
    assert [rate(s, schedule, warmup=4, steps=100) for s in range(5)] == [0.25, 0.5, 0.75, 1, 1]


def test_constant_has_no_warm_up():
    assert rate(0, "constant", warmup=10) == 1.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 2, 10])
@pytest.mark.parametrize("warmup", [0, 1, 10, 11])
def test_every_edge_is_finite_and_in_range(schedule, steps, warmup):
    for step in range(steps + 3):  # also past the end
        got = rate(step, schedule, 1e-3, warmup, steps, 0.1)
        assert 0 < got <= 1.0000001e-3


def test_unknown_schedule():
    with pytest.raises(ConfigError) as error:
        rate(0, "cosinus")
    assert str(error.value) == "schedule is cosinus, expected one of cosine, linear, constant, wsd"
