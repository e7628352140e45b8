"""`llmpy info`: the description of a file on stdout."""

from collections.abc import Mapping
from typing import Any

from ..console import write
from ..formats.info import describe_file
from .flags import Command


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy info`."""
    write("".join(line + "\n" for line in describe_file(values["file"])))
    return 0


INFO = Command(
    name="info",
    text="Say what a file is.",
    run=run,
    positionals={"file": "any file of llm.c"},
    not_built=("--adapters",),
)
