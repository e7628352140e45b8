"""Draws against their definition, and the window that slides."""

import numpy as np
import pytest

from llmpy.config import SamplingConfig
from llmpy.errors import ConfigError, NonFiniteError, UsageError
from llmpy.formats.tokenizer import Tokenizer
from llmpy.generate import (
    generate,
    sample,
    sample_mult,
    sampling_rng,
    start_token,
)
from llmpy.sizes import GPT2Config


class Fixed:
    """A model that always gives the same logits, and keeps what it was asked."""

    def __init__(self, logits, max_seq_len=8):
        self.logits = np.asarray(logits, np.float32)
        self.config = GPT2Config(
            max_seq_len=max_seq_len,
            vocab_size=len(logits),
            num_layers=1,
            num_heads=1,
            channels=1,
        )
        self.seen = []

    def next_logits(self, tokens):
        self.seen.append(tokens[0].tolist())
        return self.logits[None]


# sample_mult


def test_sample_mult_is_the_loop_of_c(rng):
    for _ in range(20):
        p = rng.random(50, np.float32)
        p /= p.sum()
        coin = np.float32(rng.random())
        cdf, want = np.float32(0), len(p) - 1
        for i, x in enumerate(p):
            cdf = np.float32(cdf + x)
            if coin < cdf:
                want = i
                break
        assert sample_mult(p, coin) == want


def test_sample_mult_at_its_edges():
    p = np.array([0.25, 0.0, 0.75], np.float32)
    assert [sample_mult(p, c) for c in (0.0, 0.2499, 0.25, 0.99)] == [0, 0, 2, 2]
    assert sample_mult(np.array([0.5, 0.25, 0.125], np.float32), 0.99) == 2  # rounding errors


# sample


def draws(logits, count=4000, **how):
    rng = sampling_rng(7)
    return [sample(np.asarray(logits), rng, **how) for _ in range(count)]


def test_frequencies_are_the_softmax(rng):
    logits = rng.standard_normal(6)
    p = np.exp(logits / 0.7)
    p /= p.sum()
    counts = np.bincount(draws(logits, 20000, temperature=0.7), minlength=6)
    # chi-square with 5 degrees of freedom: above 40 once in ten million
    assert np.sum((counts - 20000 * p) ** 2 / (20000 * p)) < 40


def test_temperature_zero_is_argmax_with_the_lowest_id_on_ties():
    logits = np.array([1.0, 3.0, 3.0, 2.0])
    for seed in range(3):
        assert sample(logits, sampling_rng(seed), temperature=0) == 1


def test_a_tiny_temperature_is_argmax_without_warnings():
    logits = np.array([1.0, 3.0, 2.999, -50.0], np.float32)
    assert set(draws(logits, 50, temperature=1e-30)) == {1}
    assert set(draws(logits, 50, temperature=5e-324)) == {1}


def test_top_k_keeps_the_likeliest_and_the_lower_id_on_ties():
    logits = [1.0, 2.0, 2.0, 2.0, 0.0]
    assert set(draws(logits, 500, top_k=2)) == {1, 2}
    assert set(draws(logits, 50, top_k=1)) == {1}
    assert set(draws(logits, top_k=100)) == {0, 1, 2, 3, 4}


def test_top_p_keeps_the_fewest_that_reach_it():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    assert set(draws(logits, top_p=0.4)) == {0}
    assert set(draws(logits, top_p=0.6)) == {0, 1}
    assert set(draws(logits, top_p=0.85)) == {0, 1, 2}
    assert set(draws(logits, top_p=1.0)) == {0, 1, 2, 3}
    assert set(draws(logits, top_p=1e-9)) == {0}


def test_top_k_and_top_p_together_renormalize():
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert set(draws(logits, top_k=2, top_p=0.5)) == {0}  # 0.4 / 0.7 passes 0.5
    assert set(draws(logits, top_k=2, top_p=0.6)) == {0, 1}


def test_huge_logits_and_minus_infinity():
    assert set(draws([1e30, -np.inf, -1e30], 50)) == {0}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite(bad):
    with pytest.raises(NonFiniteError) as error:
        sample(np.array([0.0, bad]), sampling_rng(0))
    assert str(error.value) == f"sample: largest logit is {bad}, expected a finite number"


def test_sample_refuses_what_the_settings_refuse():
    for how, message in (
        ({"temperature": -1.0}, "--temperature is -1, expected a number of at least 0"),
        ({"temperature": float("nan")}, "--temperature is nan, expected a number of at least 0"),
        ({"top_k": 0}, "--top-k is 0, expected at least 1"),
        ({"top_p": 0.0}, "--top-p is 0, expected above 0 and at most 1"),
    ):
        with pytest.raises(ConfigError) as error:
            sample(np.array([1.0, 2.0]), sampling_rng(1), **how)
        assert str(error.value) == message


def test_a_sample_does_not_depend_on_how_many_there_are():
    first, second = (sampling_rng(5, i).random(4).tolist() for i in (0, 1))
    assert first != second
    assert sampling_rng(5, 1).random(4).tolist() == second


# generate


@pytest.mark.parametrize("prompt", [1, 7, 8, 9, 50])
def test_the_window_slides_and_exactly_n_come(prompt):
    model = Fixed([0.0, 1.0, 2.0])
    tokens = [i % 3 for i in range(prompt)]
    made = list(generate(model, tokens, 20, SamplingConfig(temperature=0)))
    assert made == [2] * 20
    whole = tokens + made
    want = [whole[max(0, prompt + i - 8) : prompt + i] for i in range(20)]
    assert model.seen == want


def test_generate_refuses_an_empty_prompt_and_a_negative_count():
    with pytest.raises(UsageError) as error:
        generate(Fixed([0.0]), [], 1)
    assert str(error.value) == (
        "generate: prompt has 0 tokens, expected at least 1. See start_token."
    )
    with pytest.raises(UsageError) as error:
        generate(Fixed([0.0]), [0], -1)
    assert str(error.value) == "generate: n is -1, expected at least 0"
    assert list(generate(Fixed([0.0]), [0], 0)) == []


def test_start_token():
    assert start_token(Tokenizer([b"a", b"\n", b"<|endoftext|>"], eot=2)) == 2
    assert start_token(Tokenizer([b"a", b"\n"], eot=None)) == 1
    assert start_token(Tokenizer([b"a", b"b"], eot=None)) == 0
    assert start_token(None) == 0
