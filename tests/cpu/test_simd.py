"""Each LLVM intrinsic against its Python twin, which runs where the JIT is off."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu import simd
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.simd import ADD, BIAS, MR, NR, WRITE, W, tile, tile_twin


@njit
def run_tile(c, ldc, a, a_row, a_k, b, k, mode, bias):
    tile(c, ldc, a, a_row, a_k, b, k, mode, bias)


@njit
def run_transpose_mr(dst, src, ld):
    simd.transpose_mr(dst, src, ld)


@njit
def run_transpose_nr(dst, src, ld):
    simd.transpose_nr(dst, src, ld)


@njit
def run_copy_mr(dst, src):
    simd.copy_mr(dst, src)


@njit
def run_copy_nr(dst, src):
    simd.copy_nr(dst, src)


@njit
def run_row_max(src, count):
    return simd.row_max_lanes(src, count)


@njit
def run_bits_of_float(x):
    return simd.bits_of_float(x)


@njit
def run_float_of_bits(bits):
    return simd.float_of_bits(bits)


@njit
def run_address(array):
    return simd.address(array)


def normal(rng, *shape):
    array = alloc(shape)
    array[:] = rng.standard_normal(shape, np.float32)
    return array


@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
@pytest.mark.parametrize("k", [1, 2, 7, 64])
def test_tile_equals_its_twin(rng, mode, k):
    a, b, bias, start = normal(rng, k, MR), normal(rng, k, NR), normal(rng, NR), normal(rng, 50, 70)
    got, want = start.copy(), start.copy()
    run_tile(data(got), 70, data(a), 1, MR, data(b), k, mode, data(bias))
    tile_twin(data(want), 70, data(a), 1, MR, data(b), k, mode, data(bias))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * k)
    exact = a.astype(float).T @ b
    exact += start[:MR, :NR] if mode == ADD else bias if mode == BIAS else 0
    np.testing.assert_allclose(got[:MR, :NR], exact, rtol=0, atol=1e-6 * k)
    assert (got[MR:] == start[MR:]).all()
    assert (got[:, NR:] == start[:, NR:]).all()


def test_tile_takes_rows_as_they_lie(rng):
    a, b = normal(rng, MR, 40), normal(rng, 9, NR)
    got, want = np.empty((2, MR, NR), np.float32)
    run_tile(data(got), NR, data(a), 40, 1, data(b), 9, WRITE, 0)
    tile_twin(data(want), NR, data(a), 40, 1, data(b), 9, WRITE, 0)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got, a[:, :9].astype(float) @ b, rtol=0, atol=1e-5)


def test_tile_starts_from_nothing_but_its_operands(rng):
    a, b, got = normal(rng, 3, MR), normal(rng, 3, NR), np.full((MR, NR), np.nan, np.float32)
    run_tile(data(got), NR, data(a), 1, MR, data(b), 3, WRITE, 0)
    np.testing.assert_allclose(got, a.astype(float).T @ b, atol=1e-5)


@pytest.mark.parametrize(
    ("run", "twin", "R"),
    [
        (run_transpose_mr, simd.transpose_mr_twin, MR),
        (run_transpose_nr, simd.transpose_nr_twin, NR),
    ],
)
def test_transposes_equal_their_twins(rng, run, twin, R):
    src = normal(rng, R, W + 5)
    got, want = alloc((W * R + W,)), alloc((W * R + W,))  # W spare: the last vector reaches over
    run(data(got), data(src), W + 5)
    twin(data(want), data(src), W + 5)
    np.testing.assert_array_equal(got[: W * R], want[: W * R])
    np.testing.assert_array_equal(got[: W * R].reshape(W, R), src[:, :W].T)


@pytest.mark.parametrize(
    ("run", "twin", "R"),
    [(run_copy_mr, simd.copy_mr_twin, MR), (run_copy_nr, simd.copy_nr_twin, NR)],
)
def test_copies_equal_their_twins(rng, run, twin, R):
    src, got, want = normal(rng, R), alloc((R,)), alloc((R,))
    run(data(got), data(src))
    twin(data(want), data(src))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, src)


@pytest.mark.parametrize("count", [W, W + 1, 2 * W - 1, 2 * W, 5 * W + 3])
def test_row_max_equals_its_twin(rng, count):
    row = normal(rng, count)
    for place in range(count):  # the largest may be anywhere
        row[place] += 10
        assert run_row_max(data(row), count) == simd.row_max_twin(data(row), count) == row.max()
        row[place] -= 10


def test_row_max_of_infinities():
    row = np.full(W + 2, -np.inf, np.float32)
    assert run_row_max(data(row), W + 2) == -np.inf
    row[W + 1] = np.inf
    assert run_row_max(data(row), W + 2) == np.inf


@pytest.mark.parametrize("x", [0.0, -0.0, 1.5, np.inf, 1e-45])
def test_float_of_bits(x):
    bits = np.float32(x).view(np.int32)
    assert run_float_of_bits(bits).hex() == float(np.float32(x)).hex()
    assert simd.float_of_bits_twin(bits) == np.float32(x)
    assert run_bits_of_float(np.float32(x)) == simd.bits_of_float_twin(x) == bits


def test_address(rng):
    array = normal(rng, 4, 5)
    assert run_address(array) == simd.address_twin(array) == data(array)


@pytest.mark.parametrize(
    ("features", "tile"),
    [
        ({"avx2": True, "avx512f": True}, (16, 8, 3)),
        ({"avx2": True, "avx512f": False}, (8, 6, 2)),
        ({"neon": True}, (4, 8, 3)),
        ({}, (8, 6, 2)),
    ],
)
def test_choose_tile(features, tile):
    assert simd.choose_tile(features) == tile
