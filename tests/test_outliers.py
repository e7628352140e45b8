"""z-scores against NumPy."""

import math

import numpy as np
import pytest

from llmpy.outliers import OutlierDetector


def test_z_scores_of_a_sliding_window(rng):
    values = rng.standard_normal(300) * 3 + 50
    detector = OutlierDetector()
    for i, value in enumerate(values):
        z = detector.update(float(value))
        if i < 128:  # llm.c prints nan for the first 128 updates
            assert z is None
        else:
            window = values[i - 127 : i + 1]
            assert z == pytest.approx((value - window.mean()) / window.std(), rel=1e-9)


def test_equal_values_have_z_zero():
    detector = OutlierDetector(window=3)
    assert [detector.update(0.1) for _ in range(5)] == [None, None, None, 0.0, 0.0]


def test_a_value_that_is_not_finite_is_forgotten_with_its_place():
    detector = OutlierDetector(window=2)
    detector.update(0.0)
    detector.update(math.inf)
    with np.errstate(all="ignore"):
        assert not math.isfinite(detector.update(1.0) or math.nan)
    assert detector.update(3.0) == 1.0
