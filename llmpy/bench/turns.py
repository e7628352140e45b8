"""Run llmpy and its peers in turns: llmpy, peer, llmpy, peer, ...

What else a machine does comes and goes, so that two times are only compared if they were taken in
turns. Each run is a process of its own; the median of the runs' medians counts. Of the modes of a
peer the one that is clearly slower in the first round sits out the rest.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from ..console import note
from ..errors import BackendError
from .peer import Peer, PeerRun
from .steps import Timing

ROUNDS = 5
FEWER_ROUNDS = 3  # where one takes longer than LONG_ROUND_S
LONG_ROUND_S = 120.0
CLEARLY_SLOWER = 1.1

Runs = dict[Peer, list[PeerRun]]


def take_turns(
    ours: Callable[[], Timing],
    peers: Mapping[Peer, Callable[[], PeerRun]],
    rounds: int | None = None,
) -> tuple[list[Timing], Runs]:
    """Run ours and each peer once a round; a peer that fails is told, and sits out the rest.

    rounds  None is five, or three where one takes minutes

    Raises BackendError if ours fails, or the last peer of a kind.
    """
    start = time.perf_counter()
    timings: list[Timing] = []
    runs: Runs = {peer: [] for peer in peers}
    playing = dict(peers)
    while not timings or len(timings) < (rounds or ROUNDS):
        timings.append(ours())
        for peer, run in list(playing.items()):
            try:
                runs[peer].append(run())
            except BackendError as error:
                if not runs[peer] and not _others(peer, playing):
                    raise
                note(str(error))
                del playing[peer]
        if len(timings) == 1:
            for peer in clearly_slower(runs):
                playing.pop(peer, None)
            if rounds is None:
                long = time.perf_counter() - start > LONG_ROUND_S
                rounds = FEWER_ROUNDS if long else ROUNDS
    return timings, {peer: done for peer, done in runs.items() if done}


def _others(peer: Peer, playing: Mapping[Peer, object]) -> list[Peer]:
    """Give the other modes of a peer that still run."""
    return [other for other in playing if other.kind == peer.kind and other != peer]


def clearly_slower(runs: Runs) -> list[Peer]:
    """Give the peers that a mode of the same kind leaves clearly behind."""
    return [
        peer
        for peer, done in runs.items()
        if done
        and any(
            median_of(done) > CLEARLY_SLOWER * median_of(other)
            for rival, other in runs.items()
            if other and rival.kind == peer.kind
        )
    ]


def best(runs: Runs, kind: str) -> list[PeerRun]:
    """Give the runs of the better mode of a kind; empty if none was run to its end."""
    candidates = [done for peer, done in runs.items() if peer.kind == kind]
    return min(candidates, key=median_of, default=[])


def median_of(done: Sequence[PeerRun]) -> float:
    """Give the median of the runs' medians."""
    return statistics.median(run.median_s for run in done)
