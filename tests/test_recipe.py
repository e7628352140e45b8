"""`llmpy train --recipe train_gpt2.c` against the C program's main, written out with plain ops."""

import re

import numpy as np
import pytest

from llmpy.cli import main
from llmpy.formats.checkpoint import write_checkpoint
from llmpy.formats.tokenizer import Tokenizer, write_tokenizer
from llmpy.model import GPT2
from llmpy.recipe import printable, softmax
from llmpy.rng import init_params, random_f32
from llmpy.sizes import GPT2Config

from .tiny_run import int32_file

SIZES = GPT2Config(max_seq_len=64, vocab_size=40, num_layers=1, num_heads=2, channels=8)
EOT = 39
TABLE = [bytes([i]) for i in range(30)] + [b"the", b" a\xc3", b"\xa9", b"\x80", b"a\0b"]
TABLE += [b"xyz", b" ", b"\x7f", b"Q", b"<|endoftext|>"]


def seed_main(train, val, steps, table, lr=1e-4, decay=0.0, B=4, T=64):
    """The C program's main: whole buffers, token after token; the time is left out."""
    model = GPT2(SIZES, "numpy")
    model.backend.upload(model.params.memory, init_params(SIZES, 5) * 6)
    position = {"train": 0, "val": 0}

    def next_batch(name, data):
        if position[name] + B * T + 1 > len(data):
            position[name] = 0
        at = position[name]
        position[name] += B * T
        batch = np.array(data[at : at + B * T + 1], np.int32)
        return batch[:-1].reshape(B, T), batch[1:].reshape(B, T)

    out = b""
    state = 1337
    for step in range(steps):
        if step % 10 == 0:
            position["val"] = 0
            loss = sum(model.forward(*next_batch("val", val)) for _ in range(5)) / 5
            out += b"val loss %f\n" % loss
        if step > 0 and step % 20 == 0:
            buffer = np.full((B, T), EOT, np.int32)
            out += b"generating:\n---\n"
            for t in range(1, 64):
                logits = model.forward(buffer)[0, t - 1].astype(np.float64)
                p = np.exp(logits - logits.max())
                p /= p.sum()
                state, coin = random_f32(state)
                token = int(np.argmax(np.cumsum(p) > coin))
                buffer[0, t] = token
                out += b"%d " % token if table is None else c_printf(table[token])
            out += b"\n---\n"
        x, y = next_batch("train", train)
        loss = model.forward(x, y)
        model.zero_grad()
        model.backward()
        model.update(lr, 0.9, 0.999, 1e-8, decay, step + 1)
        out += b"step %d: train loss %f (took X ms)\n" % (step, loss)
    return out


def c_printf(piece):
    if len(piece) == 1 and not (chr(piece[0]).isascii() and (32 <= piece[0] < 127)):
        return piece if piece in b"\t\n\v\f\r" else b""
    return piece.split(b"\0")[0]


def without_times(out):
    return re.sub(rb"took [0-9.]+ ms", b"took X ms", out)


@pytest.fixture
def files(tmp_path, rng):
    write_checkpoint(tmp_path / "model.bin", SIZES, init_params(SIZES, 5) * 6, version=1)
    write_tokenizer(tmp_path / "tokenizer.bin", Tokenizer(TABLE, eot=EOT))
    data = [rng.integers(0, 40, n) for n in (3 * 256 + 1, 700)]
    int32_file(tmp_path / "train.bin", data[0])
    int32_file(tmp_path / "val.bin", data[1])
    words = [
        "train", "--recipe", "train_gpt2.c", "--backend", "numpy",
        "--init", str(tmp_path / "model.bin"), "--tokenizer", str(tmp_path / "tokenizer.bin"),
        "--train-data", str(tmp_path / "train.bin"), "--val-data", str(tmp_path / "val.bin"),
    ]  # fmt: skip
    return words, data


def same_but_rounding(got, want):
    """Compare line by line; numbers with a point within 2 of the last digit that is printed."""
    got, want = got.split(b"\n"), want.split(b"\n")
    assert len(got) == len(want)
    number = re.compile(rb"\d+\.\d{6}")
    for a, b in zip(got, want, strict=True):
        assert number.sub(b"#", a) == number.sub(b"#", b)
        for x, y in zip(number.findall(a), number.findall(b), strict=True):
            assert abs(float(x) - float(y)) < 2.5e-6


