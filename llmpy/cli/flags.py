"""The command line, made from the settings of config.py.

A field `val_every` is the flag `--val-every`; its default and text are the help, its type decides
how the value is read. A field of one letter has a short flag, `-n`. Only flags that are given come
out of the parser, so that defaults may depend on them.

A flag takes the next argument whatever it looks like (`--lr -1`, `--prompt --x`), unless it is
another flag of the command.
"""

import argparse
import dataclasses
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..console import write
from ..errors import UsageError

# how a value is spelled: Python's own readers also take 1_000 and the digits of all scripts; 30
# digits are more than any setting needs, and few enough for what is reckoned with them
NUMBERS = {
    int: (re.compile(r"[+-]?[0-9]{1,30}"), "a whole number"),
    float: (
        re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)", re.I),
        "a number",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand: its words, its arguments, what it does, and what of it is not built yet."""

    name: str
    text: str  # one line
    run: Callable[[Mapping[str, Any]], int]  # values, as of `read_values` -> exit status
    settings: tuple[type, ...] = ()  # dataclasses of config.py
    positionals: Mapping[str, str] = dataclasses.field(default_factory=dict)  # name -> help
    optional: tuple[str, ...] = ()  # positionals that may be left out
    not_built: tuple[str, ...] = ()  # flags
    more: str = ""  # the help's last paragraph


class Parser(argparse.ArgumentParser):
    """argparse, but an error is an exception of one line, and names are never guessed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)

    def print_help(self, file: Any = None) -> None:
        """Write the help as everything is written, so that a full disk is told."""
        write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UsageError(message)


def flag_of(name: str) -> str:
    """Give the flag of a field."""
    return "--" + name.replace("_", "-") if len(name) > 1 else "-" + name


def value_type(setting: type, name: str) -> type:
    """Give the type of a field's value, without its None."""
    hint = typing.get_type_hints(setting)[name]
    if isinstance(hint, types.UnionType):
        (hint,) = (t for t in typing.get_args(hint) if t is not type(None))
    kind: type = hint
    return kind


def add_command(subparsers: Any, command: Command) -> None:
    """Add the parser of a command."""
    parser = subparsers.add_parser(
        command.name, help=command.text, description=command.text, epilog=_wrapped(command.more)
    )
    for name, text in command.positionals.items():
        parser.add_argument(name, help=text, nargs="?" if name in command.optional else None)
    for setting in command.settings:
        title = (setting.__doc__ or "").split(".")[0].strip().lower()
        group = parser.add_argument_group(title)
        for field in dataclasses.fields(setting):
            _add_flag(group, field, value_type(setting, field.name))
    parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")


def _wrapped(text: str) -> str | None:
    return textwrap.fill(" ".join(text.split()), 80) if text else None


def _add_flag(group: Any, field: dataclasses.Field[Any], kind: type) -> None:
    text = field.metadata["text"].replace("%", "%%")
    flag = flag_of(field.name)
    if kind is bool:
        group.add_argument(
            flag, dest=field.name, action="store_true", default=argparse.SUPPRESS, help=text
        )
        return
    choices = field.metadata["choices"]
    if choices:
        text += f": {', '.join(choices)}"
    if field.default is not None:
        text += f"; default {field.default:g}" if kind is float else f"; default {field.default}"
    elif field.metadata["unset"]:
        text += f"; default {field.metadata['unset']}"
    metavar = field.metadata["metavar"] or {int: "N", float: "F"}.get(
        kind, "NAME" if choices else "TEXT"
    )
    group.add_argument(flag, dest=field.name, default=argparse.SUPPRESS, metavar=metavar, help=text)


def flag_types(command: Command) -> dict[str, type]:
    """Give the types of the values of a command's flags."""
    return {
        flag_of(f.name): value_type(s, f.name)
        for s in command.settings
        for f in dataclasses.fields(s)
    }


def join_values(command: Command, argv: Sequence[str]) -> list[str]:
    """Join each flag with its value by `=`, so that a value may begin with a dash.

    Raises UsageError for a flag without a value.
    """
    kinds = flag_types(command)
    known = {*kinds, *command.not_built, "--debug", "--help"}
    joined: list[str] = []
    words = iter(range(len(argv)))
    for i in words:
        word = argv[i]
        if word == "--":
            return [*joined, *argv[i:]]
        if word not in kinds or kinds[word] is bool:
            joined.append(word)
            continue
        if i + 1 == len(argv) or argv[i + 1].split("=", 1)[0] in known:
            raise UsageError(f"{word} has no value, expected one behind it")
        joined.append(f"{word}={argv[next(words)]}")
    return joined


def refuse_not_built(command: Command, argv: Sequence[str]) -> None:
    """Raise UsageError if a flag is among the arguments that is not built yet."""
    for word in argv:
        flag = word.split("=", 1)[0]
        if flag in command.not_built:
            raise UsageError(f"{flag} is not built yet")


def refuse_unknown(command: Command, argv: Sequence[str]) -> None:
    """Raise UsageError for the first word that looks like a flag and is none of the command's."""
    flags = {*flag_types(command), "--debug", "--help"}
    for word in argv:
        if word == "--":
            return
        known = word.split("=", 1)[0] in flags or word == "-h" or word[:2] in flags  # -n5
        if len(word) > 1 and word.startswith("-") and not known:
            remedy = f". The file of this name is ./{word}" if os.path.lexists(word) else ""
            raise UsageError(f"unrecognized arguments: {word}{remedy}")


def read_values(command: Command, given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the words that were given into values, by the names of fields and positionals.

    Raises UsageError for a word that is not a value of the field's type, or not of its choices.
    """
    values: dict[str, Any] = {}
    for name, text in command.positionals.items():
        if given[name] is None and name in command.optional:
            continue
        if not given[name]:
            raise UsageError(f"{name}: path is empty, expected {text}")
        values[name] = given[name]
    for setting in command.settings:
        for field in dataclasses.fields(setting):
            if field.name in given:
                kind = value_type(setting, field.name)
                values[field.name] = read_value(field, kind, given[field.name])
    return values


def read_value(field: dataclasses.Field[Any], kind: type, word: Any) -> Any:
    """Turn one word into the value of a field."""
    flag = flag_of(field.name)
    choices = field.metadata["choices"]
    if choices and word not in choices:
        raise UsageError(f"{flag} is {word}, expected one of {', '.join(choices)}")
    what = field.metadata["metavar"]
    if not word and what:  # an empty path would be the current folder
        raise UsageError(f"{flag} is empty, expected a {what}")
    if kind not in (int, float):
        return word
    pattern, want = NUMBERS[kind]
    if not pattern.fullmatch(word):
        raise UsageError(f"{flag} is {word}, expected {want}")
    return kind(word)


def make(setting: type, values: Mapping[str, Any], base: Any = None) -> Any:
    """Make the settings of one concern from the values given, the rest as in `base` or default."""
    mine = {f.name: values[f.name] for f in dataclasses.fields(setting) if f.name in values}
    return setting(**mine) if base is None else dataclasses.replace(base, **mine)
