"""What is timed, and the arithmetic of the floor, against numbers worked by hand."""

import pytest

from llmpy import config
from llmpy.bench.workloads import WORKLOADS, Limits, Workload
from llmpy.sizes import GPT2Config


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
        "124m-t256": (12, 768, 4, 256),
        "124m-t1024": (12, 768, 4, 1024),
        "char-384": (6, 384, 16, 256),
        "baby": (4, 128, 12, 64),
    }  # fmt: skip
    assert tuple(WORKLOADS) == config.WORKLOADS  # the names that --workload takes


def test_the_floor_worked_by_hand():
    """L 1, C 8, Vp 128, maxT 4, B 2, T 4: each number below is from the formula, by hand."""
    sizes = GPT2Config(max_seq_len=4, vocab_size=100, num_layers=1, num_heads=2, channels=8)
    workload = Workload(sizes, B=2, T=4, warm_up=0, steps=1)
    forward = 2 * 8 * (12 * 64 + 128 * 8) + 2 * 2 * 16 * 8  # 28,672 and 512
    assert workload.operations == 3 * 29184 == 3 * forward
    parameters = 128 * 8 + 4 * 8 + 12 * 64 + 13 * 8 + 2 * 8  # 1,944: biases and scales are 15 C
    assert parameters == 1944
    assert workload.optimizer_bytes == 28 * 1944
    # 87,552 operations at 1e9 a second; 54,432 bytes at 2e9
    assert workload.floor_s(Limits(1.0, 2.0)) == pytest.approx(87552e-9 + 27216e-9, rel=1e-12)


def test_the_floor_of_124m_on_a_machine_that_was_measured():
    """534 GFLOP/s and 70 GB/s: 0.36 s of arithmetic and 0.05 s of AdamW."""
    assert WORKLOADS["124m-t64"].floor_s(Limits(534, 70)) == pytest.approx(0.36 + 0.05, abs=0.01)
