"""`llmpy bench`: a table on stdout, and the results as JSON."""

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ..bench import bench, check_workload, table
from ..config import BenchConfig, DeviceConfig
from ..console import note, write
from ..device import open_backend
from ..formats.header import atomic_write
from .flags import Command, make


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy bench`."""
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


BENCH = Command(
    name="bench",
    text="Time training steps.",
    run=run,
    settings=(BenchConfig, DeviceConfig),
    not_built=("--adapter", "--profile", "--peer", "--peer-python"),
)
