"""The matrix product on every edge size around the tile and the pieces of k, in every layout."""

import itertools

import numpy as np
import pytest

from llmpy import cpu
from llmpy.bfloat16 import rounded_to_bfloat16
from llmpy.cpu import gemm as module
from llmpy.cpu.column_panels import GROUP
from llmpy.cpu.gemm import (
    A_PANEL,
    FINISHED,
    GELU,
    GELU_DERIVATIVE,
    KC,
    blocks,
    gemm,
    piece_of,
    strips,
)
from llmpy.cpu.packing import LINE
from llmpy.cpu.simd import MR, NR
from llmpy.cpu.tile import ADD, BIAS, WRITE
from llmpy.ops.gelu import gelu_backward, gelu_forward

SIZES_M = (1, MR - 1, MR, MR + 1, 2 * MR + 1)
SIZES_N = (1, NR - 1, NR, NR + 1)
SIZES_K = (1, 7, 8, 9, 17)


def product(rng, M, N, K, a_unit_k=True, b_unit_k=True, mode=WRITE, **more):
    """Run gemm on fresh operands; give its result and the exact one."""
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    bias = rng.standard_normal(N, np.float32)
    start = rng.standard_normal((M, N), np.float32)
    c = start.copy() if mode == ADD else np.full((M, N), np.nan, np.float32)
    stored_a = np.ascontiguousarray(a if a_unit_k else a.T)
    stored_b = np.ascontiguousarray(b.T if b_unit_k else b)
    gemm(
        c, stored_a, stored_b, a_unit_k=a_unit_k, b_unit_k=b_unit_k, K=K, mode=mode, bias=bias,
        **more,
    )  # fmt: skip
    if more.get("bf16"):
        a, b = rounded_to_bfloat16(a), rounded_to_bfloat16(b)
    want = a.astype(np.float64) @ b
    want += start if mode == ADD else bias if mode == BIAS else 0
    return c, want


@pytest.mark.parametrize("a_unit_k", [True, False])
@pytest.mark.parametrize("b_unit_k", [True, False])
@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
def test_every_edge(rng, a_unit_k, b_unit_k, mode):
    for M, N, K in itertools.product(SIZES_M, SIZES_N, SIZES_K):
        got, want = product(rng, M, N, K, a_unit_k, b_unit_k, mode)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * (K + 2), err_msg=f"{M, N, K}")


@pytest.mark.parametrize("K", [KC - 1, KC, KC + 1, 2 * KC + 3])
@pytest.mark.parametrize("mode", [WRITE, ADD, BIAS])
def test_pieces_of_k(rng, K, mode):
    for a_unit_k, b_unit_k in itertools.product((True, False), repeat=2):
        got, want = product(rng, MR + 1, NR + 1, K, a_unit_k, b_unit_k, mode)
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-7 * K)


@pytest.mark.parametrize("a_unit_k", [True, False])
@pytest.mark.parametrize("b_unit_k", [True, False])
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("split", [(1, 1), (2, 1), (1, 2), (3, 3)])
def test_blocks(rng, monkeypatch, a_unit_k, b_unit_k, bf16, split):
    """However c is split, and whoever packs what, the bits are the same."""
    M, N, K = 2 * GROUP + 5, 14 * NR + 3, piece_of(bf16) + 9
    got, want = product(rng, M, N, K, a_unit_k, b_unit_k, bf16=bf16)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-4)
    monkeypatch.setattr(module, "blocks", lambda *_: split)
    rng = np.random.default_rng(5)
    first, want = product(rng, M, N, K, a_unit_k, b_unit_k, bf16=bf16)
    for few, small in itertools.product((1, 100), (0, 1 << 30)):
        monkeypatch.setattr(module, "FEW_PANELS", few)  # A as it lies, by each, or for all
        monkeypatch.setattr(module, "SMALL", small)  # B for all where there are several, or by each
        rng = np.random.default_rng(5)
        again, _ = product(rng, M, N, K, a_unit_k, b_unit_k, bf16=bf16)
        np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("a_unit_k", [True, False])
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("epilogue", [GELU, GELU_DERIVATIVE])
def test_strips(monkeypatch, a_unit_k, bf16, epilogue):
    """However wide the strips of c, and whoever packs A: the same bits."""
    M, N, K = 3 * MR + 5, 7 * NR + 3, 2 * piece_of(bf16) + 9
    results = []
    for strip, split, few in itertools.product(
        ((8, 1), (8, 3), (FINISHED, 3), (1, 3)), ((1, 1), (2, 2)), (1, 100)
    ):
        monkeypatch.setattr(module, "strips", lambda *_, strip=strip: strip)
        monkeypatch.setattr(module, "blocks", lambda *_, split=split: split)
        monkeypatch.setattr(module, "FEW_PANELS", few)  # packed by each task, or else
        rng = np.random.default_rng(5)
        pre = rng.standard_normal((M, N), np.float32)
        out, sums = np.full((M, N), np.nan, np.float32), np.full((3, M), np.nan, np.float32)
        more = {"pre": pre} if epilogue == GELU_DERIVATIVE else {}
        more |= {} if a_unit_k else {"sums": sums}
        c, _ = product(rng, M, N, K, a_unit_k, bf16=bf16, epilogue=epilogue, out=out, **more)
        results.append((c, out, sums))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("cache", [1 << 18, 1 << 20, 1 << 22])
