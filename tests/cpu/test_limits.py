"""The limits of the machine: that the work is done, and the arithmetic; times are not asserted."""

import numpy as np
import pytest

from llmpy.cpu import limits
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.simd import MR, NR
from llmpy.cpu.tasks import run


def test_each_task_multiplies_its_own_panels(rng):
    tasks, k = 2, 5
    stride = k * (MR + NR) + MR * NR
    operands = alloc((tasks * stride,))
    operands[:] = rng.standard_normal(operands.size)
    run(limits.tile_task, tasks, 3, data(operands), stride, k, 0)
    for part in operands.reshape(tasks, stride):
        b, a = part[: k * NR].reshape(k, NR), part[k * NR : k * (NR + MR)].reshape(k, MR)
        want = a.T.astype(np.float64) @ b
        assert np.allclose(part[k * (NR + MR) :].reshape(MR, NR), want, rtol=1e-5, atol=1e-5)


def test_the_update_reads_and_writes_what_adamw_does(rng):
    p, g, m, v = (rng.standard_normal(limits.CHUNK + 3).astype(np.float32) for _ in range(4))
    want_m, want_v = (m + g) / 2, (v + g) / 2
    want_p, want_g = (p + want_m) / 2, g.copy()
    run(limits.update_task, 2, *map(data, (p, g, m, v)), len(p))
    for got, want in ((p, want_p), (g, want_g), (m, want_m), (v, want_v)):
        assert np.allclose(got, want, rtol=1e-6, atol=1e-7)


@pytest.fixture
def seconds(monkeypatch):
    """Let every call take this time, after it was made."""

    def pretend(taken):
        def seconds_of(*work):
            run(*work)
            return next(taken)

        monkeypatch.setattr(limits, "seconds_of", seconds_of)

    return pretend


def test_peak_is_operations_over_the_best_time(seconds, monkeypatch):
    monkeypatch.setattr(limits.numba, "get_num_threads", lambda: 3)
    k = 16  # the least there is, for a cache of 1 byte
    # the first compiles; two lengths are too short, one is long enough, then the trials
    short = limits.TRIAL_S / 2
    few = [1.0] * (limits.FIRST - 1)
    times = [9.0, *few[1:], short, short, *few, 1.0, *few, *[2.0] * (limits.TRIALS - 2), 0.5, 2.0]
    times = iter(times)
    seconds(times)
    assert limits.peak_gflops(l1_bytes=1) == pytest.approx(2 * MR * NR * k * 3 * 4 / 0.5 / 1e9)
    assert next(times, None) is None


def test_bandwidth_is_28_bytes_an_element_over_the_best_time(seconds):
    seconds(iter([2.0] * (limits.PASSES - 1) + [0.5]))
    assert limits.bandwidth_gbs(1000) == pytest.approx(28 * 1000 / 0.5 / 1e9)
