"""`llmpy bench`: a table on stdout, and the results as JSON."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..bench import Bench
from ..bench.peer import Peer, find_peers
from ..bench.report import Result, doubt, limits_line, profile_table, table
from ..bench.workloads import WORKLOADS, check_workload
from ..config import BenchConfig, DeviceConfig
from ..console import note, write
from ..device import open_backend
from ..formats.header import atomic_write
from .flags import Command, make

ENOUGH_S = 20.0  # of timed steps on a device


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy bench`."""
    config: BenchConfig = make(BenchConfig, values)
    device: DeviceConfig = make(DeviceConfig, values)
    environment = dict(os.environ)  # the peers': a backend sets variables of its own
    check_workload(config.workload)
    peers: list[Peer] = []
    if config.peer is not None:
        peers = find_peers(config.peer, config.peer_python or sys.executable)
    backend, line = open_backend(device)  # refuses what is not there, before anything starts
    note(line)
    if backend.name == "webgpu":
        device = dataclasses.replace(device, backend="webgpu")  # what `auto` means here
    enough = ENOUGH_S if backend.name == "webgpu" else None  # a slow device would take an hour
    bench = Bench(
        device=device, recompute=config.recompute, environment=environment, enough_s=enough
    )
    # open before the work, so that a path that can't be written is told at once
    with contextlib.nullcontext() if config.json is None else atomic_write(config.json) as file:
        limits = bench.limits()
        write(limits_line(limits, device))
        results = [
            bench.result(name, limits, peers, profile=config.profile)
            for name in WORKLOADS
            if config.workload in (None, name)
        ]
        if file is not None:
            file.write(as_json(results))
    write(table(results))
    for result in results:
        if result.min_s < result.floor_s:
            note(doubt(result))
        if result.profile is not None:
            write("\n" + profile_table(result))
    return 0


def as_json(results: list[Result]) -> bytes:
    """Give results as a list of objects."""
    rows = [dataclasses.asdict(result) for result in results]
    return json.dumps(rows, indent=2).encode("ascii") + b"\n"


BENCH = Command(
    name="bench",
    text="Time training steps.",
    run=run,
    settings=(BenchConfig, DeviceConfig),
)
