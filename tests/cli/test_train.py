"""`llmpy train`: what it writes to stdout, stderr and disk, against the library's own parts."""

import os
import sys

import numpy as np
import pytest

from llmpy.cli import main
from llmpy.cli import train as training
from llmpy.formats.checkpoint import read_checkpoint, read_checkpoint_config
from llmpy.formats.tokenizer import read_tokenizer, write_tokenizer
from llmpy.formats.tokens import write_tokens
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.run_folder import read_log

from ..tiny_run import CONFIG, TOKENIZER, write_model


def test_lines_on_stdout_and_nothing_on_disk(files, folder, capfd, monkeypatch):
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr("llmpy.footprint.available_bytes", lambda: 16 * 10**9)
    assert main(files) == 0
    out, err = capfd.readouterr()
    starts = ["val loss ", "step    1/3 ", "step    2/3 ", "step    3/3 ", "val loss "]
    starts += ["total average iteration time: "]
    for line, start in zip(out.splitlines(), starts, strict=True):
        assert line.startswith(start)
    assert err.splitlines() == [
        f"backend numpy: the NumPy reference, NumPy {np.__version__}",
        "model: L 1, NH 2, C 8, maxT 16, V 30, 2,040 parameters",
        "training: 3 steps of 32 tokens, B 2, T 16",
        "memory: 90.1 kB of 16.0 GB: 32.6 kB model, 24.7 kB activations, 32.8 kB scratch",
    ]
    assert sorted(folder.rglob("*")) == before


def test_t_is_the_models_unless_given(files, capfd):
    assert main([*files, "--seq-len", "5"]) == 0
    assert "3 steps of 10 tokens" in capfd.readouterr().err


def test_out_gets_model_log_tokenizer_and_curve(files, folder, capfd):
    assert main([*files, "--out", "runs/a", "--checkpoint-every", "2"]) == 0
    run = folder / "runs" / "a"
    assert sorted(p.name for p in run.iterdir()) == [
        "DONE_00000002", "DONE_00000003", "loss.png", "main.log", "model_00000002.bin",
        "model_00000003.bin", "tokenizer.bin",
    ]  # fmt: skip
    assert read_checkpoint_config(run / "model_00000003.bin") == (CONFIG, 3)
    assert read_tokenizer(run / "tokenizer.bin").token_table == TOKENIZER.token_table
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "DONE_00000003").read_bytes() == b""
    train, validation = read_log(run / "main.log")
    assert [s for s, _ in train] == [0, 1, 2]
    assert [s for s, _ in validation] == [0, 3]
    assert capfd.readouterr().err.splitlines()[4:] == [
        "wrote runs/a/model_00000002.bin",
        "wrote runs/a/model_00000003.bin",
        "wrote runs/a/loss.png",
    ]


