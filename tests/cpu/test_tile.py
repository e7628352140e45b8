"""The register tile, whole and at every edge, against its Python twin and exact arithmetic."""

import numpy as np
import pytest

from llmpy.cpu.memory import alloc, data
from llmpy.cpu.simd import MR, NR, W
from llmpy.cpu.tile import (
    ADD,
    BIAS,
    WRITE,
    edge_tile,
    edge_tile_twin,
    narrow_tile,
    narrow_tile_twin,
    pair_edge_tile_twin,
    pair_tile_twin,
    tile,
    tile_twin,
)

from .entry import entry

run_tile, run_narrow_tile, run_edge_tile = map(entry, (tile, narrow_tile, edge_tile))


def normal(rng, *shape):
    array = alloc(shape)
    array[:] = rng.standard_normal(shape, np.float32)
    return array


@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
@pytest.mark.parametrize("k", [1, 2, 7, 64])
def test_tile_equals_its_twin(rng, mode, k):
    a, b, bias, start = normal(rng, k, MR), normal(rng, k, NR), normal(rng, NR), normal(rng, 50, 70)
    got, want = start.copy(), start.copy()
    run_tile(0, data(got), 70, data(a), 1, MR, data(b), k, mode, data(bias))
    tile_twin(data(want), 70, data(a), 1, MR, data(b), k, mode, data(bias))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * k)
    exact = a.astype(float).T @ b
    exact += start[:MR, :NR] if mode == ADD else bias if mode == BIAS else 0
    np.testing.assert_allclose(got[:MR, :NR], exact, rtol=0, atol=1e-6 * k)
    assert (got[MR:] == start[MR:]).all()
    assert (got[:, NR:] == start[:, NR:]).all()


@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
def test_edges_have_the_bits_of_the_whole_and_touch_nothing_else(rng, mode):
    k, ld = 9, NR + 3
    a, b, bias, start = normal(rng, MR, k), normal(rng, k, NR), normal(rng, NR), normal(rng, MR, ld)
    whole = start.copy()
    run_tile(0, data(whole), ld, data(a), k, 1, data(b), k, mode, data(bias))
    for rows in range(1, MR + 1):
        for cols in range(1, NR + 1):
            got, twin = start.copy(), start.copy()
            sizes = (k, mode, data(bias), rows, cols)
            run_edge_tile(0, data(got), ld, data(a), k, 1, data(b), *sizes)
            np.testing.assert_array_equal(got[:rows, :cols], whole[:rows, :cols])
            assert (got[rows:] == start[rows:]).all()
            assert (got[:, cols:] == start[:, cols:]).all()
            if cols in (1, NR - 1):
                edge_tile_twin(data(twin), ld, data(a), k, 1, data(b), *sizes)
                np.testing.assert_allclose(twin, got, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bf16", [0, 1])
@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
def test_vectors_of_a_panel_have_the_bits_of_the_whole(rng, mode, bf16):
    """A narrow tile at the start of a panel, or at its end."""
    k, ld = 9, NR + 3
    a, b, bias, start = normal(rng, MR, k), normal(rng, k, NR), normal(rng, NR), normal(rng, MR, ld)
    whole = start.copy()
    run_tile(bf16, data(whole), ld, data(a), k, 1, data(b), k, mode, data(bias))
    for cols in range(W, NR, W):
        for first in (0, NR - cols):
            inside, got, twin = np.s_[:, first : first + cols], start.copy(), start.copy()
            at_b, at_bias = data(b) + 4 * first, data(bias) + 4 * first
            sizes = (ld, data(a), k, 1, at_b, k, mode, at_bias, cols)
            run_narrow_tile(bf16, data(got) + 4 * first, *sizes)
            np.testing.assert_array_equal(got[inside], whole[inside])
            got[inside] = start[inside]
            np.testing.assert_array_equal(got, start)
            if not bf16:
                narrow_tile_twin(data(twin) + 4 * first, *sizes)
                np.testing.assert_allclose(twin[inside], whole[inside], rtol=0, atol=1e-5)


def test_tile_takes_rows_as_they_lie(rng):
    a, b = normal(rng, MR, 40), normal(rng, 9, NR)
    got, want = np.empty((2, MR, NR), np.float32)
    run_tile(0, data(got), NR, data(a), 40, 1, data(b), 9, WRITE, 0)
    tile_twin(data(want), NR, data(a), 40, 1, data(b), 9, WRITE, 0)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got, a[:, :9].astype(float) @ b, rtol=0, atol=1e-5)


def test_tile_starts_from_nothing_but_its_operands(rng):
    a, b, got = normal(rng, 3, MR), normal(rng, 3, NR), np.full((MR, NR), np.nan, np.float32)
    run_tile(0, data(got), NR, data(a), 1, MR, data(b), 3, WRITE, 0)
    np.testing.assert_allclose(got, a.astype(float).T @ b, atol=1e-5)


def test_twin_of_pairs_by_hand():
    """The low half of a word is its first number, the high half its second."""
    one, two, three = 0x3F80, 0x4000, 0x4040  # bfloat16
    a = np.zeros((1, MR), np.uint32)
    b = np.zeros((1, NR), np.uint32)
    a[0, 0], a[0, 1] = one | two << 16, three << 16
    b[0, 0], b[0, 1] = one | three << 16, two
    c = np.full((MR, NR), np.nan, np.float32)
    pair_tile_twin(c.ctypes.data, NR, a.ctypes.data, 1, MR, b.ctypes.data, 1, WRITE, 0)
    np.testing.assert_array_equal(c[:2, :2], [[1 * 1 + 2 * 3, 1 * 2], [3 * 3, 0]])
    edge = np.full((MR, NR), 9, np.float32)
    pair_edge_tile_twin(edge.ctypes.data, NR, a.ctypes.data, 1, MR, b.ctypes.data, 1, ADD, 0, 1, 2)
    np.testing.assert_array_equal(edge[:2, :2], [[16, 11], [9, 9]])
