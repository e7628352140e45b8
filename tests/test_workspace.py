"""Batches of any size, one after the other, and those that are refused."""

import re

import numpy as np
import pytest

from llmpy import ops
from llmpy.errors import UsageError

from .random_model import TINY, random_batch, random_model


def test_any_batch_after_any_other(backend):
    """The block is used again for smaller batches and grows for larger ones, with no trace."""
    model = random_model(backend=backend, dtype="float32")
    for seed, (B, T) in enumerate([(2, 5), (1, 1), (3, 9), (1, 9), (2, 5), (4, 2), (1, 1)]):
        tokens, targets = random_batch(B, T, seed=seed)
        fresh = random_model(backend=backend, dtype="float32")
        assert model.forward_backward(tokens, targets) == fresh.forward_backward(tokens, targets)
        np.testing.assert_array_equal(
            model.backend.download(model.grads.memory), fresh.backend.download(fresh.grads.memory)
        )
        np.testing.assert_array_equal(model.forward(tokens), fresh.forward(tokens))


def test_a_smaller_batch_allocates_no_activations(monkeypatch):
    model = random_model()
    model.forward_backward(*random_batch(4, 9))
    sizes = []
    alloc = ops.alloc_places
    monkeypatch.setattr(ops, "alloc_places", lambda *a, **how: sizes.append(a) or alloc(*a, **how))
    model.forward_backward(*random_batch(3, 9))
    model.forward_backward(*random_batch(4, 2))
    assert sizes == []
    model.forward_backward(*random_batch(5, 9))
    assert len(sizes) == 3  # tokens, activations, scratch


def test_next_logits_are_those_of_the_last_position(backend):
    model = random_model(backend=backend, dtype="float32")
    tokens, _ = random_batch(3, 7)
    logits = model.next_logits(tokens)
    assert logits.shape == (3, TINY.vocab_size)
    np.testing.assert_allclose(logits, model.forward(tokens)[:, -1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("T", "run"), [(1, 4), (4, 4), (5, 8), (9, 9)])
def test_a_length_that_is_rounded_up_gives_the_same_logits(monkeypatch, T, run):
    """As a device wants it; no further than maxT, which is 9."""
    model = random_model()
    tokens, _ = random_batch(2, T)
    want = model.next_logits(tokens)
    monkeypatch.setattr(ops, "T_UNIT", 4)
    np.testing.assert_allclose(model.next_logits(tokens), want, rtol=1e-12)
    assert model._work.shape == (2, run)
    with pytest.raises(
        UsageError, match=r"^GPT2\.next_logits: tokens has T = 10, expected at most"
    ):
        model.next_logits([[0] * 10])
    with pytest.raises(UsageError, match=r"^GPT2\.next_logits: tokens\[0, 1\] is 11, expected"):
        model.next_logits([[0, 11]])


def test_later_tokens_do_not_reach_back(backend):
    model = random_model(backend=backend, dtype="float32")
    tokens, _ = random_batch(2, 8)
    before = model.forward(tokens)[:, :5]
    tokens[:, 5:] = (tokens[:, 5:] + 1) % TINY.vocab_size
    np.testing.assert_allclose(model.forward(tokens)[:, :5], before, rtol=1e-5, atol=1e-6)


def test_tokens_may_be_lists_and_any_integers():
    model = random_model()
    tokens, targets = random_batch(2, 5)
    loss = model.forward(tokens, targets)
    assert model.forward(tokens.tolist(), targets.astype(np.uint16)) == loss


GOOD = [[1, 2, 3]]
OUTSIDE = "expected 0 to 10, because the vocabulary has V = 11 tokens"
# fmt: off
BAD_BATCHES = [
    ([1, 2], None, "tokens has shape (2,), expected (B, T), each at least 1"),
    (np.zeros((0, 3), int), None, "tokens has shape (0, 3), expected (B, T), each at least 1"),
    (np.zeros((2, 0), int), None, "tokens has shape (2, 0), expected (B, T), each at least 1"),
    ([[1, 2], [3]], None, "tokens is no array, expected (B, T)"),
    ([[1.0]], None, "tokens has dtype float64, expected integers"),
    ([[True]], None, "tokens has dtype bool, expected integers"),
    ([[0] * 10], None, "tokens has T = 10, expected at most max_seq_len = 9"),
    ([[1, 11]], None, "tokens[0, 1] is 11, " + OUTSIDE),
    ([[1], [-1]], None, "tokens[1, 0] is -1, " + OUTSIDE),
    ([[2**40]], None, f"tokens[0, 0] is {2**40}, " + OUTSIDE),
    (GOOD, [[1, 2]], "targets has shape (1, 2), expected (1, 3), because each token has one"),
    (GOOD, [[1, 2, 11]], "targets[0, 2] is 11, " + OUTSIDE),
    (GOOD, [[1, 2, 0.5]], "targets has dtype float64, expected integers"),
]
# fmt: on


@pytest.mark.parametrize(("tokens", "targets", "message"), BAD_BATCHES)
def test_bad_batches_are_refused(tokens, targets, message):
    with pytest.raises(UsageError, match=f"^{re.escape('GPT2.forward: ' + message)}$"):
        random_model().forward(tokens, targets)


def test_a_refused_batch_changes_nothing(backend):
    model = random_model(backend=backend, dtype="float32")
    tokens, targets = random_batch(2, 5)
    loss = model.forward_backward(tokens, targets)
    grads = np.array(model.backend.download(model.grads.memory))
    wrong = targets.copy()
    wrong[1, 4] = TINY.vocab_size
    with pytest.raises(UsageError, match=r"^GPT2\.forward_backward: targets\[1, 4\] is 11, "):
        model.forward_backward(tokens, wrong)
    np.testing.assert_array_equal(model.backend.download(model.grads.memory), grads)
    assert model.mean_loss == loss
    model.backward()  # the last pass still stands
