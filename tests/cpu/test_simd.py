"""Each LLVM intrinsic against its Python twin, which runs where the JIT is off."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu import simd
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.simd import W


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
    ("name", "kind"), [("floats", np.float32), ("doubles", np.float64), ("ints", np.int32)]
)
def test_a_view_reads_and_writes_what_is_there(name, kind):
    view = getattr(simd, name)

    @njit
    def add_last(address):
        numbers = view(address, 3)
        numbers[0] += numbers[-1]
        return numbers.size

    numbers = np.array([1, 2, 3, 4], kind)
    assert add_last(data(numbers)) == 3
    getattr(simd, f"{name}_twin")(data(numbers), 3)[1] += 5
    assert numbers.tolist() == [4, 7, 3, 4]


@njit
def run_prefetch(address):
    simd.prefetch(address)


def test_prefetch_takes_any_address(rng):
    run_prefetch(data(normal(rng, 1)))
    run_prefetch(0)
    simd.prefetch_twin(0)


@pytest.mark.parametrize(
    ("features", "tile"),
    [
        ({"avx2": True, "avx512f": True, "avx512bf16": True}, (16, 12, 2, True)),
        ({"avx2": True, "avx512f": True}, (16, 12, 2, False)),
        ({"avx2": True, "avx512f": False}, (8, 6, 2, False)),
        ({"neon": True}, (4, 8, 3, False)),
        ({}, (8, 6, 2, False)),
    ],
)
def test_choose_tile(features, tile):
    assert simd.choose_tile(features) == tile
