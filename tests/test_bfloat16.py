"""Rounding to bfloat16: by hand, by distance, from every dtype."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmpy.bfloat16 import from_bfloat16, operands, rounded_to_bfloat16, to_bfloat16

# all that are not negative, in order; the last is infinity, which stands for 2**128
ALL = from_bfloat16(np.arange(0x7F81, dtype=np.uint16)).astype(np.float64)
STEP = 2.0**-7  # between 1 and 2


def float32(bits):
    return np.array([bits], np.uint32).view(np.float32)


def nearest(value):
    """Give the nearest bfloat16 of a number that isn't negative, by exact distances."""
    above = int(np.searchsorted(ALL, value))
    if above == len(ALL) or ALL[above] == value:
        return ALL[min(above, len(ALL) - 1)]
    end = Fraction(2**128) if above == len(ALL) - 1 else Fraction(ALL[above])
    down, up = Fraction(value) - Fraction(ALL[above - 1]), end - Fraction(value)
    even = above if above % 2 == 0 else above - 1  # the number of the last bit 0
    return ALL[even if down == up else above - 1 if down < up else above]


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F800000, 0x3F80),  # 1
        (0x3F807FFF, 0x3F80),  # under half a step
        (0x3F808000, 0x3F80),  # half a step: to even, down
        (0x3F808001, 0x3F81),
        (0x3F818000, 0x3F82),  # half a step: to even, up
        (0xBF818000, 0xBF82),
        (0x00000000, 0x0000),
        (0x80000000, 0x8000),  # minus zero
        (0x00008000, 0x0000),  # subnormal, half a step
        (0x00018000, 0x0002),
        (0x7F7FFFFF, 0x7F80),  # the largest float32 is nearer to infinity
        (0x7F7F7FFF, 0x7F7F),
        (0x7F800000, 0x7F80),  # infinity
        (0xFF800000, 0xFF80),
    ],
)
def test_by_hand(bits, rounded):
    assert to_bfloat16(float32(bits)).tolist() == [rounded]
    for dtype in (np.float32, np.float64, np.longdouble):
        got = rounded_to_bfloat16(float32(bits).astype(dtype))
        assert got.dtype == dtype
        assert np.array_equal(to_bfloat16(got), [rounded])


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF])
def test_nan_stays_nan_with_its_sign(bits):
    half = to_bfloat16(float32(bits))
    assert np.isnan(from_bfloat16(half)).all()
    assert half[0] >> 15 == bits >> 31
    with np.errstate(invalid="ignore"):  # a signalling NaN says so when it becomes a float64
        wide = float32(bits).astype(np.float64)
    assert np.isnan(rounded_to_bfloat16(wide)).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 0x7F800000))
@example(0x7F7F8000)  # the middle between the largest and 2**128
@example(0x00000001)
def test_nearest_by_distance(bits):
    value = float32(bits)
    assert rounded_to_bfloat16(value).tolist() == [nearest(float(value[0]))]
    assert rounded_to_bfloat16(-value).tolist() == [-nearest(float(value[0]))]


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 2.0**129) | st.floats(0, 2.0**-124) | st.floats(1, 2) | st.floats(0, np.inf))
@example(1 + STEP / 2 + 2.0**-40)  # float32 would round it to a tie, and that down
@example(1 + 3 * STEP / 2 - 2.0**-40)  # and this to a tie, and that up
@example(2.0**128 - 2.0**119)  # the middle between the largest and 2**128
@example(2.0**128 - 2.0**119 - 2.0**80)
@example(2.0**-134)  # half of the smallest: to even
@example(2.0**-134 + 2.0**-170)
@example(2.0**-1074)
@example(1e300)
def test_float64_is_rounded_once(value):
    got = rounded_to_bfloat16(np.array([value, -value]))
    assert got.dtype == np.float64
    assert got.tolist() == [nearest(value), -nearest(value)]


def test_float16():
    values = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-10, 2.0**-24, 65504, np.inf], np.float16)
    got = rounded_to_bfloat16(values)
    assert got.dtype == np.float16
    assert got.tolist() == [1, 1 + STEP, 2.0**-24, np.inf, np.inf]  # no 65536 in float16


def test_every_bfloat16_survives_a_round_trip():
    halves = np.arange(65536, dtype=np.uint16)
    back = to_bfloat16(from_bfloat16(halves))
    is_nan = np.isnan(from_bfloat16(halves))
    assert (back[~is_nan] == halves[~is_nan]).all()
    assert ((back == halves) | (back == halves | 0x40))[is_nan].all()


def test_operands(rng):
    a, b = rng.standard_normal((3, 2)), rng.standard_normal(4).astype(np.float32)
    assert [x is y for x, y in zip(operands(False, a, b), (a, b), strict=True)] == [True, True]
    for got, x in zip(operands(True, a, b), (a, b), strict=True):
        assert got.dtype == x.dtype
        assert got.shape == x.shape
        assert (got != x).any()
        np.testing.assert_allclose(got, x, rtol=STEP / 2)


def test_of_parts_of_an_array(rng):
    """Every layout in memory, as ops hand it over."""
    block = rng.standard_normal((4, 6, 8))
    for part in (block[:, ::2, 1:5], block.transpose(2, 0, 1), block[:0]):
        assert np.array_equal(rounded_to_bfloat16(part), rounded_to_bfloat16(part.copy()))
