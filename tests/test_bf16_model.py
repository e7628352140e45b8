"""A model in bfloat16: near one in float32, and in what it keeps the same."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from llmpy import ops
from llmpy.model import GPT2

from . import golden_state as golden
from .random_model import flat, random_batch, random_model

STD = 0.1  # of a tensor of weights, at most; the golden model's are about 0.25
LIMIT = 2e-2  # relative L2 norm of each gradient; the largest is about 8e-3


def calm_weights(config):
    """Give the golden weights, each tensor drawn together to a standard deviation of STD."""
    weights = golden.WEIGHTS.copy()
    for _, start, stop in golden.tensor_ranges(config.dims):
        part = weights[start:stop]
        if part.std() > STD:
            part[:] = part.mean() + (part - part.mean()) * (STD / part.std())
    return weights


def gradients(backend, dtype):
    """Give loss and gradients of the golden batch."""
    model = GPT2(golden.CONFIG, backend, dtype)
    model.backend.upload(model.params.memory, calm_weights(golden.CONFIG))
    loss = model.forward_backward(golden.TOKENS, golden.TARGETS)
    return loss, flat(model.grads)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_gradients_are_near_those_of_float32(backend):
    loss, got = gradients(backend, "bfloat16")
    plain_loss, want = gradients(backend, "float32")
    assert got.dtype == np.float32
    golden.assert_grads_close(got, want, golden.CONFIG.dims, LIMIT)
    assert golden.relative_l2(got, want) >= 1e-3  # and yet they are rounded
    assert loss == pytest.approx(plain_loss, abs=2e-3)
    assert loss != plain_loss


@pytest.mark.parametrize("recompute", [0, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_dtype_reaches_every_product(dtype, recompute):
    """One that is left out would hide within the tolerance of the gradients."""
    seen = []

    def watched(name, op):
        def call(*args, **kwargs):
            seen.append((name, kwargs.get("bf16", False)))
            return op(*args, **kwargs)

        return call

    backend = SimpleNamespace(**{name: getattr(ops, name) for name in dir(ops)})
    products = {name for name in ops.__all__ if takes_bf16(getattr(ops, name))}
    for name in products:
        setattr(backend, name, watched(name, getattr(ops, name)))
    model = random_model(backend=backend, dtype=dtype, recompute=recompute)
    tokens, targets = random_batch(2, 5)
    model.forward(tokens, targets)
    model.backward()
    model.forward_backward(tokens, targets)
    model.forward(tokens)
    model.next_logits(tokens)
    assert {name for name, _ in seen} == products
    assert {bf16 for _, bf16 in seen} == {dtype == "bfloat16"}, seen


def takes_bf16(value):
    return callable(value) and "bf16" in inspect.signature(value).parameters
