"""The classifier in chunks of positions: the same bits whatever their size."""

import numpy as np
import pytest

from llmpy.cpu import classifier
from llmpy.cpu.gemm import KC

N = 5 * KC + 17
PIECES = (1, 2, 3, 100)  # of a chunk


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_bits_do_not_depend_on_the_chunk(rng, monkeypatch, accumulate, bf16):
    C, V, Vp = 40, 70, 128
    lnf, wte = rng.standard_normal((1, N, C), np.float32), rng.standard_normal((Vp, C), np.float32)
    targets = rng.integers(0, V, (1, N), np.int32)
    start = rng.standard_normal((Vp, C)).astype(np.float32)
    results = []
    for pieces in PIECES:
        monkeypatch.setattr(classifier, "CHUNK", pieces * KC * V)
        losses, dlnf, dwte = np.empty((1, N), np.float32), np.empty_like(lnf), start.copy()
        classifier.classifier_forward_backward(
            losses, dlnf, dwte, lnf, wte, targets, V=V, dloss=0.1, accumulate=accumulate, bf16=bf16
        )
        results.append((losses, dlnf, dwte))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_chunks_are_whole_pieces():
    for V in (1, 65, 2000, 8192, 8193, 50257, 10**7):
        assert classifier.chunk_rows(V) % KC == 0
        assert classifier.chunk_rows(V) > 0
    assert classifier.chunk_rows(50257) == KC
