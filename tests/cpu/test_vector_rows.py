"""The rows of softmax in attention: against their twins, exact numbers, and at the ends of exp."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu import vector_rows
from llmpy.cpu.attention_blocks import up
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.packing import STEP, words_twin
from llmpy.cpu.simd import MR, W
from llmpy.cpu.vector_rows import ROWS

AROUND = 5  # floats behind each row, which stay as they are


@njit
def run_softmax(S, stride, seen, end, factor, largest, sums):
    vector_rows.softmax_rows(S, stride, seen, end, factor, largest, sums, 0)


@njit
def run_rounded_softmax(S, stride, seen, end, factor, largest, sums):
    vector_rows.softmax_rows(S, stride, seen, end, factor, largest, sums, 1)


@njit
def run_gradient(S, dP, stride, first, begin, end, count, scale, lse, D, pairs):
    vector_rows.gradient_rows(S, dP, stride, first, begin, end, count, scale, lse, D, pairs, 0)


@njit
def run_rounded_gradient(S, dP, stride, first, begin, end, count, scale, lse, D, pairs):
    vector_rows.gradient_rows(S, dP, stride, first, begin, end, count, scale, lse, D, pairs, 1)


def rows_of(values):
    """Put rows of floats into aligned memory."""
    array = alloc(np.shape(values))
    array[:] = values
    return array


def softmax(run, scores, seen, end, factor):
    """Give the powers, the largest and the sums; check that nothing behind `end` is touched."""
    S, largest, sums = rows_of(scores), alloc((ROWS,)), alloc((ROWS,))
    run(data(S), S.shape[1], seen, end, np.float32(factor), data(largest), data(sums))
    assert np.array_equal(S[:, end:], scores[:, end:], equal_nan=True)
    return S[:, :end], largest, sums


def gradient(run, scores, dP, where, scale, lse, D, step=1):
    """Give P and dS of the columns to make, and `pairs`; check that nothing else is touched.

    step  numbers in a word that is made
    """
    _, begin, end, _ = where
    arrays = [rows_of(x) for x in (scores, dP, scores)]
    shifts, means = rows_of(lse), rows_of(D)
    S, dS, pairs = arrays
    arguments = *where, np.float32(scale), data(shifts), data(means), data(pairs)
    run(data(S), data(dS), S.shape[1], *arguments)
    made = np.s_[:, begin // step : end // step]
    made_pairs = np.s_[: MR // 2 if step == 2 else 0, begin:end]
    for got, before, inside in zip(
        arrays, (scores, dP, scores), (made, made, made_pairs), strict=True
    ):
        outside = np.ones(got.shape, bool)
        outside[inside] = False
        assert np.array_equal(got[outside], before[outside], equal_nan=True)
    return S[made], dS[made], pairs[made_pairs]


def causal(rng, seen, end):
    """Draw scores; what a row doesn't see is NaN, or infinity, or the largest of all."""
    scores = 3 * rng.standard_normal((ROWS, end + AROUND)).astype(np.float32)
    masked = np.arange(end + AROUND) >= seen + np.arange(ROWS)[:, None]
    scores[masked] = rng.choice([np.nan, np.inf, -np.inf, 1e30], masked.sum())
    return scores, ~masked[:, :end]


# some rows see a whole vector or several, some a part of one; the last may see all
CASES = [(1, W), (1, 2 * W), (W - 1, 2 * W), (W, 2 * W), (3 * W + 2, 5 * W), (4 * W, 4 * W)]


@pytest.mark.parametrize(("seen", "end"), CASES)
def test_softmax_rows(rng, seen, end):
    scores, visible = causal(rng, seen, end)
    got = softmax(run_softmax, scores, seen, end, 0.37)
    twin = softmax(vector_rows.softmax_rows_twin, scores, seen, end, 0.37)
    exact = np.where(visible, scores[:, :end], -np.inf).astype(float)
    most = exact.max(1)
    exact = np.exp2((exact - most[:, None]) * np.float32(0.37).astype(float))
    for powers, largest, sums in (got, twin):
        assert not powers[~visible].any()
        np.testing.assert_allclose(powers, exact, rtol=1e-6)
        np.testing.assert_array_equal(largest, most)
        np.testing.assert_allclose(sums, exact.sum(1), rtol=1e-6)
    np.testing.assert_allclose(got[0], twin[0], rtol=2e-7)


