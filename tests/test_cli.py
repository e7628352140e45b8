"""The command line: each refusal whole, exit statuses, what is written and where."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from llmpy import training
from llmpy.cli import COMMANDS, exit_status, main, one_line
from llmpy.errors import BackendError, FormatError, NonFiniteError, OrderError, UsageError
from llmpy.formats.checkpoint import read_checkpoint, read_checkpoint_config
from llmpy.formats.tokenizer import read_tokenizer
from llmpy.formats.tokens import write_tokens
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.run_folder import read_log

from .tiny_run import CONFIG, TOKENIZER, write_files, write_model

PYTHON = [sys.executable, "-W", "error", "-m", "llmpy"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder, rng):
    """The arguments of a tiny training run of 3 steps on the reference."""
    words = write_files(folder, rng)
    return ["train", *words, "--batch-size", "2", "--steps", "3", "--sample-every", "0"]


VERIFY = ["verify", "--backend", "numpy", "--steps", "2"]

# refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "",
            "llmpy: no command is given, expected one of train, verify, dump, generate, info,"
            " bench. See llmpy --help.",
        ),
        (
            "tain",
            "llmpy: command is tain, expected one of train, verify, dump, generate, info,"
            " bench. See llmpy --help.",
        ),
        (
            "eval m.bin",
            "llmpy: eval is not built yet, expected one of train, verify, dump, generate, info,"
            " bench",
        ),
        ("train --foo", "llmpy train: unrecognized arguments: --foo"),
        ("train --st=3", "llmpy train: unrecognized arguments: --st=3"),
        ("train stray", "llmpy train: unrecognized arguments: stray"),
        ("train --steps", "llmpy train: --steps has no value, expected one behind it"),
        ("train --out --lr 1", "llmpy train: --out has no value, expected one behind it"),
        ("train --steps 1.5", "llmpy train: --steps is 1.5, expected a whole number"),
        ("train --lr fast", "llmpy train: --lr is fast, expected a number"),
        ("train --lr -1e-3", "llmpy train: --lr is -0.001, expected a number of at least 0"),
        ("train -l -1", "llmpy train: --lr is -1, expected a number of at least 0"),
        (
            "train --schedule cos",
            "llmpy train: --schedule is cos, expected one of cosine, linear, constant, wsd",
        ),
        ("train --batch-size 0", "llmpy train: --batch-size is 0, expected at least 1"),
        ("train --seq-len 0", "llmpy train: --seq-len is 0, expected at least 1"),
        (
            "train --backend numpy --total-batch-size 512 --batch-size 4 --seq-len 48",
            "llmpy train: --total-batch-size is 512 tokens, expected a multiple of"
            " B*T = 4*48 = 192. The nearest is 576.",
        ),
        (
            "train --backend numpy --seq-len 65",
            "llmpy train: --seq-len is 65, expected at most 64, the model's max_seq_len."
            " The nearest is 64.",
        ),
        ("train --recompute 2", "llmpy train: --recompute 2 is not built yet, expected 0"),
        ("train -r 1", "llmpy train: --recompute 1 is not built yet, expected 0"),
        (
            "train --backend webgpu",
            "llmpy train: --backend webgpu is not built yet, expected cpu or numpy",
        ),
        (
            "train --dtype bfloat16",
            "llmpy train: --dtype bfloat16 is not built yet, expected float32",
        ),
        (
            "train --backend numpy --threads 2",
            "llmpy train: --threads is given with --backend numpy, expected --backend cpu",
        ),
        ("train --threads 0", "llmpy train: --threads is 0, expected at least 1"),
        (
            "train --backend numpy --init d7",
            "llmpy train: descriptor is 'd7', expected one of baby, d6, d12, d24, d36, d48, d60,"
            " d72, d84, gpt3:c384, gpt3:c768, gpt3:c1024, gpt3:c1536, gpt3:c2048, gpt3:c2560,"
            " gpt3:c4096, gpt3:c12288",
        ),
        (
            "train --backend numpy --init no.bin",
            "llmpy train: no.bin: No such file or directory",
        ),
        (
            "train --backend numpy --init .",
            "llmpy train: --init is ., which is a folder, expected a model FILE.bin or a name"
            " like d12",
        ),
        (
            "train --backend numpy --init d6",
            "llmpy train: --train-data is not given, and its default"
            " dev/data/tinyshakespeare/tiny_shakespeare_train.bin is missing",
        ),
        (
            "train --backend numpy --init d6 --train-data no*.bin",
            "llmpy train: no*.bin: no such file, and as a pattern it matches none",
        ),
        ("generate", "llmpy generate: the following arguments are required: model"),
        ("generate no.bin --backend numpy", "llmpy generate: no.bin: No such file or directory"),
        ("info no.bin", "llmpy info: no.bin: No such file or directory"),
        ("dump m.bin", "llmpy dump: --tokens is not given, expected a token file"),
        (
            "bench --workload big",
            "llmpy bench: --workload is big, expected one of 124m-t64, 124m-t1024, char-384,"
            " baby",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_out_is_one_line_and_status_2(words, message, folder, capfd):
    assert main(words.split()) == 2
    out, err = capfd.readouterr()
    assert err == message + "\n"
    assert out == ""
    assert list(folder.iterdir()) == []


def test_what_is_not_built_is_refused(folder, capfd):
    for command in COMMANDS:
        for flag in command.not_built:
            assert main([command.name, flag, "1"]) == 2
            assert capfd.readouterr().err == f"llmpy {command.name}: {flag} is not built yet\n"
    for words in ("-y 1", "-nk 5", "-h 1", "-sl 3"):
        assert main(["train", *words.split()]) == 2
        assert capfd.readouterr().err.endswith(" is not built yet\n")


def test_statuses_of_errors():
    assert [
        exit_status(e)
        for e in (
            UsageError("x"), FileNotFoundError(2, "x"), PermissionError(13, "x"),
            OSError(28, "No space left on device"), FormatError("x"), NonFiniteError("x"),
            BackendError("x"), OrderError("x"), MemoryError(), KeyError("x"),
        )
    ] == [2, 2, 2, 1, 1, 1, 1, 1, 1, None]  # fmt: skip


def test_errors_are_one_line():
    assert one_line(OSError(13, "Permission denied", "a.bin")) == "a.bin: Permission denied"
    assert one_line(MemoryError()) == "memory does not suffice"
    assert one_line(FormatError("a\n  b")) == "a b"


def test_debug_shows_the_traceback_as_well(folder, capfd):
    assert main(["info", "no.bin", "--debug"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("llmpy info: no.bin: No such file or directory\n")


# help


def test_help_is_ascii_and_complete(capfd):
    with contextlib.suppress(SystemExit):
        assert main(["--help"]) == 0
    out = capfd.readouterr().out
    assert out.isascii()
    assert all(f"    {c.name} " in out for c in COMMANDS)
    for command in COMMANDS:
        assert main([command.name, "-h"]) == 0
        out = capfd.readouterr().out
        assert out.isascii()
        assert out.startswith(f"usage: llmpy {command.name} ")


def test_help_has_the_defaults(capfd):
    main(["train", "--help"])
    out = " ".join(capfd.readouterr().out.split())
    assert "--lr F largest learning rate (0.0003)" in out
    assert "cosine, linear, constant, wsd (cosine)" in out
    assert "the baby recipe: --batch-size 12, --seq-len 64, --steps 2000, --lr 0.001" in out


def test_version(capfd):
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("llmpy 0.")


# train


def test_lines_on_stdout_and_nothing_on_disk(files, folder, capfd):
    before = sorted(folder.rglob("*"))
    assert main(files) == 0
    out, err = capfd.readouterr()
    starts = ["val loss ", "step    1/3 ", "step    2/3 ", "step    3/3 ", "val loss "]
    starts += ["total average iteration time: "]
    for line, start in zip(out.splitlines(), starts, strict=True):
        assert line.startswith(start)
    assert err.splitlines() == [
        f"backend numpy: the NumPy reference, NumPy {np.__version__}",
        "model: L 1, NH 2, C 8, maxT 16, V 30, 2,040 parameters; 3 steps of 32 tokens",
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
    assert capfd.readouterr().err.splitlines()[2:] == [
        "wrote runs/a/model_00000002.bin",
        "wrote runs/a/model_00000003.bin",
        "wrote runs/a/loss.png",
    ]


def test_without_matplotlib_a_line_tells_how_to_get_it(files, folder, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*files, "--out", "a"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == (
        "no loss.png: matplotlib is not installed. pip install 'llmpy[plot]' gets it."
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


def test_weights_are_those_of_the_library(files, folder):
    """The command's result is what the parts give, called by hand."""
    words = ["--out", "a", "--lr", "0.01", "--weight-decay", "0.1", "--no-shuffle"]
    assert main([*files, *words]) == 0
    from llmpy.formats.tokens import TokenFile

    model = GPT2(CONFIG, "numpy")
    model.backend.upload(model.params.memory, init_params(CONFIG, 1) * 8)
    with TokenFile(folder / "train.bin") as file:
        for step in range(3):
            batch = file.read(32 * step, 33)
            model.forward_backward(batch[:-1].reshape(2, 16), batch[1:].reshape(2, 16))
            scale = min(1.0, 1 / model.grad_norm())
            model.update(0.01, 0.9, 0.95, 1e-8, 0.1, step + 1, grad_scale=scale, decay="2d")
    _, memory = read_checkpoint(folder / "a" / "model_00000003.bin")
    np.testing.assert_array_equal(memory, model.params.memory)


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


