"""A field of the settings that is also a flag, and how values are checked.

A message names the flag and has its value and what was expected.
"""

from dataclasses import field
from typing import Any

from .errors import ConfigError

FLOAT32_MAX = (2 - 2**-23) * 2.0**127


def setting(
    default: Any,
    short: str | None,
    text: str,
    *,
    choices: tuple[str, ...] | None = None,
    metavar: str | None = None,
    unset: str | None = None,
) -> Any:
    """Make a field that is also a flag.

    short    llm.c's flag for it, None where it has none
    text     the help, with the unit
    choices  the only values there are
    metavar  what stands for the value in the help, where its type does not say enough
    unset    what a default of None means
    """
    metadata = {
        "short": short, "text": text, "choices": choices, "metavar": metavar, "unset": unset,
    }  # fmt: skip
    return field(default=default, metadata=metadata)


def at_least(flag: str, value: int | None, least: int) -> None:
    """Raise ConfigError for a value below `least`; None is no value."""
    if value is not None and value < least:
        raise ConfigError(f"{flag} is {value}, expected at least {least}")


def within(flag: str, value: float, low: float, high: float, want: str) -> None:
    """Raise ConfigError for a value outside low <= value < high, and for NaN."""
    if not low <= value < high:
        raise ConfigError(f"{flag} is {value:g}, expected {want}")


def fits_float32(flag: str, value: float) -> None:
    """Raise ConfigError for a value that is infinite as a float32."""
    if abs(value) > FLOAT32_MAX:
        raise ConfigError(
            f"{flag} is {value:g}, expected at most {FLOAT32_MAX:g}, the largest float32"
        )


def check_seed(seed: int) -> None:
    """Raise ConfigError for a seed that is not 64 bits without a sign."""
    if not 0 <= seed < 2**64:
        raise ConfigError(f"--seed is {seed}, expected 0 to 2**64 - 1")


def one_of(flag: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ConfigError for a value that is not among the choices."""
    if value not in choices:
        raise ConfigError(f"{flag} is {value}, expected one of {', '.join(choices)}")


def check_recompute(recompute: int) -> None:
    """Raise ConfigError for a level of recompute that is not llm.c's."""
    if recompute not in (0, 1, 2):
        raise ConfigError(f"--recompute is {recompute}, expected 0, 1 or 2")
