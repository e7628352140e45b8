"""`llmpy info`: the description of a file, or of the GPUs, on stdout."""

from collections.abc import Mapping
from typing import Any

from ..config import InfoConfig
from ..console import write
from ..errors import BackendError, UsageError
from ..formats.info import describe_file
from .flags import Command, make


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy info`. Raises BackendError where no GPU can be used."""
    config: InfoConfig = make(InfoConfig, values)
    file = values.get("file")
    if config.adapters and file is not None:
        raise UsageError("FILE and --adapters are both given, expected one of them")
    if not config.adapters and file is None:
        raise UsageError("neither FILE nor --adapters is given, expected one of them")
    lines = adapter_table() if file is None else describe_file(file)
    write("".join(line + "\n" for line in lines))
    return 0


def adapter_table() -> list[str]:
    """Give what is to be said of all adapters."""
    from ..webgpu.adapters import NO_ADAPTER, adapter_lines, list_adapters

    adapters = list_adapters()
    if not adapters:
        raise BackendError(NO_ADAPTER)
    return [line for i, adapter in enumerate(adapters) for line in adapter_lines(i, adapter)]


INFO = Command(
    name="info",
    text="Say what a file is, or which GPUs there are.",
    run=run,
    settings=(InfoConfig,),
    positionals={"file": "any file of llm.c"},
    optional=("file",),
)
