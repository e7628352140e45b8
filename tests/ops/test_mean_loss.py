"""The mean loss of a step, by hand."""

import numpy as np

from llmpy.ops import mean_loss


def test_by_hand():
    outcome = np.array([np.nan, 5.0])
    mean_loss(outcome, np.array([[1.0, 2], [3, 6]]), scale=0.125, accumulate=False)
    assert outcome.tolist() == [1.5, 5]
    mean_loss(outcome, np.array([[4.0], [0]]), scale=0.25, accumulate=True)
    assert outcome.tolist() == [2.5, 5]


def test_nan_stays_visible():
    outcome = np.zeros(2)
    mean_loss(outcome, np.array([[1.0, np.nan]]), scale=1.0, accumulate=True)
    assert np.isnan(outcome[0])
    assert outcome[1] == 0
