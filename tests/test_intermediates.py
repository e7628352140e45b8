"""The 23 activations of the C program, on the reference."""

import re

import numpy as np
import pytest

from llmpy.errors import UsageError
from llmpy.tensors import ACTS, SEED_ACTS, SHARED, table_shapes

from .random_model import TINY, random_batch, random_model


def test_intermediates_are_the_seeds():
    model = random_model()
    tokens, targets = random_batch(2, 5)
    loss = model.forward(tokens, targets)
    acts = {name: np.array(x) for name, x in model._work.acts.items()}
    seed = model.intermediates(tokens, targets)
    dims = {**TINY.dims, "B": 2, "T": 5}
    assert {n: x.shape for n, x in seed.items()} == table_shapes(SEED_ACTS, dims)
    assert list(seed) == list(SEED_ACTS)
    over = {name for tenants in SHARED for name in tenants[:-1]}  # others came after
    for name in (ACTS.keys() & SEED_ACTS.keys()) - over:  # the fused ops and the plain ones agree
        if ACTS[name][0] == "1":  # held for one layer after the other
            seed[name] = seed[name][-1:]
        np.testing.assert_allclose(seed[name], acts[name], rtol=1e-10, atol=1e-12, err_msg=name)
    assert seed["losses"].mean() == pytest.approx(loss, rel=1e-12)
    V = TINY.vocab_size
    np.testing.assert_allclose(seed["logits"][..., :V], model.forward(tokens), rtol=1e-10)
    np.testing.assert_allclose(seed["probs"].sum(-1), 1, rtol=1e-12)
    assert not seed["probs"][..., V:].any()
    np.testing.assert_allclose(seed["att"].sum(-1), 1, rtol=1e-12)
    assert not np.triu(seed["att"], 1).any()


def test_intermediates_want_the_reference():
    message = (
        "GPT2.intermediates: backend is cpu, expected numpy,"
        " because only the reference keeps every tensor"
    )
    model = random_model(backend="cpu", dtype="float32")
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        model.intermediates(*random_batch(2, 5))