def test_without_matplotlib_a_line_tells_how_to_get_it(files, folder, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*files, "--out", "a"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == (
        "no loss.png: matplotlib is not installed. pip install matplotlib gets it."
    )
    assert not (folder / "a" / "loss.png").exists()


def test_an_out_that_holds_a_run_is_refused_and_left_alone(files, folder, capfd):
    assert main([*files, "--out", "a"]) == 0
    before = {p.name: p.read_bytes() for p in (folder / "a").iterdir()}
    capfd.readouterr()
    assert main([*files, "--out", "a"]) == 2
    assert capfd.readouterr().err == (
        "llmpy train: --out is a, which already holds a run (DONE_00000003 and more), expected"
        " a new folder, because --resume is not built yet\n"
    )
    assert {p.name: p.read_bytes() for p in (folder / "a").iterdir()} == before


def test_an_out_that_is_a_file_or_under_one(files, folder, capfd):
    (folder / "f").write_text("mine")
    assert main([*files, "--out", "f"]) == 2
    assert capfd.readouterr().err == (
        "llmpy train: --out is f, which is a file, expected a folder\n"
    )
    assert main([*files, "--out", "f/g"]) == 2
    assert capfd.readouterr().err == (
        f"llmpy train: --out is f/g, but {folder}/f is a file, expected a folder\n"
    )
    assert (folder / "f").read_text() == "mine"


def test_an_out_that_is_not_writable(files, folder, capfd, monkeypatch):
    (folder / "r").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert main([*files, "--out", "r"]) == 2
    assert capfd.readouterr().err == "llmpy train: --out is r, which is not writable\n"
    assert main([*files, "--out", "r/s"]) == 2
    assert capfd.readouterr().err == (
        f"llmpy train: --out is r/s, but folder {folder}/r is not writable\n"
    )


def test_other_files_in_out_stay(files, folder):
    (folder / "a").mkdir()
    (folder / "a" / "notes.txt").write_text("mine")
    assert main([*files, "--out", "a"]) == 0
    assert (folder / "a" / "notes.txt").read_text() == "mine"


def test_a_tokenizer_in_out_is_not_deleted_without_a_run_there(files, folder):
    (folder / "a").mkdir()
    write_tokenizer(folder / "a" / "tokenizer.bin", TOKENIZER)
    (folder / "tokenizer.bin").unlink()  # so the run has none to write
    (folder / "a" / "loss.png").write_text("mine")
    assert main([*files, "--out", "a", "--steps", "0"]) == 0
    assert read_tokenizer(folder / "a" / "tokenizer.bin").token_table == TOKENIZER.token_table
    assert (folder / "a" / "loss.png").read_text() == "mine"


@pytest.mark.parametrize("words", [["--recompute", "1"], ["-r", "2"]])
def test_what_is_made_again_changes_no_bit(files, folder, words, monkeypatch):
    made = []
    from_checkpoint = GPT2.from_checkpoint
    monkeypatch.setattr(
        GPT2, "from_checkpoint", lambda *a, **k: made.append(k) or from_checkpoint(*a, **k)
    )
    assert main([*files, "--out", "a"]) == 0
    assert main([*files, "--out", "b", *words]) == 0
    assert [k["recompute"] for k in made] == [0, int(words[1])]
    name = "model_00000003.bin"
    assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_those_of_the_library(files, folder, dtype):
    """The command's result is what the parts give, called by hand; a float32 file in any case."""
    words = ["--out", "a", "--lr", "0.01", "--weight-decay", "0.1", "--no-shuffle"]
    assert main([*files, *words, "--dtype", dtype]) == 0
    from llmpy.formats.tokens import TokenFile

    model = GPT2(CONFIG, "numpy", dtype)
    model.backend.upload(model.params.memory, init_params(CONFIG, 1) * 8)
    with TokenFile(folder / "train.bin") as file:
        for step in range(3):
            batch = file.read(32 * step, 33)
            model.forward_backward(batch[:-1].reshape(2, 16), batch[1:].reshape(2, 16))
            scale = min(1.0, 1 / model.grad_norm())
            model.update(0.01, 0.9, 0.95, 1e-8, 0.1, step + 1, grad_scale=scale, decay="2d")
    path = folder / "a" / "model_00000003.bin"
    assert read_checkpoint_config(path) == (CONFIG, 3)
    np.testing.assert_array_equal(read_checkpoint(path)[1], model.params.memory)


def test_samples_are_text_and_ids_without_a_vocabulary(files, folder, capfd):
    words = [*files, "--sample-every", "2", "--sample-tokens", "4"]
    assert main(words) == 0
    out = capfd.readouterr().out
    assert out.count("generating:\n---\n") == 2
    (folder / "tokenizer.bin").unlink()
    assert main(words) == 0
    ids = capfd.readouterr().out.split("generating:\n---\n")[1].split("\n---\n")[0]
    assert len([int(i) for i in ids.split()]) == 4


def test_without_validation_data_it_trains_and_says_so(files, capfd):
    at = files.index("--val-data")
    assert main(files[:at] + files[at + 2 :]) == 0
    out, err = capfd.readouterr()
    assert "no validation: --val-data is not given\n" in err
    assert "val loss" not in out


def test_overfit_trains_on_the_validation_data(files, folder, capfd):
    assert main([*files, "--overfit", "--lr", "0"]) == 0
    out = capfd.readouterr().out
    losses = [line.split()[4] for line in out.splitlines() if line.startswith("step")]
    assert len(set(losses)) == 1


def test_overfit_without_validation_data_says_what_it_is_on(files, capfd):
    at = files.index("--val-data")
    assert main([*files[:at], *files[at + 2 :], "--overfit"]) == 0
    assert (
        "overfit: --val-data is not given, so it is on a batch of the training data\n"
        in capfd.readouterr().err
    )


def test_the_order_of_the_seed_is_that_of_the_data(files, capfd):
    """`--order` counts without `--recipe`, too."""

    def losses(*words):
        assert main([*files, "--lr", "0", "--steps", "6", "--val-every", "0", *words]) == 0
        out = capfd.readouterr().out
        return [line.split()[4] for line in out.splitlines() if line.startswith("step")]

    in_order = losses("--no-shuffle")
    assert losses("--order", "seed") == in_order
    assert losses("--order", "llm.c") == losses() != in_order


def test_any_file_that_is_there_can_be_the_start(files, folder, capfd):
    (folder / "model.bin").rename(folder / "weights")
    files[files.index("--init") + 1] = "weights"
    assert main(files) == 0
    (folder / "weights").write_bytes(b"GGUF" + bytes(2000))
    assert main(files) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "llmpy train: weights: content looks like a gguf file, expected a checkpoint (magic"
        " number 20240326)"
    )


