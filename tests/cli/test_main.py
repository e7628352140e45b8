"""The command line: each refusal whole, exit statuses, what is written and where."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from llmpy.cli import COMMANDS, exit_status, main, one_line
from llmpy.cli.flags import read_value
from llmpy.config import GenerateConfig, TrainConfig
from llmpy.errors import BackendError, FormatError, NonFiniteError, OrderError, UsageError
from llmpy.formats.checkpoint import read_checkpoint
from llmpy.rng import init_params
from llmpy.webgpu import adapters

from ..tiny_run import CONFIG, write_model
from ..webgpu.fakes import DISCRETE, LLVMPIPE, wgpu_of

PYTHON = [sys.executable, "-W", "error", "-m", "llmpy"]


MODELS = (
    "a model FILE.bin or one of baby, d6, d12, d24, d36, d48, d60, d72, d84, gpt3:c384, gpt3:c768,"
    " gpt3:c1024, gpt3:c1536, gpt3:c2048, gpt3:c2560, gpt3:c4096, gpt3:c12288"
)
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
        ("info --nope", "llmpy info: unrecognized arguments: --nope"),
        ("info -hm.bin x", "llmpy info: unrecognized arguments: -hm.bin"),
        ("info -- --m.bin", "llmpy info: --m.bin: No such file or directory"),
        ("train --steps", "llmpy train: --steps has no value, expected one behind it"),
        ("train --out --lr 1", "llmpy train: --out has no value, expected one behind it"),
        ("train --steps 1.5", "llmpy train: --steps is 1.5, expected a whole number"),
        ("train --steps 1_000", "llmpy train: --steps is 1_000, expected a whole number"),
        ("train --steps \u0663", "llmpy train: --steps is \u0663, expected a whole number"),
        ("train --steps=", "llmpy train: --steps is , expected a whole number"),
        (f"train --warmup {10**30}", f"llmpy train: --warmup is {10**30}, expected a whole number"),
        ("train --lr 1_0", "llmpy train: --lr is 1_0, expected a number"),
        ("train --lr \u0663", "llmpy train: --lr is \u0663, expected a number"),
        ("train --lr 1e400", "llmpy train: --lr is inf, expected a number of at least 0"),
        ("train --lr -NaN", "llmpy train: --lr is nan, expected a number of at least 0"),
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
        (
            "train --backend numpy --batch-size 100000",
            "llmpy train: the plays that come with llmpy: 1,124,397 tokens, expected at least"
            " 6,400,001, because a batch takes B*T = 100000*64 and its last target one more",
        ),
        ("train --out=", "llmpy train: --out is empty, expected a DIR"),
        ("train --init=", "llmpy train: --init is empty, expected a MODEL"),
        ("generate m.bin --tokenizer=", "llmpy generate: --tokenizer is empty, expected a FILE"),
        ("train --recompute 3", "llmpy train: --recompute is 3, expected 0, 1 or 2"),
        ("train -r -1", "llmpy train: --recompute is -1, expected 0, 1 or 2"),
        (
            "train --backend webgpu --dtype bfloat16",
            "llmpy train: --dtype is bfloat16 with --backend webgpu, expected float32."
            " Use --backend cpu.",
        ),
        (
            "verify m.bin s.bin --adapter 0 --backend numpy",
            "llmpy verify: --adapter is given with --backend numpy, expected --backend webgpu",
        ),
        ("generate m.bin --adapter=", "llmpy generate: --adapter is empty, expected a NAME|INDEX"),
        (
            "info",
            "llmpy info: neither FILE nor --adapters is given, expected one of them",
        ),
        (
            "info m.bin --adapters",
            "llmpy info: FILE and --adapters are both given, expected one of them",
        ),
        (
            "train --backend numpy --threads 2",
            "llmpy train: --threads is given with --backend numpy, expected --backend cpu",
        ),
        ("train --threads 0", "llmpy train: --threads is 0, expected at least 1"),
        (
            "train --backend numpy --init d7",
            f"llmpy train: --init is d7, expected {MODELS}",
        ),
        (
            "train --backend numpy --init no.bin",
            "llmpy train: no.bin: No such file or directory",
        ),
        (
            "train --backend numpy --init .",
            "llmpy train: --init is ., which is a folder: those of Hugging Face are not built"
            f" yet, expected {MODELS}",
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
            "llmpy bench: --workload is big, expected one of 124m-t64, 124m-t256, 124m-t1024,"
            " char-384, baby",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_out_is_one_line_and_status_2(words, message, folder, capfd):
    assert main(words.split()) == 2
    out, err = capfd.readouterr()
    assert err == message + "\n"
    assert out == ""
    assert list(folder.iterdir()) == []


def test_a_file_whose_name_begins_with_a_dash(folder, capfd):
    write_model(folder / "-m.bin")
    assert main(["info", "-m.bin"]) == 2
    assert capfd.readouterr().err == (
        "llmpy info: unrecognized arguments: -m.bin. The file of this name is ./-m.bin\n"
    )
    assert main(["info", "./-m.bin"]) == main(["info", "--", "-m.bin"]) == 0


def test_empty_words(folder, capfd):
    for words, message in (
        (["train", ""], "llmpy train: unrecognized arguments: ''\n"),
        (["train", "a b", "c"], "llmpy train: unrecognized arguments: 'a b' c\n"),
        (["info", ""], "llmpy info: file: path is empty, expected any file of llm.c\n"),
        (["generate", ""], "llmpy generate: model: path is empty, expected model FILE.bin\n"),
    ):
        assert main(words) == 2
        assert capfd.readouterr().err == message


def test_numbers_as_they_may_be_spelled():
    text, real = GenerateConfig.__dataclass_fields__["n"], TrainConfig.__dataclass_fields__["lr"]
    assert [read_value(text, int, word) for word in ("0", "+7", "-5", "007")] == [0, 7, -5, 7]
    words = ("1", "+1.", "-.5", "1e-3", "1E3", "1.5e+2", "inf", "-Infinity")
    values = [1, 1, -0.5, 1e-3, 1e3, 150, np.inf, -np.inf]
    assert [read_value(real, float, word) for word in words] == values


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
            OSError(errno.ENOSPC, "x"), OSError(errno.EFBIG, "x"), FormatError("x"),
            NonFiniteError("x"), BackendError("x"), OrderError("x"), MemoryError(), KeyError("x"),
        )
    ] == [2, 2, 2, 1, 1, 1, 1, 1, 1, 1, None]  # fmt: skip


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
    assert "--lr F largest learning rate; default 0.0003" in out
    assert "cosine, linear, constant, wsd; default cosine" in out
    assert "optimizer steps; default one pass over the data" in out
    assert " None" not in out
    assert "the baby recipe: --batch-size 12, --seq-len 64, --steps 2000, --lr 0.001" in out


def test_version(capfd):
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("llmpy 0.")


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


def test_info_of_adapters(capfd, monkeypatch):
    monkeypatch.setattr(adapters, "import_wgpu", wgpu_of(DISCRETE, LLVMPIPE))
    assert main(["info", "--adapters"]) == 0
    out, err = capfd.readouterr()
    assert [line for line in out.splitlines() if line[0] != " "] == [
        "0  Big 40", "1  llvmpipe (LLVM 15)"
    ]  # fmt: skip
    assert err == ""


def test_no_gpu_is_one_line_and_status_1(files, capfd, monkeypatch):
    commands = (
        "info --adapters", "train --backend webgpu", "train --adapter 0",
        "generate model.bin --backend webgpu", "verify model.bin s.bin --backend webgpu",
        "bench --backend webgpu",
    )  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(adapters, "import_wgpu", wgpu_of())
        for words in commands:
            assert main(words.split()) == 1
            who = f"llmpy {words.split()[0]}"
            assert capfd.readouterr() == ("", f"{who}: {adapters.NO_ADAPTER}\n")
    monkeypatch.setitem(sys.modules, "wgpu", None)
    for words in commands:
        assert main(words.split()) == 1
        who = f"llmpy {words.split()[0]}"
        told = f"{who}: webgpu: wgpu is not installed. Run: {adapters.INSTALL}\n"
        assert capfd.readouterr() == ("", told)


def test_a_software_adapter_is_announced_and_auto_leaves_it(files, capfd, monkeypatch):
    monkeypatch.setattr(adapters, "import_wgpu", wgpu_of(LLVMPIPE))
    monkeypatch.setattr(adapters, "GPU_FILES", ("/",))
    words = [word for word in files if word not in ("--backend", "numpy")]
    assert main([*words, "--steps", "1"]) == 0
    first = capfd.readouterr().err.splitlines()[0]
    assert first.startswith("backend cpu: Numba ")
    assert first.endswith(" (auto: llvmpipe (LLVM 15) (Vulkan) is software)")


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


def test_verify_in_bfloat16_says_what_it_allows(files, folder, capfd):
    write_model(folder / "calm.bin", memory=init_params(CONFIG, 1))
    words = "dump calm.bin --tokens train.bin --batch-size 2 --seq-len 8 --state s.bin"
    assert main(words.split()) == 0
    words = [*VERIFY, "calm.bin", "s.bin", "--dtype", "bfloat16"]
    assert main(words) == 0
    assert "allowed in bfloat16: logits 1, loss 0.05, gradients 0.02 " in capfd.readouterr().err
    assert main([*words, "--tolerance", "1e-6"]) == 1
    assert "allowed in bfloat16" not in capfd.readouterr().err


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


def test_a_check_whose_reader_left_is_not_passed(files, folder, capfd, monkeypatch):
    words = "dump model.bin --tokens train.bin --batch-size 2 --seq-len 8 --state s.bin"
    assert main(words.split()) == 0
    capfd.readouterr()

    def leave(text):
        raise BrokenPipeError

    monkeypatch.setattr("llmpy.cli.verify.write", leave)
    monkeypatch.setattr("llmpy.cli.close_stdout", lambda: None)
    assert main([*VERIFY, "model.bin", "s.bin"]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == "llmpy verify: stdout was closed by its reader"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "who"),
    [
        (["info", "model.bin"], "llmpy info"),
        (["train", "--help"], "llmpy train"),
        (["--help"], "llmpy"),
    ],
)
def test_a_full_disk_behind_stdout(files, words, who):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PYTHON, *words], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == f"{who}: stdout: No space left on device\n"


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