def test_llmc_flags_work_whole(files, folder, capfd):
    words = (
        "train -e model.bin -i train.bin -j val.bin -b 1 -t 8 -d 32 -l 0.001 -v 0 -s 0 -x 2"
        " -u 1 -q 0.5 -c 0.1 -r 0 -f 0 -y 0 -n 0 -o a --backend numpy"
    )
    assert main(words.split()) == 0
    out, err = capfd.readouterr()
    assert out.count("step ") == 2
    assert "note: -f 0 has no effect: there is no TF32 here: matmuls are float32\n" in err
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
        "llmpy train: train: loss is nan and gradient norm nan at step 1, expected finite"
        " numbers. Nothing was updated or written."
    )
    assert not list((folder / "a").glob("model_*"))


def test_too_large_a_batch_is_refused_with_the_gigabytes(folder, capfd, monkeypatch):
    monkeypatch.setattr("llmpy.memory.available_bytes", lambda: 24 * 10**9)
    write_tokens(folder / "big.bin", np.zeros(70_000, np.int32))
    words = "train --backend numpy --init d12 --batch-size 64 --train-data big.bin --out a"
    assert main(words.split()) == 2
    err = capfd.readouterr().err
    # 16 C a token and layer of activations alone: 64 * 1024 * 12 * 16 * 768 * 4 bytes = 38.7 GB
    assert err.startswith("llmpy train: train: B=64 and T=1024 needs ")
    assert 40 < float(err.split(" needs ")[1].split()[0]) < 60
    assert err.endswith("expected at most the 24.0 GB of memory that are available here\n")
    assert not (folder / "a").exists()


