"""`llmpy verify`: llm.c's test_gpt2 on stdout."""

from collections.abc import Mapping
from typing import Any

from ..config import DeviceConfig, VerifyConfig
from ..console import note, write
from ..device import open_backend
from ..verify import verify
from .flags import Command, make


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy verify`: 0 if all is well, else 1."""
    config: VerifyConfig = make(VerifyConfig, values)
    backend, line = open_backend(make(DeviceConfig, values))
    note(line)
    ok = verify(
        values["model"],
        values["state"],
        lambda text: write(text + "\n"),
        steps=config.steps,
        losses_path=config.losses,
        tolerance=config.tolerance,
        backend=backend,
    )
    return 0 if ok else 1


VERIFY = Command(
    name="verify",
    text="Check a model against a debug state, as llm.c's test_gpt2 does.",
    run=run,
    settings=(VerifyConfig, DeviceConfig),
    positionals={"model": "model FILE.bin", "state": "debug state FILE.bin"},
    not_built=("--adapter",),
)
