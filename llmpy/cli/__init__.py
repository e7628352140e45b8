"""The command line: which subcommands there are, and exit statuses.

    0    done
    1    failed on the content of a file, or during the work
    2    cannot be carried out as given: usage, a missing or unwritable path
    130  interrupted (SIGINT); 143 terminated (SIGTERM)

Each subcommand is a module here: its flags, and what it prints. Results, llm.c's lines and
generated text go to stdout, as UTF-8; everything else to stderr.
"""

import errno
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version

from ..console import STDOUT, close_stdout, note, write
from ..errors import BackendError, FormatError, NonFiniteError, OrderError, UsageError
from .bench import BENCH
from .dump import DUMP
from .flags import (
    Parser,
    add_command,
    join_values,
    read_values,
    refuse_not_built,
    refuse_unknown,
)
from .generate import GENERATE
from .info import INFO
from .llmc_flags import translate
from .signals import Terminated, signals_raise
from .train import TRAIN
from .verify import VERIFY

COMMANDS = (TRAIN, VERIFY, DUMP, GENERATE, INFO, BENCH)
LATER = ("eval", "prepare", "convert")

FAILED, UNUSABLE = 1, 2  # exit statuses


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
        with signals_raise():
            return _dispatch(argv)
    except BrokenPipeError:
        close_stdout()
        if argv[:1] not in (["train"], ["verify"]):  # whose status says how the work ended
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
        if isinstance(error, OSError) and error.filename == STDOUT:
            close_stdout()  # what is left in its buffer can't be written either
        if status is not None:
            note(f"{who}: {one_line(error).removeprefix(f'{who.split()[-1]}: ')}")  # not twice
        return FAILED if status is None else status


def exit_status(error: Exception) -> int | None:
    """Give the status for an error that is told in one line; None for a mistake of ours."""
    if isinstance(error, UsageError):
        return UNUSABLE
    if isinstance(error, OSError):
        during_work = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        return FAILED if error.errno in during_work else UNUSABLE
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


def _dispatch(argv: list[str]) -> int:
    parser = build_parser()
    if argv[:1] == ["--version"]:
        write(f"llmpy {version('llmpy')}\n")
        return 0
    names = ", ".join(c.name for c in COMMANDS)
    if argv and argv[0] in LATER:
        raise UsageError(f"{argv[0]} is not built yet, expected one of {names}")
    command = next((c for c in COMMANDS if argv[:1] == [c.name]), None)
    if command is None:
        if any(word in ("-h", "--help") for word in argv):
            write(parser.format_help())
            return 0
        what = f"command is {argv[0]}" if argv else "no command is given"
        raise UsageError(f"{what}, expected one of {names}. See llmpy --help.")
    words = join_values(command, argv[1:])
    notes: list[str] = []
    if command is TRAIN:
        words, notes = translate(words)
    refuse_not_built(command, words)
    refuse_unknown(command, words)
    try:
        given, more = parser.parse_known_args([command.name, *words])
    except SystemExit as done:  # help
        return int(done.code or 0)
    if more:
        raise UsageError(f"unrecognized arguments: {' '.join(map(shlex.quote, more))}")
    for text in notes:
        note(f"note: {text}")
    return command.run(read_values(command, vars(given)))