@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("run", "exactly"),
    [
        (run_rounded_softmax, run_softmax),
        (vector_rows.softmax_rows_bf16_twin, vector_rows.softmax_rows_twin),
    ],
)
@pytest.mark.parametrize(("seen", "end"), [(seen, up(end, STEP * W)) for seen, end in CASES])
def test_softmax_rows_as_words(rng, run, exactly, seen, end, value):
    """The words of what comes without rounding; the largest and the sums are of that."""
    scores, _ = causal(rng, seen, end)
    if value is not None:
        scores[2, 0] = value
    with np.errstate(invalid="ignore"):
        powers, *want = softmax(exactly, scores, seen, end, 0.37)
        words, *got = softmax(run, scores, seen, end, 0.37)
    rounded = words_twin(powers, True)
    np.testing.assert_array_equal(words[:, : end // STEP].view(np.uint32), rounded)
    for found, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(found, expected)


# the first column that sees the first row, the columns to make, and those that are there: all see
# all, or the first vectors a part, or the last ones aren't there, or no column sees the last rows
V = STEP * W
WHERE = [
    (-90, 0, 2 * V, 2 * V), (-MR, 0, V, V - 1), (0, 0, 2 * V, 2 * V), (V + 3, V, 4 * V, 4 * V),
    (2 * V - 1, V, 3 * V, 2 * V + 2), (1, 0, V, 3), (V - MR + 1, 0, 2 * V, 2 * V - 1),
    (V - MR + 1, 0, 2 * V, 2 * V), (V - MR + 2, 0, 2 * V, 2 * V),
]  # fmt: skip


def gradient_case(rng, where):
    """Draw scores, dP, lse and D; what no column sees is anything."""
    first, _, end, count = where
    columns, shape = np.arange(end + AROUND), (MR, end + AROUND)
    visible = (columns >= first + np.arange(MR)[:, None]) & (columns < count)
    anything = rng.choice([np.nan, np.inf, -np.inf, 1e30], shape)
    scores = np.where(visible, 3 * rng.standard_normal(shape), anything).astype(np.float32)
    dP = np.where(visible, rng.standard_normal(shape), anything).astype(np.float32)
    lse = np.where(columns < count, 30 + rng.random(end + AROUND), np.nan).astype(np.float32)
    D = np.where(columns < count, rng.standard_normal(end + AROUND), np.nan).astype(np.float32)
    return scores, dP, lse, D, visible


@pytest.mark.parametrize("where", WHERE)
def test_gradient_rows(rng, where):
    _, begin, end, _ = where
    *case, visible = gradient_case(rng, where)
    scores, dP, lse, D = case
    visible = visible[:, begin:end]
    got = gradient(run_gradient, scores, dP, where, 0.37, lse, D)
    twin = gradient(vector_rows.gradient_rows_twin, scores, dP, where, 0.37, lse, D)
    scores, dP, lse, D = (
        np.where(visible, x[..., begin:end], 0).astype(float) for x in (scores, dP, lse, D)
    )
    P = np.where(visible, np.exp(scores * np.float32(0.37).astype(float) - lse), 0)
    for p, ds, _ in (got, twin):
        np.testing.assert_allclose(p, P, rtol=5e-6)  # of an argument near 30, rounded
        np.testing.assert_allclose(ds, P * (dP - D), rtol=5e-6, atol=1e-20)
    np.testing.assert_allclose(got[0], twin[0], rtol=2e-7)


@pytest.mark.parametrize("value", [None, np.nan, np.inf])
@pytest.mark.parametrize(
    ("run", "exactly"),
    [
        (run_rounded_gradient, run_gradient),
        (vector_rows.gradient_rows_bf16_twin, vector_rows.gradient_rows_twin),
    ],
)
@pytest.mark.parametrize("where", WHERE)
def test_gradient_rows_as_words(rng, run, exactly, where, value):
    """The words of what comes without rounding: along the rows, and of dS of two rows each."""
    scores, dP, lse, D, _ = gradient_case(rng, where)
    count = where[-1]
    if value is not None:
        scores[1, count - 1] = value
    with np.errstate(invalid="ignore", over="ignore"):
        *want, _ = gradient(exactly, scores, dP, where, 0.37, lse, D)
        *got, pairs = gradient(run, scores, dP, where, 0.37, lse, D, STEP)
    for found, floats in zip(got, want, strict=True):
        np.testing.assert_array_equal(found.view(np.uint32), words_twin(floats, True))
    if STEP == 2:
        two = np.swapaxes(want[1].reshape(MR // 2, 2, -1), 1, 2)
        np.testing.assert_array_equal(pairs.view(np.uint32), words_twin(two, True)[..., 0])


def powers_of_two(run, y):
    """Give 2^y by way of softmax_rows: the row's largest is 0, seen beside the others."""
    scores = np.zeros((ROWS, W + len(y)), np.float32)
    scores[:, W:] = y
    return softmax(run, scores, W + len(y), W + len(y), 1)[0][0, W:]


@pytest.mark.parametrize("run", [run_softmax, vector_rows.softmax_rows_twin])
def test_powers_are_within_one_ulp(run, rng):
    y = np.concatenate([-126 * rng.random(64 * W), -rng.random(64 * W)]).astype(np.float32)
    exact = np.exp2(y.astype(float))
    ulp = np.spacing(exact.astype(np.float32))
    assert (np.abs(powers_of_two(run, y) - exact) / ulp).max() < 1


@pytest.mark.parametrize("run", [run_softmax, vector_rows.softmax_rows_twin])
def test_ends_of_the_powers(run):
    y = np.full(W, -np.inf, np.float32)
    y[:4] = -127, -150, -3e38, -126
    assert powers_of_two(run, y).tolist() == [0, 0, 0, 2.0**-126] + [0] * (W - 4)


@pytest.mark.parametrize("run", [run_softmax, vector_rows.softmax_rows_twin])
def test_not_finite_scores(run):
    """As exp(x - max): with infinity the largest, infinity - infinity; NaN is NaN."""
    scores = np.zeros((ROWS, 2 * W + AROUND), np.float32)
    scores[0, 3] = np.inf
    scores[1, 3] = np.nan
    with np.errstate(invalid="ignore"):
        powers, _, sums = softmax(run, scores, W + 1, 2 * W, 1)
    assert np.isnan(powers[0, 3])
    assert not powers[0, :3].any()
    assert np.isnan(powers[1, 3])
    assert np.isnan(sums[:2]).all()
    scores[0] = -np.inf
    with np.errstate(invalid="ignore"):
        powers, _, sums = softmax(run, scores, W + 1, 2 * W, 1)
    assert np.isnan(powers[0, : W + 1]).all()
    assert not powers[0, W + 1 :].any()


@pytest.mark.parametrize("run", [run_gradient, vector_rows.gradient_rows_twin])
def test_ends_of_the_gradient(run):
    scores = np.zeros((MR, W), np.float32)
    scores[:, 1:4] = 1e4, -1e4, np.nan
    dP = np.ones_like(scores)
    with np.errstate(over="ignore"):
        made = gradient(run, scores, dP, (-MR, 0, W, W), 1, np.zeros(W), np.zeros(W))
    want = [1, np.inf, 0, np.nan, *[1] * (W - 4)]
    for row in (*made[0], *made[1]):
        np.testing.assert_array_equal(row, want)
