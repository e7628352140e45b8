"""`llmpy generate` whole: what comes on stdout, from any prompt and vocabulary."""

import io
import os
import sys

import pytest

from llmpy.cli import main
from llmpy.config import SamplingConfig
from llmpy.formats.tokenizer import Tokenizer, write_tokenizer
from llmpy.generate import generate, sampling_rng
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.tensors import PARAMS, Tensors

from ..tiny_run import CHARACTERS, CONFIG, TOKENIZER, write_model


def command(model, *words):
    return ["generate", model, "--backend", "numpy", *words]


@pytest.fixture
def model(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.bin", TOKENIZER)
    return write_model(tmp_path / "model.bin")


def continuation(prompt, n, seed=42, dtype="float32", **how):
    """The text that the definition gives, from the model's own logits."""
    reference = GPT2(CONFIG, "numpy", dtype)
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


def test_dtype_reaches_the_model(model, capfdbinary):
    words = ["-n", "400", "--temperature", "0.7"]
    assert main(command(model, "--dtype", "bfloat16", *words)) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == continuation("", 400, dtype="bfloat16", temperature=0.7)
    assert out.decode() != continuation("", 400, temperature=0.7)
    assert b", matrix products of bfloat16\n" in err


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


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_a_prompt_file_without_end(model, capfd):
    assert main(command(model, "--prompt-file", "/dev/zero")) == 1
    assert capfd.readouterr().err == (
        "llmpy generate: /dev/zero: content goes on after 67,108,864 bytes, expected at most so"
        " many\n"
    )


def test_a_character_that_the_vocabulary_lacks(model, tmp_path, capfd):
    what = (
        "character 2 (line 1, column 3) is '7' (U+0037), expected one of the 30 in the vocabulary"
    )
    assert main(command(model, "--prompt", "ab7")) == 2
    assert capfd.readouterr().err == f"llmpy generate: --prompt: {what}\n"
    path = tmp_path / "prompt.txt"
    path.write_text("ab7")
    assert main(command(model, "--prompt-file", str(path))) == 1
    assert capfd.readouterr().err == f"llmpy generate: {path}: {what}\n"


def test_no_vocabulary(tmp_path, capfd):
    model = write_model(tmp_path / "alone.bin")
    assert main(command(model)) == 2
    assert capfd.readouterr().err == (
        f"llmpy generate: {model}: vocab_size is 30, and there is no {tmp_path}/tokenizer.bin."
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
