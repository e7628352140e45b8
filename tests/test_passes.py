"""The passes on planned memory: nothing is read that another tensor has written over."""

import numpy as np
import pytest

from llmpy import ops, tensors
from llmpy.errors import UsageError
from llmpy.model import GPT2
from llmpy.ops.contract import rows
from llmpy.passes import backward_pass, forward_pass
from llmpy.sizes import GPT2Config
from llmpy.tensors import PARAMS, REMADE, SCRATCH, Tensors, acts_table
from llmpy.workspace import Workspace

from .random_model import TINY, random_batch, random_model

# rows longer than any vector, and a tail
WIDER = GPT2Config(max_seq_len=19, vocab_size=61, num_layers=3, num_heads=5, channels=85)


class Span:
    """Part of a block of memory that holds no numbers, only who has written each element."""

    def __init__(self, writers, start, count):
        self.writers = writers[start : start + count]
        self.label = None

    @property
    def shape(self):
        return self.writers.shape


class Watch:
    """A backend that computes nothing: it follows who writes and who reads, by the ops' tables."""

    def __init__(self):
        self.reads = 0

    def alloc_places(self, sizes, dtype, apart=False):
        return Span(np.zeros(sum(sizes), object), 0, sum(sizes))

    def view(self, block, start, shape):
        return Span(block.writers, start, int(np.prod(shape)))

    def scratch_bytes(self, dims, itemsize):
        return 0

    def zero(self, span):
        span.writers[:] = span.label

    def __getattr__(self, name):
        table = rows(getattr(ops, name))

        def call(*args, accumulate=True, **scalars):
            labelled = [(row, x) for row, x in zip(table, args, strict=True) if label_of(x)]
            modes = {"accumulates": "adds" if accumulate else "writes"}
            used = [(modes.get(row.mode, row.mode), row.name, x) for row, x in labelled]
            for mode, argument, x in used:
                if mode != "writes":
                    self.reads += 1
                    others = set(x.writers.tolist()) - {x.label}
                    assert not others, f"{name}: {argument} is {x.label}, but holds {others}"
            written = [x for mode, _, x in used if mode != "reads"]
            for x in written:
                for _, argument, y in used:
                    shared = x is not y and np.shares_memory(x.writers, y.writers)
                    assert not shared, f"{name}: {argument} lies in {x.label}, which is written"
                x.writers[:] = x.label

        return call


def label_of(x):
    return getattr(x, "label", None)


def name_views(held, table):
    """Name the view of each tensor, those of each layer by themselves."""
    for name, axes in table.items():
        if axes[0] not in ("L", "1"):
            getattr(held, name).label = name
            continue
        for l in range(TINY.num_layers):
            getattr(held.layer(l), name).label = f"{name}[{l}]"


def run(recompute, backwards=1):
    """Go through the passes on memory that is watched."""
    watch = Watch()
    work = Workspace(TINY, watch, "float32", recompute)
    work.fit_forward(2, 5)
    work.fit_backward(with_grads=False)
    name_views(work.acts, acts_table(recompute))
    name_views(work.scratch, SCRATCH)
    params = Tensors(watch, PARAMS, TINY.dims)  # and gradients: these are not watched
    forward_pass(watch, TINY, params, work, bf16=False)
    how = {"dloss": 1.0, "accumulate": False, "bf16": False}
    for _ in range(backwards):
        backward_pass(watch, TINY, params, params, work, **how)
    return watch.reads


@pytest.mark.parametrize("recompute", REMADE)
def test_no_tensor_is_written_over_while_it_lives(recompute):
    """Also not in a second backward pass of the same activations."""
    assert run(recompute, backwards=2) > 50


@pytest.mark.parametrize(
    ("recompute", "tenants"),
    [
        (0, ("dresidual", "dfch")),
        (0, ("encoded", "ln1")),
        (0, ("proj", "encoded")),
        (0, ("lnf", "dln")),
        (1, ("fch_gelu", "proj")),
        (0, ("ln1", "datty", "dln")),
        (0, ("ln2", "proj")),
        (2, ("ln2", "fch_gelu")),
        (2, ("fch", "fch_gelu")),
    ],
)
def test_a_wrong_plan_is_found(recompute, tenants, monkeypatch):
    monkeypatch.setattr(tensors, "SHARED", (tenants,))
    with pytest.raises(AssertionError, match=r"but holds|which is written"):
        run(recompute)


JUDGED = [("numpy", "float64"), ("numpy", "float32"), ("cpu", "float32")]


@pytest.mark.parametrize(("backend", "dtype"), JUDGED)
@pytest.mark.parametrize("config", [TINY, WIDER], ids=["tiny", "wider"])
def test_gradients_have_the_same_bits_at_each_level(backend, dtype, config):
    """What is made again is what the forward pass made; after an update, too."""

    def grads(recompute):
        model = random_model(config, backend, dtype, recompute=recompute)
        for step in (1, 2):
            loss = model.forward_backward(*random_batch(3, 7, config.vocab_size, seed=step))
            model.update(1e-2, 0.9, 0.95, 1e-8, 0.1, step)
        return loss, np.array(model.backend.download(model.grads.memory))

    loss, kept = grads(0)
    assert np.abs(kept).max() > 0
    for recompute in (1, 2):
        again_loss, again = grads(recompute)
        assert again_loss == loss
        np.testing.assert_array_equal(again, kept)


@pytest.mark.parametrize("recompute", REMADE)
def test_backward_may_come_twice(recompute, backend):
    """As in C with zero_grad in between; the activations are still there."""
    model = random_model(backend=backend, dtype="float32", recompute=recompute)
    tokens, targets = random_batch(3, 7)
    model.forward(tokens, targets)
    grads = []
    for _ in range(2):
        model.zero_grad()
        model.backward()
        grads.append(np.array(model.backend.download(model.grads.memory)))
    np.testing.assert_array_equal(grads[0], grads[1])
    fresh = random_model(backend=backend, dtype="float32")
    fresh.forward_backward(tokens, targets)
    np.testing.assert_array_equal(grads[0], fresh.backend.download(fresh.grads.memory))
    np.testing.assert_array_equal(model.forward(tokens), fresh.forward(tokens))


def test_levels_that_there_are():
    for recompute in (3, -1, None, "1"):
        with pytest.raises(UsageError) as error:
            GPT2(TINY, "numpy", recompute=recompute)
        assert str(error.value) == f"GPT2: recompute is {recompute!r}, expected 0, 1 or 2"
