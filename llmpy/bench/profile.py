"""Where the time of a step goes: each op's calls, time, and share of what limits it.

The functions of a backend are wrapped in a namespace that the model computes with for a few steps;
the backend itself is left alone. An op is limited by the peak or by the memory's bandwidth,
whichever wants more time for its cost. Small arrays stay in caches, so that an op limited by memory
may come out above its limit. On a device each op is sent and waited for by itself.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypedDict

from .costs import PRODUCTS, Cost, cost_of
from .workloads import Limits

if TYPE_CHECKING:
    from ..webgpu.search import TileRate


class OpProfile(TypedDict):
    """One op in one step."""

    op: str
    calls: int
    seconds: float
    operations: int
    bytes: int
    limit: str  # peak or bandwidth
    rate: float  # 1e9 operations or bytes a second, of what limits it
    limit_share: float


class Profile(TypedDict):
    """All ops of one step, those of most time first; the rest is Python between them."""

    step_s: float
    rest_s: float
    ops: list[OpProfile]
    tiles: "list[TileRate]"  # shapes of matrix products on a device, the fastest first


class Recorder:
    """A backend whose calls are recorded.

    backend  to be put in the place of the one that it wraps

    >>> recorder = Recorder(cpu)
    >>> model.backend = recorder.backend
    """

    def __init__(self, backend: Any) -> None:
        self._calls: list[tuple[str, float, tuple[Any, ...], dict[str, Any]]] = []
        functions = {name: getattr(backend, name) for name in dir(backend)}
        self.backend = SimpleNamespace(**functions)
        self.backend.record = lambda passes: passes  # op by op
        for name in PRODUCTS:
            if name in functions:
                setattr(self.backend, name, self._recorded(name, functions[name], backend.sync))

    def _recorded(
        self, name: str, function: Callable[..., Any], sync: Callable[[], None]
    ) -> Callable[..., Any]:
        calls, clock = self._calls, time.perf_counter

        def recorded(*args: Any, **kwargs: Any) -> Any:
            start = clock()
            result = function(*args, **kwargs)
            sync()
            calls.append((name, clock() - start, args, kwargs))  # its cost is reckoned afterwards
            return result

        return recorded

    def take(self, step_s: float, limits: Limits) -> Profile:
        """Sum up the calls since the last time, of a step of `step_s` seconds."""
        calls: dict[str, list[float]] = {}
        costs: dict[str, Cost] = {}
        for name, seconds, args, kwargs in self._calls:
            calls.setdefault(name, []).append(seconds)
            one, all_before = cost_of(name, args, kwargs), costs.get(name, Cost(0, 0))
            costs[name] = Cost(all_before.operations + one.operations, all_before.bytes + one.bytes)
        self._calls.clear()
        ops = [_op_profile(name, times, costs[name], limits) for name, times in calls.items()]
        ops.sort(key=lambda op: -op["seconds"])
        rest = step_s - sum(op["seconds"] for op in ops)
        return Profile(step_s=step_s, rest_s=rest, ops=ops, tiles=[])


def _op_profile(name: str, times: list[float], cost: Cost, limits: Limits) -> OpProfile:
    seconds = sum(times)
    at_peak = cost.operations / (limits.peak_gflops * 1e9)
    at_bandwidth = cost.bytes / (limits.bandwidth_gbs * 1e9)
    computes = at_peak > at_bandwidth
    per_s = 1 / seconds if seconds else 0.0  # a clock may be too coarse for a tiny op
    return OpProfile(
        op=name,
        calls=len(times),
        seconds=seconds,
        operations=cost.operations,
        bytes=cost.bytes,
        limit="peak" if computes else "bandwidth",
        rate=(cost.operations if computes else cost.bytes) * per_s / 1e9,
        limit_share=max(at_peak, at_bandwidth) * per_s,
    )