def test_strips_fit_beside_a_block_of_a(monkeypatch, cache):
    """As wide as fits, in whole epilogues."""
    monkeypatch.setattr(module, "second_cache_bytes", lambda: cache)
    rule, wide, panel_of_c = strips.__wrapped__, 10**6, 4 * MR * NR
    for a_panels in (1, 4, cache // 4 // A_PANEL // 8):
        strip, kept = rule(a_panels, wide, 2)
        assert (kept, strip % FINISHED) == (2, 0)
        assert strip * a_panels * panel_of_c <= cache * 3 / 8
        assert (strip + FINISHED) * a_panels * panel_of_c > cache * 3 / 8
        assert rule(a_panels, wide, 1) == (wide, 1)  # c is visited once
        assert rule(a_panels, strip, 2) == (strip, 1)  # all of it fits
    assert rule(cache // 4 // A_PANEL, wide, 2) == (wide, 1)  # A is twice as large as the cache


def test_a_product_without_columns_has_sums(rng):
    a, sums = rng.standard_normal((5, 7), np.float32), np.full((1, 7), np.nan, np.float32)
    gemm(np.empty((7, 0), np.float32), a, np.empty((5, 0), np.float32), a_unit_k=False,
         b_unit_k=False, K=5, sums=sums)  # fmt: skip
    np.testing.assert_array_equal(sums, np.cumsum(a, axis=0, dtype=np.float32)[-1:])


def test_blocks_suffice_for_the_threads():
    for threads in (1, 2, 3, 8, 64):
        for M, N, K in [(256, 768, 768), (768, 128, 128), (4096, 3072, 768), (1, 50257, 768)]:
            m_blocks, n_blocks = blocks(M, N, min(K, KC), threads)
            assert 1 <= m_blocks <= -(-M // MR)
            assert 1 <= n_blocks <= -(-N // NR)
            assert m_blocks * n_blocks >= min(threads, -(-M // MR) * -(-N // NR))


def test_blocks_of_rows_alone_where_there_are_enough():
    """Whatever the cache: of 50,257 rows there are more blocks than threads."""
    for threads in (2, 3, 7):
        m_blocks, n_blocks = blocks(50_257, 768, KC, threads)
        assert m_blocks > threads
        assert (m_blocks % threads, n_blocks) == (0, 1)


@pytest.mark.parametrize("M", [1, GROUP - 1, GROUP, 2 * GROUP + MR + 1])
@pytest.mark.parametrize("K", [1, KC, 2 * KC + 3])
def test_sums_of_the_rows_of_a(rng, monkeypatch, M, K):
    a, b = rng.standard_normal((K, M), np.float32), rng.standard_normal((K, 9), np.float32)
    c, sums = np.empty((M, 9), np.float32), np.full((-(-K // KC), M), np.nan, np.float32)
    want = [np.cumsum(a[q : q + KC], axis=0, dtype=np.float32)[-1] for q in range(0, K, KC)]
    for split in ((1, 1), (2, 1), (1, 1), (1, 2)):
        monkeypatch.setattr(module, "blocks", lambda *_, split=split: split)
        sums[:] = np.nan
        gemm(c, a, b, a_unit_k=False, b_unit_k=False, K=K, sums=sums)
        np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize("M", [1, MR - 1, MR, MR + 1, GROUP - 1, GROUP + 1])
@pytest.mark.parametrize("K", [1, 7, 17, KC + 9])
def test_rows_that_lie_4_kib_apart_are_packed(rng, M, K):
    a = rng.standard_normal((M, 1024), np.float32)[:, :K]
    b, c = rng.standard_normal((19, K), np.float32), np.full((M, 19), np.nan, np.float32)
    gemm(c, a, b, a_unit_k=True, b_unit_k=True, K=K)
    np.testing.assert_allclose(c, a.astype(float) @ b.T, rtol=0, atol=2e-6 * (K + 2))
    again = np.empty_like(c)
    gemm(again, np.ascontiguousarray(a), b, a_unit_k=True, b_unit_k=True, K=K)
    np.testing.assert_array_equal(again, c)  # packed or not, the same bits


def test_slices_of_wider_matrices(rng):
    wide_a, wide_b = rng.standard_normal((2, 9, 40)).astype(np.float32)
    wide_c = np.full((9, 30), 7, np.float32)
    gemm(wide_c[:, 3:12], wide_a[:, 5:25], wide_b[:, :20], a_unit_k=True, b_unit_k=True, K=20)
    want = wide_a[:, 5:25].astype(float) @ wide_b[:, :20].T
    np.testing.assert_allclose(wide_c[:, 3:12], want, atol=1e-5)
    assert (wide_c[:, :3] == 7).all()
    assert (wide_c[:, 12:] == 7).all()


def test_bits_of_an_element_do_not_depend_on_its_place(rng):
    a, b = rng.standard_normal((2, 50, 300)).astype(np.float32)
    whole, part = np.empty((50, 50), np.float32), np.empty((3, 5), np.float32)
    gemm(whole, a, b, a_unit_k=True, b_unit_k=True, K=300)
    gemm(part, a[40:43], b[30:35], a_unit_k=True, b_unit_k=True, K=300)
    np.testing.assert_array_equal(part, whole[40:43, 30:35])


@pytest.mark.parametrize("N", [NR + 5, (FINISHED + 1) * NR + 1])
def test_gelu_after_the_product(rng, N):
    out = np.full((13, N), np.nan, np.float32)
    pre, want = product(rng, 13, N, KC + 9, mode=BIAS, epilogue=GELU, out=out)
    np.testing.assert_allclose(pre, want, rtol=0, atol=1e-4)
    exact = np.empty((1, 13, N))
    gelu_forward(exact, pre.astype(float)[None])
    np.testing.assert_allclose(out, exact[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("N", [NR + 5, (FINISHED + 1) * NR + 1])
def test_derivative_of_gelu_after_the_product(rng, N):
    pre = rng.standard_normal((13, N)).astype(np.float32)
    out = np.full((13, N), np.nan, np.float32)
    got, dout = product(rng, 13, N, KC + 9, epilogue=GELU_DERIVATIVE, out=out, pre=pre)
    want = np.zeros((1, 13, N))
    gelu_backward(want, pre.astype(float)[None], dout[None])
    np.testing.assert_allclose(got, want[0], rtol=0, atol=2e-4)
    forward = np.empty((1, 13, N), np.float32)
    cpu.gelu_forward(forward, pre[None])
    np.testing.assert_array_equal(out, forward[0])  # made again, the same bits


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_reach_their_row_only(rng, value):
    a, b = rng.standard_normal((2, 20, 20)).astype(np.float32)
    a[7, 3] = value
    c = np.empty((20, 20), np.float32)
    gemm(c, a, b, a_unit_k=True, b_unit_k=True, K=20)
    assert not np.isfinite(c[7]).any()
    assert np.isfinite(np.delete(c, 7, axis=0)).all()


def in_python(kernel):
    return getattr(kernel, "py_func", kernel)  # without the JIT it is the function itself


@pytest.mark.parametrize("unit_k", [0, 1])
@pytest.mark.parametrize("panels", [1, 2, 7, 2 * KC])
@pytest.mark.parametrize(("cols", "k"), [(NR, KC), (3, 37)])
def test_each_line_of_the_next_panel_is_asked_for_once(monkeypatch, unit_k, panels, cols, k):
    """What is asked for, and not read, can't show in a result."""
    asked, ahead, ld = [], 1 << 20, 1000
    for name in ("tile", "edge_tile"):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(module, "prefetch", asked.append)
    monkeypatch.setattr(module, "prefetch_panel", in_python(module.prefetch_panel))
    rows = panels * MR - 1
    in_python(module.column_of_tiles)(
        0, 0, 0, 0, 0, 0, 0, rows, 0, NR, k, WRITE, 0, ahead, ld, unit_k, cols
    )
    far, near = (cols, k) if unit_k else (k, cols)
    want = [ahead + 4 * (i * ld + j) for i in range(far) for j in range(0, near, LINE)]
    assert sorted(asked) == want
