"""Attention in blocks: what reaches what at every edge of a block, and how a head is cut in pieces.

Numbers at all sizes are in tests/test_backends.py.
"""

import itertools

import numba
import numpy as np
import pytest
from numba import config

from llmpy import cpu, ops
from llmpy.cpu import attention, attention_blocks, memory
from llmpy.cpu.attention import BLOCK, ROW_BLOCK, block_of_piece, blocks_of_piece, pieces_of_head
from llmpy.cpu.attention_blocks import PIECE, up
from llmpy.cpu.memory import alloc, data
from llmpy.cpu.simd import MR, NR, W, choose_tile

from ..check import close
from ..op_cases import call, make_arrays
from ..tolerances import tolerance_of
from .entry import entry

pack_rows, scores, strip_scores = (
    entry(x)
    for x in (attention_blocks.pack_rows, attention_blocks.scores, attention_blocks.strip_scores)
)

HS = 5
LONG = PIECE + ROW_BLOCK + 3  # positions: several blocks of each kind, and of sums
EDGES = sorted(
    {0, 1, MR - 1, MR, NR, ROW_BLOCK - 1, ROW_BLOCK, BLOCK - 1, BLOCK, PIECE, LONG - MR, LONG - 1}
)


def test_blocks_are_whole_panels_on_all_machines():
    for features in ({"avx512f": True}, {"neon": True}, {}):
        w, mr, vectors, _ = choose_tile(features)
        nr = vectors * w
        assert ROW_BLOCK % mr == BLOCK % mr == BLOCK % nr == PIECE % ROW_BLOCK == 0
        assert ROW_BLOCK % 2 == 0  # pairs of bfloat16 begin with it
    w, mr, _, pairs = choose_tile({"avx512f": True, "avx512bf16": True})
    assert pairs
    assert BLOCK % (2 * w) == 0  # whole pairs of vectors
    assert mr % 2 == 0  # so are the keys of a strip


# ----------------------------------------------------------------------------------------------
# scores


