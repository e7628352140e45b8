"""llm.c's own flags, so that its run scripts work with the program's name changed.

Each is one or two letters and a value. Those that have a long flag here become it; the values by
which llm.c says "none" (-d -1, -x -1, -y 0, ...) leave the default. The rest is about GPUs and
several processes: it is taken, with a note of what applies here.

`-h 0` and `-h 1` are HellaSwag; a bare `-h` is help. Source: llm.c, train_gpt2.cu.
"""

import dataclasses
from collections.abc import Sequence

from ..config import RunConfig, TrainConfig
from ..errors import UsageError
from .flags import flag_of

HELLASWAG = "dev/data/hellaswag/hellaswag_val.bin"

# llm.c's flag -> the long one, for parts without a setting yet
_OTHERS = {
    "-nk": "--keep",
    "-nm": "--major-every",
    "-sl": "--skip-loss-z",
    "-sg": "--skip-norm-z",
}
LONG = {
    **{
        field.metadata["short"]: flag_of(field.name)
        for setting in (TrainConfig, RunConfig)
        for field in dataclasses.fields(setting)
        if field.metadata["short"]
    },
    **_OTHERS,
}

# these values mean the default
_NONE = {
    "-d": ("-1",), "-x": ("-1",), "-o": ("",),
    "-nk": ("0",), "-nm": ("0",), "-sl": ("0", "0.0"), "-sg": ("0", "0.0"),
}  # fmt: skip

_SWITCHES = {"-a": "--overfit", "-y": "--resume"}

_ONE_PROCESS = "one process trains here"
NOTES = {
    "-lg": "there is no GPU log here",
    "-f": "there is no TF32 here; --dtype says what matmuls take",
    "-ge": "GELU is always part of the matmul here",
    "-w": "weights are float32 here, so they are the master weights",
    "-z": f"optimizer state is whole here: {_ONE_PROCESS}",
    "-pn": _ONE_PROCESS,
    "-pr": _ONE_PROCESS,
    "-pg": _ONE_PROCESS,
    "-pi": _ONE_PROCESS,
    "-ps": _ONE_PROCESS,
    "-pf": _ONE_PROCESS,
}


def translate(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Turn llm.c's flags in the arguments of `llmpy train` into long ones.

    argv  with the values of long flags joined to them by `=`

    Returns the arguments and the notes. Raises UsageError for a flag without its value, and for a
    switch that is neither 0 nor 1.
    """
    out: list[str] = []
    notes: list[str] = []
    words = iter(range(len(argv)))
    for i in words:
        flag, following = argv[i], argv[i + 1 : i + 2]
        hellaswag = flag == "-h" and following in (["0"], ["1"])
        if not (hellaswag or flag in LONG or flag in _SWITCHES or flag in NOTES):
            out.append(flag)
            continue
        if not following:
            raise UsageError(f"{flag} has no value, expected one behind it")
        value = argv[next(words)]
        if flag in NOTES:
            notes.append(f"{flag} {value} has no effect: {NOTES[flag]}")
        elif hellaswag:
            out += [f"--hellaswag={HELLASWAG}"] if value == "1" else []
        elif flag in _SWITCHES:
            if value not in ("0", "1"):
                raise UsageError(f"{flag} is {value}, expected 0 or 1")
            out += [_SWITCHES[flag]] if value == "1" else []
        elif value not in _NONE.get(flag, ()):
            out.append(f"{LONG[flag]}={value}")
    return out, notes
