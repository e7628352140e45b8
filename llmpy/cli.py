"""The command line: subcommands, what they print, and exit statuses.

    0    done
    1    failed on the content of a file, or during the work
    2    cannot be carried out as given: usage, a missing or unwritable path
    130  interrupted (SIGINT); 143 terminated (SIGTERM)

Results, llm.c's lines and generated text go to stdout, as UTF-8; everything else to stderr.
"""

import contextlib
import errno
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .config import (
    BABY,
    BenchConfig,
    DeviceConfig,
    DumpConfig,
    GenerateConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
    VerifyConfig,
)
from .console import close_stdout, note, write
from .errors import BackendError, FormatError, NonFiniteError, OrderError, UsageError
from .flags import (
    Command,
    Parser,
    add_command,
    flag_of,
    join_values,
    make,
    read_values,
    refuse_not_built,
)

FAILED, UNUSABLE = 1, 2  # exit statuses

_BABY = ", ".join(
    f"{flag_of(name)} {value:g}" if isinstance(value, float) else f"{flag_of(name)} {value}"
    for name, value in vars(BABY).items()
    if value != getattr(TrainConfig(), name)
)

COMMANDS = (
    Command(
        name="train",
        text="Train a model: without --init a small one on the plays that come with llmpy.",
        settings=(RunConfig, TrainConfig, DeviceConfig),
        not_built=(
            "--adapter", "--keep", "--major-every", "--resume", "--skip-loss-z", "--skip-norm-z",
            "--hellaswag", "--config",
        ),
        more=f"""\
Without --init, the baby recipe: {_BABY}, and --out out, which is started over if it holds a run.
With --init, the defaults above, which are llm.c's: T is at most the model's, and files are written
only with --out. --recipe train_gpt2.c has the C program's defaults, and writes no file.
llm.c's own short flags (-i -j -e -o -b -t -d -x -k -l -u -q -c -v -m -s -g -a -n and more) are
taken with llm.c's meaning.""",
    ),
    Command(
        name="verify",
        text="Check a model against a debug state, as llm.c's test_gpt2 does.",
        settings=(VerifyConfig, DeviceConfig),
        positionals={"model": "model FILE.bin", "state": "debug state FILE.bin"},
        not_built=("--adapter",),
    ),
    Command(
        name="dump",
        text="Write what the float64 reference computes: a debug state, or every tensor by name.",
        settings=(DumpConfig,),
        positionals={"model": "model FILE.bin"},
    ),
    Command(
        name="generate",
        text="Continue a text.",
        settings=(GenerateConfig, SamplingConfig, DeviceConfig),
        positionals={"model": "model FILE.bin"},
        not_built=("--adapter",),
        more="""\
The prompt and its continuation go to stdout as UTF-8, and nothing else. An empty prompt starts from
end-of-text, or from a newline where the vocabulary has none. Each token sees the last max_seq_len
before it, so exactly N tokens come. <|endoftext|> in a prompt is ordinary text.""",
    ),
    Command(
        name="info",
        text="Say what a file is.",
        settings=(),
        positionals={"file": "any file of llm.c"},
        not_built=("--adapters",),
    ),
    Command(
        name="bench",
        text="Time training steps.",
        settings=(BenchConfig, DeviceConfig),
        not_built=("--adapter", "--profile", "--peer", "--peer-python"),
    ),
)  # fmt: skip
LATER = ("eval", "prepare", "convert")


class Terminated(BaseException):
    """SIGTERM came."""