# train, the baby recipe


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


def test_baby_on_data_with_a_vocabulary_beside_it(files, folder, capfd):
    words = "train --backend numpy --train-data train.bin --steps 1 --batch-size 1 --seq-len 8"
    assert main([*words.split(), "--sample-every", "0", "--init", "baby"]) == 0
    err = capfd.readouterr().err
    assert "tokenizer: tokenizer.bin\n" in err
    assert "V 30, " in err


# verify, dump, info


def test_info(files, capfd):
    assert main(["info", "model.bin"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("model.bin: a checkpoint (magic number 20240326), version 3\n")
    assert "num_parameters     2,040\n" in out


def test_info_of_a_foreign_file(folder, capfd):
    (folder / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    assert main(["info", "x.png"]) == 1
    assert "a PNG image" in capfd.readouterr().err


def test_dump_and_verify(files, folder, capfd):
    words = "dump model.bin --tokens train.bin --batch-size 2 --seq-len 8 --state s.bin"
    assert main([*words.split(), "--npz", "s.npz"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", "wrote s.bin\nwrote s.npz\n")
    with np.load(folder / "s.npz") as arrays:
        assert arrays["logits"].shape == (2, 8, 128)
    assert main([*VERIFY, "model.bin", "s.bin"]) == 0
    out = capfd.readouterr().out
    assert out.splitlines()[-1] == "overall okay: 1"
    write_model(folder / "other.bin", seed=2)
    assert main([*VERIFY, "other.bin", "s.bin"]) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "overall okay: 0"


# processes of their own


def environment(**changes):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **changes}


def test_any_console_gets_utf8(files, folder):
    words = ["generate", "model.bin", "--backend", "numpy", "--prompt", "h\u00e9", "-n", "3"]
    for changes in (
        {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done = subprocess.run(
            [*PYTHON, *words], capture_output=True, env=environment(**changes), check=True
        )
        assert done.stdout.decode("utf-8").startswith("h\u00e9")
        missing = subprocess.run(
            [*PYTHON, "info", "n\u00e9\u4e2d.bin"],
            capture_output=True, env=environment(**changes), check=False,
        )  # fmt: skip
        assert missing.returncode == 2
        assert missing.stderr.count(b"\n") == 1
        assert b"No such file" in missing.stderr


def test_a_reader_that_leaves_ends_it_quietly(files):
    words = [*PYTHON, "generate", "model.bin", "--backend", "numpy", "-n", "100000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"backend numpy: ")


def test_training_stops_with_its_reader(files, folder):
    words = [*PYTHON, *files, "--steps", "1000000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr is not None
        last = process.stderr.read().decode().splitlines()[-1]
    assert last == "llmpy train: stdout was closed by its reader"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(files):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PYTHON, "info", "model.bin"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "llmpy info: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_signals_leave_whole_files(files, folder, number, status, word):
    words = [*PYTHON, *files, "--steps", "1000000", "--out", "a", "--checkpoint-every", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(folder.glob("a/DONE_*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert err.decode().splitlines()[-1] == f"llmpy train: {word}"
    assert b"Traceback" not in err
    for path in (folder / "a").glob("DONE_*"):
        read_checkpoint(folder / "a" / f"model_{path.name[5:]}.bin")
    assert not list((folder / "a").glob("*.tmp")) + list((folder / "a").glob(".*"))
