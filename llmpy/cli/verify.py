"""`llmpy verify`: llm.c's test_gpt2 on stdout."""

from collections.abc import Mapping
from typing import Any

from ..config import DeviceConfig, VerifyConfig
from ..console import note, write
from ..device import open_backend
from ..footprint import largest_tensor
from ..formats.checkpoint import read_checkpoint_config
from ..verify import BFLOAT16, verify
from .flags import Command, make


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy verify`: 0 if all is well, else 1."""
    config: VerifyConfig = make(VerifyConfig, values)
    device: DeviceConfig = make(DeviceConfig, values)
    sizes, _ = read_checkpoint_config(values["model"])
    backend, line = open_backend(device, largest_tensor(sizes, 1, 1)[1])
    note(line)
    if device.dtype == "bfloat16" and config.tolerance is None:
        note(f"allowed in bfloat16: {BFLOAT16.line()}")
    ok = verify(
        values["model"],
        values["state"],
        lambda text: write(text + "\n"),
        steps=config.steps,
        losses_path=config.losses,
        tolerance=config.tolerance,
        backend=backend,
        dtype=device.dtype,
    )
    return 0 if ok else 1


VERIFY = Command(
    name="verify",
    text="Check a model against a debug state, as llm.c's test_gpt2 does.",
    run=run,
    settings=(VerifyConfig, DeviceConfig),
    positionals={"model": "model FILE.bin", "state": "debug state FILE.bin"},
)