def test_positions_that_are_not_trained_are_told(files, capfd):
    assert main([*files, "--seq-len", "5"]) == 0
    assert (
        "--seq-len is 5, below the model's max_seq_len 16: the positions from there on are not"
        " trained\n" in capfd.readouterr().err
    )


def test_a_warmup_that_the_run_does_not_outlast_is_told(files, capfd):
    text = "--warmup is 4, above the 3 steps: the learning rate never reaches --lr 0.0003\n"
    assert main([*files, "--warmup", "4"]) == 0
    assert text in capfd.readouterr().err
    assert main([*files, "--warmup", "3"]) == 0
    assert "warmup" not in capfd.readouterr().err


def test_llmc_flags_work_whole(files, folder, capfd):
    words = (
        "train -e model.bin -i train.bin -j val.bin -b 1 -t 8 -d 32 -l 0.001 -v 0 -s 0 -x 2"
        " -u 1 -q 0.5 -c 0.1 -r 0 -f 0 -y 0 -n 0 -o a --backend numpy"
    )
    assert main(words.split()) == 0
    out, err = capfd.readouterr()
    assert out.count("step ") == 2
    assert (
        "note: -f 0 has no effect: there is no TF32 here; --dtype says what matmuls take\n" in err
    )
    assert "2 steps of 32 tokens" in err
    assert (folder / "a" / "model_00000002.bin").exists()


def test_too_small_data_and_foreign_ids_leave_nothing(files, folder, capfd):
    write_tokens(folder / "train.bin", [1] * 32)
    assert main([*files, "--out", "a"]) == 2
    assert "32 tokens, expected at least 33" in capfd.readouterr().err
    write_tokens(folder / "train.bin", [1] * 40 + [30])
    assert main([*files, "--out", "a"]) == 1
    assert "token 40 is 30, expected 0 to 29" in capfd.readouterr().err
    assert not (folder / "a").exists()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_weight_that_is_nan_exits_1_with_step_and_norm(files, folder, capfd):
    memory = init_params(CONFIG, 1)
    memory[5] = np.nan
    write_model(folder / "model.bin", memory=memory)
    assert main([*files, "--out", "a"]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "llmpy train: loss is nan and gradient norm nan at step 1, expected finite"
        " numbers. Nothing was updated or written."
    )
    assert not list((folder / "a").glob("model_*"))


def test_too_large_a_batch_is_refused_with_the_gigabytes(folder, capfd, monkeypatch):
    monkeypatch.setattr("llmpy.footprint.available_bytes", lambda: 24 * 10**9)
    write_tokens(folder / "big.bin", np.zeros(70_000, np.int32))
    words = "train --backend numpy --init d12 --batch-size 64 --train-data big.bin --out a"
    assert main(words.split()) == 2
    err = capfd.readouterr().err
    # 10 C a token and layer of activations alone: 64 * 1024 * 12 * 10 * 768 * 4 bytes = 24.2 GB
    assert err.startswith("llmpy train: training with B=64 and T=1024 needs ")
    assert 25 < float(err.split(" GB activations")[0].split()[-1]) < 28
    assert "expected at most the 24.0 GB of memory that are available here. --batch-size " in err
    assert not (folder / "a").exists()


