"""Time whole training steps, and say how near they are to what the machine can do.

First the limits of the machine are measured (`llmpy/cpu/limits.py`), in a process of their own.
Then each workload runs in a process of its own, so that its peak memory is its own and no other's
kernels or memory are warm. After steps to warm up, each step is timed; the median counts.

    workloads.py   what is timed, its operations, its floor
    steps.py       the steps, timed
    costs.py       what each op has to do
    profile.py     where the time of a step goes
    peer.py        another framework's program for the same step
    processes.py   how processes are started, and ended with all they started
    turns.py       llmpy and its peers in turns
    report.py      the results, as JSON and as a table
    __main__.py    the processes
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..config import DeviceConfig
from ..console import passing
from ..errors import BackendError
from .peer import LIMIT_S, Peer, PeerRun, end_of
from .processes import run_ours
from .report import Result, make_result
from .steps import Timing
from .turns import Runs, best, take_turns
from .workloads import WORKLOADS, Limits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """How workloads are run.

    enough_s     stop a run early once its timed steps have taken so long
    limit_s      end a peer's run after so long
    environment  of the peers; None is that of this process, which a backend may have changed
    """

    device: DeviceConfig
    recompute: int = 0
    enough_s: float | None = None
    limit_s: float = LIMIT_S
    environment: Mapping[str, str] | None = None

    def limits(self) -> Limits:
        """Measure the machine: the device, or the threads of the cpu backend."""
        device = self.device
        if device.backend != "webgpu":
            device = dataclasses.replace(device, backend="cpu", adapter=None)
        words = {"device": dataclasses.asdict(device)}
        return Limits(**_answer("limits", "limits", words))

    def run(self, name: str, limits: Limits | None = None) -> Timing:
        """Run a workload once; with `limits`, profile it, too."""
        timing: Timing = _answer(
            f"workload {name}",
            "workload",
            {
                "device": dataclasses.asdict(self.device),
                "name": name,
                "recompute": self.recompute,
                "enough_s": self.enough_s,
                "limits": None if limits is None else dataclasses.asdict(limits),
            },
        )
        return timing

    def run_peer(self, name: str, peer: Peer) -> PeerRun:
        """Run a peer once."""
        passing(f"{name}: {peer.kind} {peer.mode}")
        try:
            return peer.run(
                WORKLOADS[name],
                self.device.dtype,
                self.device.threads,
                enough_s=self.enough_s,
                limit_s=self.limit_s,
                environment=self.environment,
            )
        finally:
            passing("")

    def in_turns(
        self,
        name: str,
        limits: Limits,
        peers: Sequence[Peer],
        *,
        profile: bool = False,
        rounds: int | None = None,
    ) -> tuple[list[Timing], Runs]:
        """Run a workload and its peers in turns; the first of our runs is profiled if asked for."""
        profiled = iter([limits] if profile else [])
        return take_turns(
            lambda: self.run(name, next(profiled, None)),
            {peer: partial(self.run_peer, name, peer) for peer in peers},
            rounds,
        )

    def result(
        self, name: str, limits: Limits, peers: Sequence[Peer] = (), *, profile: bool = False
    ) -> Result:
        """Time a workload, beside the modes of one peer if there are any."""
        if peers:
            timings, runs = self.in_turns(name, limits, peers, profile=profile)
            theirs = best(runs, peers[0].kind)
        else:
            timings, theirs = [self.run(name, limits if profile else None)], []
        return make_result(
            name, WORKLOADS[name], self.device.dtype, self.recompute, limits, timings, theirs
        )


def _answer(what: str, task: str, order: Mapping[str, Any]) -> Any:
    """Start a process of ours and give its answer. Raises BackendError if it fails."""
    done = run_ours([task, json.dumps(order)])
    if done.returncode:
        raise BackendError(f"bench: process of {what} ended {end_of(done.returncode)}")
    return json.loads(done.stdout)
