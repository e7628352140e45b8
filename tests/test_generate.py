"""Draws against their definition, the window that slides, and `llmpy generate` whole."""

import io
import sys

import numpy as np
import pytest

from llmpy.cli import main
from llmpy.config import GPT2Config, SamplingConfig
from llmpy.errors import NonFiniteError, UsageError
from llmpy.formats.tokenizer import Tokenizer, write_tokenizer
from llmpy.generate import (
    find_tokenizer,
    generate,
    sample,
    sample_mult,
    sampling_rng,
    start_token,
)
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.tensors import PARAMS, Tensors

from .tiny_run import CHARACTERS, CONFIG, TOKENIZER, write_model


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


def test_find_tokenizer(tmp_path):
    assert find_tokenizer(CONFIG, None, str(tmp_path / "model.bin")) is None
    write_tokenizer(tmp_path / "tokenizer.bin", TOKENIZER)
    found = find_tokenizer(CONFIG, None, str(tmp_path / "model.bin"))
    assert found is not None
    assert found.token_table == TOKENIZER.token_table
    gpt2 = GPT2Config(max_seq_len=4, vocab_size=50257, num_layers=1, num_heads=1, channels=1)
    found = find_tokenizer(gpt2, None, None)
    assert found is not None
    assert found.decode([15496, 995]) == b"Hello world"


# llmpy generate


def command(model, *words):
    return ["generate", model, "--backend", "numpy", *words]


@pytest.fixture
def model(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.bin", TOKENIZER)
    return write_model(tmp_path / "model.bin")


def continuation(prompt, n, seed=42, **how):
    """The text that the definition gives, from the model's own logits."""
    reference = GPT2(CONFIG, "numpy")
    reference.backend.upload(reference.params.memory, init_params(CONFIG, 1) * 8)
    tokens = TOKENIZER.encode(prompt) or [0]
    sampling = SamplingConfig(seed=seed, **how)
    made = list(generate(reference, tokens, n, sampling, sampling_rng(seed)))
    return prompt + TOKENIZER.decode(made).decode()


def test_stdout_is_prompt_and_continuation(model, capfdbinary):
    assert main(command(model, "--prompt", "hi you", "-n", "30")) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == continuation("hi you", 30)
    assert err.startswith(b"backend numpy: ")
    assert main(command(model, "--prompt", "hi you", "-n", "30", "--no-cache")) == 0
    assert capfdbinary.readouterr().out == out


@pytest.mark.parametrize("prompt", ["", " ", "\n", "x" * 15, "x" * 16, "x" * 17, "x" * 90])
def test_any_prompt(model, prompt, capfdbinary):
    assert main(command(model, "--prompt", prompt, "-n", "3")) == 0
    assert capfdbinary.readouterr().out.decode() == continuation(prompt, 3)


def test_settings_reach_the_draw(model, capfdbinary):
    words = ["--temperature", "0.5", "--top-k", "3", "--top-p", "0.9", "--seed", "9"]
    assert main(command(model, "--prompt", "a", "-n", "40", *words)) == 0
    want = continuation("a", 40, seed=9, temperature=0.5, top_k=3, top_p=0.9)
    assert capfdbinary.readouterr().out.decode() == want


def test_temperature_zero_ignores_the_seed(model, capfdbinary):
    texts = []
    for seed in ("1", "2"):
        words = ("--prompt", "a", "-n", "9", "--temperature", "0", "--seed", seed)
        assert main(command(model, *words)) == 0
        texts.append(capfdbinary.readouterr().out)
    assert texts[0] == texts[1]


def test_several_samples(model, capfdbinary):
    assert main(command(model, "--prompt", "a", "-n", "5", "--num-samples", "2")) == 0
    first, second = capfdbinary.readouterr().out.decode().split("\n---\n")
    assert first == continuation("a", 5)
    assert second != first
    assert len(second) == 6


def test_n_zero_is_the_prompt(model, capfdbinary):
    assert main(command(model, "--prompt", "abc", "-n", "0")) == 0
    assert capfdbinary.readouterr().out == b"abc"


def test_prompt_file(model, tmp_path, capfdbinary):
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"\xef\xbb\xbfh\xc3\xa9!\n")  # the mark at the beginning is dropped
    assert main(command(model, "--prompt-file", str(path), "-n", "2")) == 0
    out = capfdbinary.readouterr().out
    assert out.decode() == continuation("h\u00e9!\n", 2)
    path.write_bytes(b"")
    assert main(command(model, "--prompt-file", str(path), "-n", "2")) == 0
    assert capfdbinary.readouterr().out.decode() == continuation("", 2)


def test_prompt_from_stdin(model, monkeypatch, capfdbinary):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"yes")))
    assert main(command(model, "--prompt-file", "-", "-n", "1")) == 0
    assert capfdbinary.readouterr().out.decode() == continuation("yes", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfea\0", "text is UTF-16, expected UTF-8"),
        (b"abc\xff", "byte 3 is 0xff, expected UTF-8"),
    ],
)
def test_prompt_file_that_is_not_utf8(model, tmp_path, capfd, content, message):
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    assert main(command(model, "--prompt-file", str(path))) == 1
    assert capfd.readouterr().err == f"llmpy generate: {path}: {message}\n"


def test_a_character_that_the_vocabulary_lacks(model, capfd):
    assert main(command(model, "--prompt", "ab7")) == 2
    assert capfd.readouterr().err == (
        "llmpy generate: encode: character 2 (line 1, column 3) is '7' (U+0037),"
        " expected one of the 30 in the vocabulary\n"
    )


def test_no_vocabulary(tmp_path, capfd):
    model = write_model(tmp_path / "alone.bin")
    assert main(command(model)) == 2
    assert capfd.readouterr().err == (
        f"llmpy generate: {model}: vocab_size is 30, and no tokenizer.bin is in {tmp_path}."
        " Give --tokenizer FILE.\n"
    )


def test_a_vocabulary_of_another_size(model, tmp_path, capfd):
    path = tmp_path / "other.bin"
    write_tokenizer(path, Tokenizer([b"a", b"b"], eot=None))
    assert main(command(model, "--tokenizer", str(path))) == 1
    assert capfd.readouterr().err == (
        f"llmpy generate: {path}: tokenizer has 2 entries, expected 30,"
        " the vocab_size of the model\n"
    )


def test_padded_ids_are_never_drawn(tmp_path, capfdbinary):
    memory = init_params(CONFIG, 3)
    views = Tensors(GPT2(CONFIG, "numpy").backend, PARAMS, CONFIG.dims, memory=memory)
    views.wte[CONFIG.vocab_size :] = 50.0  # large and positive
    model = write_model(tmp_path / "model.bin", memory=memory)
    write_tokenizer(tmp_path / "tokenizer.bin", TOKENIZER)
    assert main(command(model, "--temperature", "5", "--seed", "0", "-n", "300")) == 0
    text = capfdbinary.readouterr().out.decode()
    assert len(text) == 300
    assert set(text) <= set(CHARACTERS)


def test_bytes_that_are_no_utf8_become_replacement_characters(tmp_path, capfdbinary):
    table = [b"\xc3" if i % 2 else b"\xa9" for i in range(30)]
    write_tokenizer(tmp_path / "tokenizer.bin", Tokenizer(table, eot=None))
    model = write_model(tmp_path / "model.bin")
    assert main(command(model, "-n", "200")) == 0
    text = capfdbinary.readouterr().out.decode()  # valid UTF-8 as a whole
    assert "\ufffd" in text