def build_parser() -> Parser:
    """Make the parser of all commands."""
    parser = Parser(prog="llmpy", description="GPT-2 training in Python, by hand.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        add_command(subparsers, command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    who, debug = "llmpy", "--debug" in argv
    try:
        if argv and argv[0] in {c.name for c in COMMANDS}:
            who = f"llmpy {argv[0]}"
        with _terminable():
            return _dispatch(argv)
    except BrokenPipeError:
        close_stdout()
        if argv[:1] != ["train"]:
            return 0  # a reader that has enough is no failure
        return _stopped(f"{who}: stdout was closed by its reader", FAILED)
    except KeyboardInterrupt:
        return _stopped(f"{who}: interrupted", 128 + signal.SIGINT)
    except Terminated:
        return _stopped(f"{who}: terminated", 128 + signal.SIGTERM)
    except Exception as error:
        status = exit_status(error)
        if debug or status is None:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:
            close_stdout()  # a full disk, most likely: what is left in its buffer can't be written
        if status is not None:
            note(f"{who}: {one_line(error)}")
        return FAILED if status is None else status


def exit_status(error: Exception) -> int | None:
    """Give the status for an error that is told in one line; None for a mistake of ours."""
    if isinstance(error, UsageError):
        return UNUSABLE
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        return FAILED if full else UNUSABLE
    known = (FormatError, NonFiniteError, BackendError, OrderError, MemoryError)
    return FAILED if isinstance(error, known) else None


def one_line(error: Exception) -> str:
    """Say an error in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError) and not str(error):
        return "memory does not suffice"
    return " ".join(str(error).split())


def _stopped(text: str, status: int) -> int:
    note(text)
    return status


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that a file being written is taken away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _dispatch(argv: list[str]) -> int:
    parser = build_parser()
    if argv[:1] == ["--version"]:
        from importlib.metadata import version

        write(f"llmpy {version('llmpy')}\n")
        return 0
    names = [c.name for c in COMMANDS]
    if argv and argv[0] in LATER:
        raise UsageError(f"{argv[0]} is not built yet, expected one of {', '.join(names)}")
    command = next((c for c in COMMANDS if argv[:1] == [c.name]), None)
    if command is None:
        if any(word in ("-h", "--help") for word in argv):
            write(parser.format_help())
            return 0
        what = f"command is {argv[0]}" if argv else "no command is given"
        raise UsageError(f"{what}, expected one of {', '.join(names)}. See llmpy --help.")
    words = join_values(command, argv[1:])
    notes: list[str] = []
    if command.name == "train":
        from .llmc_flags import translate

        words, notes = translate(words)
    refuse_not_built(command, words)
    try:
        given = vars(parser.parse_args([command.name, *words]))
    except SystemExit as done:  # help
        return int(done.code or 0)
    for text in notes:
        note(f"note: {text}")
    return ACTIONS[command.name](given, read_values(command, given))


def _train(given: dict[str, Any], values: dict[str, Any]) -> int:
    from .device import open_backend
    from .training import run_recipe_command, run_training

    run = make(RunConfig, values)
    settings = {k: v for k, v in values.items() if k in TrainConfig.__dataclass_fields__}
    TrainConfig(**{**settings, "total_batch_size": None})  # what is wrong by itself, first
    backend, line = open_backend(make(DeviceConfig, values))
    if run.recipe is not None:
        return run_recipe_command(run, settings, backend, line)
    return run_training(run, settings, backend, line)


def _verify(given: dict[str, Any], values: dict[str, Any]) -> int:
    from .device import open_backend
    from .verify import verify

    config: VerifyConfig = make(VerifyConfig, values)
    backend, line = open_backend(make(DeviceConfig, values))
    note(line)
    ok = verify(
        given["model"],
        given["state"],
        lambda text: write(text + "\n"),
        steps=config.steps,
        losses_path=config.losses,
        tolerance=config.tolerance,
        backend=backend,
    )
    return 0 if ok else FAILED


def _dump(given: dict[str, Any], values: dict[str, Any]) -> int:
    from .dump import dump

    config: DumpConfig = make(DumpConfig, values)
    if config.tokens is None:
        raise UsageError("--tokens is not given, expected a token file")
    dump(
        given["model"],
        config.tokens,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        state_path=config.state,
        npz_path=config.npz,
    )
    for path in (config.state, config.npz):
        if path is not None:
            note(f"wrote {path}")
    return 0


def _generate(given: dict[str, Any], values: dict[str, Any]) -> int:
    from .device import open_backend
    from .generation import run_generation

    config: GenerateConfig = make(GenerateConfig, values)
    sampling: SamplingConfig = make(SamplingConfig, values)
    backend, line = open_backend(make(DeviceConfig, values))
    return run_generation(given["model"], config, sampling, backend, line)


def _info(given: dict[str, Any], values: dict[str, Any]) -> int:
    from .formats.info import describe_file

    write("".join(line + "\n" for line in describe_file(given["file"])))
    return 0


def _bench(given: dict[str, Any], values: dict[str, Any]) -> int:
    import dataclasses
    import json

    from .bench import bench, check_workload, table
    from .device import open_backend
    from .formats.header import atomic_write

    config: BenchConfig = make(BenchConfig, values)
    device: DeviceConfig = make(DeviceConfig, values)
    check_workload(config.workload)
    _, line = open_backend(device)  # refuses what is not there before the first process starts
    note(line)
    # open before the work, so that a path that can't be written is told at once
    with contextlib.nullcontext() if config.json is None else atomic_write(config.json) as file:
        results = bench(config.workload, device)
        if file is not None:
            rows = [dataclasses.asdict(result) for result in results]
            file.write(json.dumps(rows, indent=2).encode("ascii") + b"\n")
    write(table(results))
    return 0


ACTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any]], int]] = {
    "train": _train,
    "verify": _verify,
    "dump": _dump,
    "generate": _generate,
    "info": _info,
    "bench": _bench,
}
