"""A model in bfloat16: near one in float32, and in what it keeps the same."""

import numpy as np
import pytest

from llmpy.model import GPT2

from . import golden_state as golden
from .op_cases import NO_BF16
from .random_model import flat

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


def test_gradients_are_near_those_of_float32(backend):
    if NO_BF16.get(backend):
        pytest.skip(f"bf16 is to be built in {', '.join(NO_BF16[backend])}")
    loss, got = gradients(backend, "bfloat16")
    plain_loss, want = gradients(backend, "float32")
    assert got.dtype == np.float32
    golden.assert_grads_close(got, want, golden.CONFIG.dims, LIMIT)
    assert golden.relative_l2(got, want) >= 1e-3  # and yet they are rounded
    assert loss == pytest.approx(plain_loss, abs=2e-3)
    assert loss != plain_loss
