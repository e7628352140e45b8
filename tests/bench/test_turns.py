"""Runs in turns: their order, who sits out, and which mode counts."""

import pytest

from llmpy.bench import turns
from llmpy.bench.peer import Peer, PeerRun
from llmpy.bench.turns import best, median_of, take_turns
from llmpy.errors import BackendError

EAGER, COMPILE, JAX = (
    Peer("torch", "eager", "p"),
    Peer("torch", "compile", "p"),
    Peer("jax", "", "p"),
)


class Table:
    """Players who write down that they were called."""

    def __init__(self):
        self.log = []

    def ours(self):
        self.log.append("llmpy")
        return {"seconds": [1.0]}

    def peer(self, name, *seconds):
        """Give a peer that takes these times, then goes on with the last; None fails."""
        times = list(seconds)

        def run():
            self.log.append(name)
            taken = times.pop(0) if len(times) > 1 else times[0]
            if taken is None:
                raise BackendError(f"peer {name}: process ended with status 1, expected 0")
            return PeerRun(name, taken, None)

        return run


def test_turns_alternate():
    table = Table()
    timings, runs = take_turns(table.ours, {JAX: table.peer("jax", 2.0, 4.0, 3.0)})
    assert table.log == ["llmpy", "jax"] * 5
    assert len(timings) == 5
    assert median_of(runs[JAX]) == 3.0


def test_a_mode_that_is_clearly_slower_sits_out():
    table = Table()
    peers = {EAGER: table.peer("eager", 2.0), COMPILE: table.peer("compile", 1.0)}
    peers[JAX] = table.peer("jax", 9.0)  # another framework is no rival
    _, runs = take_turns(table.ours, peers, rounds=2)
    assert table.log == ["llmpy", "eager", "compile", "jax", "llmpy", "compile", "jax"]
    assert [run.peer for run in best(runs, "torch")] == ["compile", "compile"]
    assert best(runs, "jax")[0].peer == "jax"
    assert best(runs, "tinygrad") == []


def test_modes_that_are_close_both_go_on():
    table = Table()
    peers = {EAGER: table.peer("eager", 1.05, 0.8), COMPILE: table.peer("compile", 1.0)}
    _, runs = take_turns(table.ours, peers, rounds=3)
    assert table.log == ["llmpy", "eager", "compile"] * 3
    assert best(runs, "torch")[0].peer == "eager"  # 0.8 against 1.0 in the median


def test_a_mode_that_fails_is_told_and_sits_out(capfd):
    table = Table()
    peers = {EAGER: table.peer("eager", 1.0), COMPILE: table.peer("compile", None)}
    _, runs = take_turns(table.ours, peers, rounds=2)
    assert table.log == ["llmpy", "eager", "compile", "llmpy", "eager"]
    assert capfd.readouterr().err == "peer compile: process ended with status 1, expected 0\n"
    assert list(runs) == [EAGER]


@pytest.mark.parametrize("order", [[EAGER, COMPILE], [EAGER]])
def test_the_last_mode_that_fails_is_an_error(order, capfd):
    table = Table()
    with pytest.raises(BackendError) as error:
        take_turns(table.ours, {p: table.peer(p.mode, None) for p in order}, rounds=2)
    assert str(error.value) == (f"peer {order[-1].mode}: process ended with status 1, expected 0")


def test_a_peer_that_fails_later_keeps_its_runs(capfd):
    table = Table()
    _, runs = take_turns(table.ours, {JAX: table.peer("jax", 1.0, None)}, rounds=3)
    assert table.log == ["llmpy", "jax", "llmpy", "jax", "llmpy"]
    assert len(runs[JAX]) == 1


def test_fewer_rounds_where_one_takes_long(monkeypatch):
    monkeypatch.setattr(turns, "LONG_ROUND_S", -1.0)
    table = Table()
    timings, _ = take_turns(table.ours, {JAX: table.peer("jax", 1.0)})
    assert len(timings) == 3
