"""Packing, in vectors and at the edges, against plain indexing and hand-worked rounding."""

import numpy as np
import pytest
from numba import njit

from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.cpu import packing
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.packing import STEP, pack_panel, words
from llmpy.cpu.simd import MR, NR, PAIRS, W

from .entry import entry

NAMES = [
    f"{kind}{dtype}"
    for kind in ("transpose_mr", "transpose_nr", "copy_mr", "copy_nr")
    for dtype in ("", "_bf16")
]


def runner(name):
    """Compile a function that calls an intrinsic of three integers."""
    intrinsic = getattr(packing, name)

    @njit
    def run(dst, src, ld):
        intrinsic(dst, src, ld)

    return run


def normal(rng, *shape):
    array = alloc(shape)
    array[:] = rng.standard_normal(shape, np.float32)
    return array


@pytest.mark.parametrize("name", NAMES)
def test_intrinsics_equal_their_twins(rng, name):
    src = normal(rng, max(NR, 2), 2 * W + NR + 5)
    got, want = alloc((W * NR + W,)), alloc((W * NR + W,))  # W spare: the last vector reaches over
    runner(name)(data(got), data(src), src.shape[1])
    getattr(packing, f"{name}_twin")(data(want), data(src), src.shape[1])
    R = MR if "mr" in name else NR
    size = W * R if "transpose" in name else R
    np.testing.assert_array_equal(got[:size], want[:size])
    if not name.endswith("bf16"):
        exact = src[:R, :W].T.ravel() if "transpose" in name else src[0, :R]
        np.testing.assert_array_equal(got[:size], exact)


def numbers_of(panel, bf16):
    """Give a packed panel (words, R) as the numbers (k, R) that it holds."""
    if not (bf16 and PAIRS):
        return panel
    bits = panel.view(np.uint32)
    low, high = bits << np.uint32(16), bits & np.uint32(0xFFFF0000)
    return np.stack([low, high], 1).reshape(-1, panel.shape[1]).view(np.float32)


@pytest.mark.parametrize("bf16", [0, 1])
@pytest.mark.parametrize("unit_k", [0, 1])
@pytest.mark.parametrize("R", [MR, NR])
def test_panels_hold_the_numbers_and_zeros(rng, R, unit_k, bf16):
    pack = entry(pack_panel)
    for k in (1, 2, W - 1, W, 2 * W, 2 * W + 1, 5 * W + 3):
        for there in (1, R - 1, R):
            stored = normal(rng, there, k) if unit_k else normal(rng, k, there)
            count = words(k, bf16)
            dst = alloc((count * R + W,))
            dst[:] = np.nan
            pack(data(dst), R, data(stored), stored.shape[1], unit_k, there, k, bf16)
            want = np.zeros((count * (STEP if bf16 else 1), R), np.float32)
            want[:k, :there] = stored.T if unit_k else stored
            want = rounded_to_bfloat16(want) if bf16 else want
            got = numbers_of(dst[: count * R].reshape(count, R), bf16)
            np.testing.assert_array_equal(got, want, err_msg=f"{k, there}")


@pytest.mark.parametrize(
    ("bits", "want"),
    [
        (0x3F800000, 0x3F800000),  # 1
        (0x3F808000, 0x3F800000),  # a tie: to even, down
        (0x3F818000, 0x3F820000),  # a tie: to even, up
        (0x3F808001, 0x3F810000),  # just above a tie
        (0xBF818000, 0xBF820000),
        (0x7F7FFFFF, 0x7F800000),  # the largest float rounds to infinity
        (0x7F800000, 0x7F800000),  # infinity
        (0xFF800000, 0xFF800000),
        (0x7FC00000, 0x7FC00000),  # NaN
        (0x7F800001, 0x7FC00000),  # NaN whose upper half is that of infinity
        (0xFFFFFFFF, 0xFFFF0000),
        (0x00000001, 0x00000000),  # subnormal
        (0x00018000, 0x00020000),
        (0x80000000, 0x80000000),  # -0
    ],
)
def test_rounding_by_hand(bits, want):
    bits = np.uint32(bits)

    @njit
    def run(x):
        return packing.round_one(x)

    assert int(run(bits.view(np.int32))) & 0xFFFFFFFF == want
    assert int(packing.round_bits_twin(bits)) == want
    if PAIRS and int(bits) & 0x7F800000 == 0:
        want = int(bits) & 0x80000000  # words take subnormal numbers for zero
    src = alloc((NR, NR))
    src.view(np.uint32)[:] = bits
    dst = alloc((W * NR + W,))
    runner("transpose_nr_bf16")(data(dst), data(src), NR)
    got = numbers_of(dst[: W * NR].reshape(W, NR), 1).view(np.uint32)
    assert (got == want).all()
    packing._define_transpose(NR, "", True)[0](data(dst), data(src), NR)
    assert (numbers_of(dst[: W * NR].reshape(W, NR), 1).view(np.uint32) == want).all()
    entry(pack_panel)(data(dst), NR, data(src), NR, 1, NR - 1, STEP, 1)  # at an edge, one by one
    got = numbers_of(dst[:NR].reshape(1, NR), 1).view(np.uint32)
    assert (got[:, : NR - 1] == want).all()