def test_the_main_of_the_seed(files, capfdbinary):
    words, (train, val) = files
    assert main(words) == 0
    out, err = capfdbinary.readouterr()
    head = (
        b"[GPT-2]\nmax_seq_len: 64\nvocab_size: 40\nnum_layers: 1\nnum_heads: 2\nchannels: 8\n"
        b"num_parameters: 1720\ntrain dataset num_batches: 3\nval dataset num_batches: 2\n"
    )
    # (C (V + maxT) + 12 C^2 + 13 C + 2 C): wte, wpe, a layer, the last layernorm
    assert 8 * (40 + 64) + 12 * 64 + 13 * 8 + 2 * 8 == 1720
    assert out.startswith(head)
    rest = out.removeprefix(head)
    line, rest = rest.split(b"\n", 1)
    assert line == b"num_activations: %d" % count_activations()
    same_but_rounding(without_times(rest), seed_main(train, val, 41, TABLE))
    assert err.startswith(b"backend numpy: ")


def test_decay_is_on_all_tensors(files, capfdbinary):
    words, (train, val) = files
    assert main([*words, "--steps", "3", "--lr", "0.01", "--weight-decay", "9"]) == 0
    rest = capfdbinary.readouterr().out.split(b"\n", 10)[10]
    same_but_rounding(without_times(rest), seed_main(train, val, 3, TABLE, lr=0.01, decay=9.0))


def count_activations(B=4, T=64):
    """The 23 tensors of the C program, one after the other."""
    L, C, NH, V = 1, 8, 2, 40
    BT = B * T
    per_layer = (
        BT * C + BT + BT  # ln1
        + BT * 3 * C + BT * C + 2 * B * NH * T * T  # qkv, atty, preatt, att
        + BT * C + BT * C  # attproj, residual2
        + BT * C + BT + BT  # ln2
        + 2 * BT * 4 * C + BT * C + BT * C  # fch, fch_gelu, fcproj, residual3
    )  # fmt: skip
    return BT * C + L * per_layer + BT * C + BT + BT + 2 * BT * V + BT


