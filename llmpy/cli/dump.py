"""`llmpy dump`: what the float64 reference computes, into files."""

from collections.abc import Mapping
from typing import Any

from ..config import DumpConfig
from ..console import note, passing
from ..dump import dump
from ..errors import UsageError
from .flags import Command, make


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy dump`."""
    config: DumpConfig = make(DumpConfig, values)
    if config.tokens is None:
        raise UsageError("--tokens is not given, expected a token file")
    passing("computing in float64, with NumPy")
    dump(
        values["model"],
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


DUMP = Command(
    name="dump",
    text="Write what the float64 reference computes: a debug state, or every tensor by name.",
    run=run,
    settings=(DumpConfig,),
    positionals={"model": "model FILE.bin"},
)