def test_memory_is_told_before_it_is_taken(files, capfd, monkeypatch):
    def make_model(*_):
        raise MemoryError

    monkeypatch.setattr(training, "make_model", make_model)
    assert main(files) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-2].startswith("memory: 90.1 kB")
    assert err.splitlines()[-1] == "llmpy train: memory does not suffice"


# the baby recipe


@pytest.fixture
def baby(folder, monkeypatch):
    monkeypatch.setattr(training, "LAST_SAMPLE_TOKENS", 12)
    return [
        "train", "--backend", "numpy", "--steps", "2", "--batch-size", "1", "--seq-len", "16",
        "--val-batches", "1", "--sample-tokens", "3",
    ]  # fmt: skip


def test_the_baby_recipe_leaves_its_files_and_ends_in_a_sample(baby, folder, capfd):
    assert main(baby) == 0
    out, err = capfd.readouterr()
    assert sorted(p.name for p in (folder / "out").iterdir()) == [
        "DONE_00000002", "loss.png", "main.log", "model_00000002.bin", "tokenizer.bin",
    ]  # fmt: skip
    tokenizer = read_tokenizer(folder / "out" / "tokenizer.bin")
    assert tokenizer.is_char
    config, _ = read_checkpoint_config(folder / "out" / "model_00000002.bin")
    assert (config.num_layers, config.num_heads, config.channels) == (4, 4, 128)
    assert (config.max_seq_len, config.vocab_size) == (64, tokenizer.vocab_size)
    last = out.split("total average iteration time: ")[1].split("\n", 2)[2]
    assert len(last) == 13
    assert "earlier run" not in err

    (folder / "out" / "mine.txt").write_text("mine")
    (folder / "out" / "model_00000001.bin").write_text("old")
    assert main(baby) == 0  # out, which is its own, is started over
    assert "out holds an earlier run, which is deleted: starting over\n" in capfd.readouterr().err
    assert not (folder / "out" / "model_00000001.bin").exists()
    assert (folder / "out" / "mine.txt").read_text() == "mine"
    assert main([*baby, "--out", "out"]) == 2  # named by the user, it is not


def test_the_last_tenth_of_the_corpus_validates(baby, folder, capfd):
    from llmpy.data.corpus import corpus_text
    from llmpy.data.vocabulary import char_tokenizer

    assert main([*baby, "--lr", "0", "--val-batches", "3"]) == 0
    loss = float(capfd.readouterr().out.splitlines()[0].split()[2])
    text = corpus_text()
    tokenizer = char_tokenizer(text)
    tail = np.array(tokenizer.encode(text[-(len(text) // 10) :]), np.int32)
    model = GPT2.from_descriptor("baby", 42, tokenizer.vocab_size, "numpy")
    losses = [
        model.forward(tail[None, 16 * i : 16 * i + 16], tail[None, 16 * i + 1 : 16 * i + 17])
        for i in range(3)
    ]
    assert loss == pytest.approx(np.mean(losses), abs=2e-6)


def test_the_baby_overfits_the_first_batch_that_validates(baby, folder, capfd):
    assert main([*baby, "--lr", "0", "--overfit"]) == 0
    lines = capfd.readouterr().out.splitlines()
    validation = float(lines[0].split()[2])
    losses = [float(line.split()[4]) for line in lines if line.startswith("step")]
    assert losses == pytest.approx([validation] * 2, abs=2e-6)


def test_the_baby_overfits_a_batch_of_the_data_that_is_given(baby, folder, capfd):
    write_tokens(folder / "v.bin", [3] * 17)
    assert main([*baby, "--lr", "0", "--overfit", "--val-data", "v.bin"]) == 0
    lines = capfd.readouterr().out.splitlines()
    validation = float(lines[0].split()[2])
    losses = [float(line.split()[4]) for line in lines if line.startswith("step")]
    assert losses == pytest.approx([validation] * 2, abs=2e-6)


def test_baby_on_data_with_a_vocabulary_beside_it(files, folder, capfd):
    words = "train --backend numpy --train-data train.bin --steps 1 --batch-size 1 --seq-len 8"
    assert main([*words.split(), "--sample-every", "0", "--init", "baby"]) == 0
    err = capfd.readouterr().err
    assert "tokenizer: tokenizer.bin\n" in err
    assert "V 30, " in err