@pytest.mark.parametrize("before", [0, MR, BLOCK])
def test_scores_by_keys_without_masked_vectors(before, rng):
    """They begin with the first vector that has a row which sees one of the keys."""
    rows, keys = BLOCK - 5, up(BLOCK, MR)
    q, k = (rng.standard_normal((count, HS), np.float32) for count in (rows, keys))
    packed, S = alloc((BLOCK * HS,)), alloc((MR, BLOCK))
    pack_rows(data(packed), data(q), HS, rows, HS, 0, 0)
    for key in range(0, rows, MR):
        S[:] = np.nan
        at = data(k) + 4 * key * HS
        strip_scores(data(S), BLOCK, at, data(packed), rows, key, before, HS, 0)
        first = max(0, (key - before) // W * W)
        assert np.isnan(S[:, :first]).all()
        np.testing.assert_allclose(S[:, first:rows], k[key : key + MR] @ q[first:].T, atol=1e-5)


@pytest.mark.parametrize("before", [0, ROW_BLOCK])
def test_scores_by_rows_without_masked_vectors(before, rng):
    """They end with the last vector that has a key which a row of the tile sees."""
    rows, keys = ROW_BLOCK - 5, before + ROW_BLOCK - 5
    stride = up(before + ROW_BLOCK + MR, NR)
    q, k = (rng.standard_normal((count, HS), np.float32) for count in (up(rows, MR), keys))
    packed, S = alloc((up(keys, NR) * HS,)), alloc((up(rows, MR), stride))
    S[:] = np.nan
    pack_rows(data(packed), data(k), HS, keys, HS, 0, 0)
    scores(data(S), stride, data(q), data(packed), rows, keys, before, HS, 0)
    for row in range(0, rows, MR):
        tile, end = S[row : row + MR], up(before + row + MR, W)
        assert np.isnan(tile[:, end:]).all()
        want = q[row : row + MR] @ k[:end].T
        np.testing.assert_allclose(tile[:, : min(end, keys)], want, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name", ["attention_forward", "attention_backward"])
def test_stale_scratch_reaches_nothing(name, bf16, rng):
    for T in (1, 13, BLOCK - 1, BLOCK + 1, LONG):
        arrays = inputs(name, T, bf16, rng)
        want = run(cpu, name, arrays, bf16)
        for use, (kept, _) in vars(memory._scratch).items():
            if use.startswith("attention"):
                kept[:] = rng.choice([np.nan, np.inf, -3e38], kept.size)
        got = run(cpu, name, arrays, bf16)
        assert all(got[x].tobytes() == want[x].tobytes() for x in want), T


# ----------------------------------------------------------------------------------------------
# NaN and infinity


def inputs(name, T, bf16, rng):
    return make_arrays(name, {"B": 1, "T": T, "NH": 1, "C": HS}, {"NH": 1, "bf16": bf16}, rng)


def run(module, name, arrays, bf16):
    dtype = "float64" if module is ops else "float32"
    return call(module, name, arrays, {"NH": 1, "bf16": bf16}, dtype)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", [0, 1, 2], ids=["query", "key", "value"])
def test_later_positions_reach_nothing_forward(part, value, bf16, rng):
    """What is before keeps its bits; what is after becomes what the reference says."""
    clean = inputs("attention_forward", LONG, bf16, rng)
    before = run(cpu, "attention_forward", clean, bf16)
    for t in rng.choice(EDGES, 3, replace=False):
        hurt = {key: x.copy() for key, x in clean.items()}
        hurt["qkv"][0, t, part * HS + rng.integers(HS)] = value
        got = run(cpu, "attention_forward", hurt, bf16)
        want = run(ops, "attention_forward", hurt, bf16)
        assert np.array_equal(got["out"][:, :t], before["out"][:, :t]), f"position {t}"
        assert np.array_equal(got["lse"][..., :t], before["lse"][..., :t]), f"position {t}"
        for output in want:
            tolerance = tolerance_of("attention_forward", output, {"bf16": bf16})
            close(got[output], want[output], tolerance, f"position {t}: {output}")


QUERY, KEY, VALUE = (slice(i * HS, i * HS + HS) for i in range(3))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["query", "key", "value", "dout"])
def test_only_pairs_reach_each_other_backward(what, value, bf16, rng):
    """What has no pair with the position keeps its bits; the rest is what the reference says."""
    clean = inputs("attention_backward", LONG, bf16, rng)
    before = run(cpu, "attention_backward", clean, bf16)["dqkv"][0]
    for t in rng.choice(EDGES, 2, replace=False):
        hurt = {key: x.copy() for key, x in clean.items()}
        at = rng.integers(HS)
        if what == "dout":
            hurt["dout"][0, t, at] = value
        else:
            at += {"query": 0, "key": HS, "value": 2 * HS}[what]
            hurt["qkv"][0, t, at] = value
            forward = {key: hurt[key] for key in ("out", "lse", "qkv")}
            hurt.update(run(ops, "attention_forward", forward, bf16))
        got = run(cpu, "attention_backward", hurt, bf16)["dqkv"][0]
        want = run(ops, "attention_backward", hurt, bf16)["dqkv"][0]
        close(got, want, tolerance_of("attention_backward", "dqkv", {"bf16": bf16}), f"{t}")
        assert np.array_equal(got[:t, QUERY], before[:t, QUERY])
        if what in ("query", "dout"):
            assert np.array_equal(got[t + 1 :], before[t + 1 :])


def test_weights_that_underflow(rng):
    """Far below the largest score a weight is 0, and its value doesn't count: not one of 1e38."""
    arrays = inputs("attention_forward", LONG, False, rng)
    qkv = arrays["qkv"][0]
    qkv[:, QUERY], qkv[:, KEY] = 1, 0
    far = rng.permutation(LONG)[: LONG // 2]
    far = far[far > 0]
    qkv[far, KEY] = -100  # scores of -224: e^-224 is 0 in float32
    qkv[far, VALUE] = 3e38
    got = run(cpu, "attention_forward", arrays, False)
    near = np.ones(LONG)
    near[far] = 0
    weights = np.tri(LONG) * near
    want = (weights / weights.sum(1)[:, None]) @ np.where(near[:, None], qkv[:, VALUE], 0)
    np.testing.assert_allclose(got["out"][0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1e3, 1e9, 1e15])
def test_huge_finite_scores(size, rng):
    """The largest takes all, and ties share, however far rounding may be off."""
    arrays = inputs("attention_forward", LONG, False, rng)
    qkv = arrays["qkv"][0]
    qkv[:, QUERY] = size
    qkv[:, KEY] = (np.arange(LONG) // 2 * size)[:, None]  # later ones are larger, two by two
    qkv[:] = qkv.astype(np.float32)
    got = run(cpu, "attention_forward", arrays, False)
    value = qkv[:, VALUE]
    want = value.copy()
    want[1::2] = (value[: LONG - 1 : 2] + value[1::2]) / 2
    np.testing.assert_allclose(got["out"][0], want, rtol=1e-6, atol=1e-6)
    assert np.isfinite(got["lse"]).all()


# ----------------------------------------------------------------------------------------------
# pieces


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 22])
def test_pieces_do_each_block_once_at_like_cost(blocks):
    for heads in (1, 3, 12, 48, 500):
        pieces = pieces_of_head(heads, blocks, 48)
        assert 1 <= pieces <= max(1, blocks // 2)
        own = [
            [
                block_of_piece(m, piece, pieces, blocks)
                for m in range(blocks_of_piece(piece, pieces, blocks))
            ]
            for piece in range(pieces)
        ]
        assert sorted(itertools.chain(*own)) == list(range(blocks))
        assert all(numbers == sorted(numbers) for numbers in own)
        costs = [sum(i + 1 for i in numbers) for numbers in own]
        assert max(costs) - min(costs) <= pieces + 1
        assert [numbers[-1] for numbers in own] == [blocks - 1 - p for p in range(pieces)]
    assert pieces_of_head(1, 100, 48) == 48
    assert pieces_of_head(12, 100, 48) == 4
    assert pieces_of_head(48, 100, 48) == 1


def cut(monkeypatch, pieces):
    monkeypatch.setattr(attention, "pieces_of_head", lambda *_: pieces)


def two_threads():
    return min(2, config.NUMBA_NUM_THREADS)


@pytest.fixture
def restore_threads():
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("bf16", [False, True])
def test_no_row_depends_on_the_pieces_forward(bf16, monkeypatch, rng):
    arrays = inputs("attention_forward", 6 * ROW_BLOCK + 7, bf16, rng)
    cut(monkeypatch, 1)
    once = run(cpu, "attention_forward", arrays, bf16)
    for pieces in (2, 3, 5, 7):
        for threads in (1, two_threads()):
            cut(monkeypatch, pieces)
            numba.set_num_threads(threads)
            again = run(cpu, "attention_forward", arrays, bf16)
            assert all(again[x].tobytes() == once[x].tobytes() for x in once), pieces


@pytest.mark.usefixtures("restore_threads")
@pytest.mark.parametrize("bf16", [False, True])
def test_pieces_backward(bf16, monkeypatch, rng):
    """Their sums make the gradient, with the same bits on any number of threads."""
    name = "attention_backward"
    arrays = inputs(name, 5 * BLOCK + 7, bf16, rng)
    want = run(ops, name, arrays, bf16)["dqkv"]
    for pieces in (1, 2, 3, 4, 6):
        cut(monkeypatch, pieces)
        numba.set_num_threads(1)
        got = run(cpu, name, arrays, bf16)["dqkv"]
        close(got, want, tolerance_of(name, "dqkv", {"bf16": bf16}), f"{pieces} pieces")
        numba.set_num_threads(two_threads())
        assert run(cpu, name, arrays, bf16)["dqkv"].tobytes() == got.tobytes()


def test_scratch_grows_with_the_length_alone():
    for sizes in ((1, 12, 64), (4, 12, 64), (1, 1, 128)):
        B, NH, head = sizes
        few, many = (
            sum(attention.scratch_words(B, T, NH, head, 0).values()) for T in (1 << 14, 1 << 16)
        )
        assert many < 4.1 * few