def test_the_program_of_today(files, capfdbinary):
    words, _ = files
    assert main([*words, "--order", "llm.c", "--steps", "1"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[:9] == [
        "[GPT-2]", "max_seq_len: 64", "vocab_size: 40", "padded_vocab_size: 128",
        "num_layers: 1", "num_heads: 2", "channels: 8", "num_parameters: 2424",
        "train dataset num_batches: 3",
    ]  # fmt: skip
    assert lines[9] == "val dataset num_batches: 2"
    assert lines[10] == f"num_activations: {count_activations() + 2 * 256 * 88}"
    assert lines[11].startswith("val loss ")
    assert lines[12].startswith("step 0: train loss ")
    assert len(lines) == 13


def test_order_is_that_of_the_data(files, capfdbinary, tmp_path, rng):
    """Three batches of one token each: the losses tell which came when."""
    words, _ = files
    data = np.repeat([1, 2, 3], 256)
    int32_file(tmp_path / "train.bin", np.append(data, 3))
    model = GPT2(SIZES, "numpy")
    model.backend.upload(model.params.memory, init_params(SIZES, 5) * 6)
    want = []
    for i in range(3):
        batch = np.append(data, 3)[i * 256 : i * 256 + 257].astype(np.int32)
        want.append(model.forward(batch[:-1].reshape(4, 64), batch[1:].reshape(4, 64)))
    for order, indices in (("seed", [0, 1, 2, 0]), ("llm.c", [*shuffled(3), None])):
        more = ["--order", order, "--steps", "4", "--lr", "0", "--val-every", "0"]
        assert main([*words, *more]) == 0
        out = capfdbinary.readouterr().out.decode()
        losses = [float(x) for x in re.findall(r"train loss ([0-9.]+)", out)]
        for loss, i in zip(losses, indices, strict=True):
            assert i is None or loss == pytest.approx(want[i], abs=2e-6)


def shuffled(n):
    """Fisher and Yates from the end, with numpy's mt19937 of seed 42; one shard draws nothing."""
    draws = np.random.RandomState(42)
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(draws.randint(0, 2**32, dtype=np.uint32)) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def test_a_missing_tokenizer_is_a_warning_and_ids(files, capfdbinary, tmp_path):
    words, (train, val) = files
    path = tmp_path / "tokenizer.bin"
    path.unlink()
    # 39 of V - 1 is the stand-in for end-of-text, which a model of 40 tokens does not have
    assert main([*words, "--steps", "21"]) == 0
    out = capfdbinary.readouterr().out
    warning = (
        b"---\nWARNING: Failed to open the tokenizer file " + bytes(path) + b"\n"
        b"The Tokenizer is a new feature added April 14 2024.\n"
        b"Re-run `python train_gpt2.py` to write it\n---\n"
    )
    before, after = out.split(warning)
    assert before.endswith(b"val dataset num_batches: 2\n")
    after = after.split(b"\n", 1)[1]
    same_but_rounding(without_times(after), seed_main(train, val, 21, None))


def test_a_baby_takes_the_vocabulary_of_its_tokenizer(files, tmp_path, capfd):
    words, _ = files
    words[words.index("--init") + 1] = "baby"
    assert main([*words, "--steps", "0"]) == 0
    assert "vocab_size: 40\n" in capfd.readouterr().out
    (tmp_path / "tokenizer.bin").unlink()
    assert main(words) == 2
    assert capfd.readouterr().err == (
        "llmpy train: --init is baby, whose vocabulary is that of its tokenizer, but"
        f" {tmp_path}/tokenizer.bin is missing. Give --tokenizer.\n"
    )


def test_too_little_memory_is_told_before_the_first_line(files, capfd, monkeypatch):
    words, _ = files
    monkeypatch.setattr("llmpy.footprint.available_bytes", lambda: 10_000_000)
    assert main([*words, "--init", "baby", "--batch-size", "8"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("llmpy train: training with B=8 and T=64 needs ")


def test_nothing_is_written(files, tmp_path, monkeypatch):
    words, _ = files
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--steps", "2"]) == 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "x"], "--out is given with --recipe train_gpt2.c, which has no such thing"),
        (
            ["--grad-clip", "1"],
            "--grad-clip is given with --recipe train_gpt2.c, which has no such thing",
        ),
        (
            ["--seq-len", "65"],
            "--seq-len is 65, expected at most 64, the model's max_seq_len. The nearest is 64.",
        ),
    ],
)
def test_flags_that_mean_nothing(files, capfd, more, message):
    words, _ = files
    assert main([*words, *more]) == 2
    assert capfd.readouterr().err == f"llmpy train: {message}\n"


def test_default_paths(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--recipe", "train_gpt2.c", "--backend", "numpy"]
    assert main(words) == 2
    assert capfd.readouterr().err == "llmpy train: gpt2_124M.bin: No such file or directory\n"
    write_checkpoint("gpt2_124M.bin", SIZES, init_params(SIZES, 5), version=1)
    assert main(words) == 2
    assert capfd.readouterr().err == (
        "llmpy train: --train-data is not given, and its defaults data/tiny_shakespeare_train.bin"
        " and data/TinyStories_train.bin are missing\n"
    )
    (tmp_path / "data").mkdir()
    int32_file("data/TinyStories_train.bin", [1] * 300)
    int32_file("data/tiny_shakespeare_val.bin", [1] * 300)
    assert main([*words, "--steps", "1"]) == 0
    assert "WARNING: Failed to open the tokenizer file gpt2_tokenizer.bin" in capfd.readouterr().out


def test_printable():
    for value in range(1, 256):
        assert printable(bytes([value])) == c_printf(bytes([value]))
    assert printable(b"\0") == b""
    assert printable(b"ab\0c") == b"ab"
    assert printable(b"\x01\x02") == b"\x01\x02"  # only single bytes are looked at
    assert printable(b" \xc3\xa9") == b" \xc3\xa9"


def test_softmax_is_close_to_float64_with_huge_logits(rng):
    logits = (rng.standard_normal(5000) * 30 + 1e4).astype(np.float32)
    want = np.exp(logits.astype(np.float64) - logits.max())
    want /= want.sum()
    got = softmax(logits)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-12)
