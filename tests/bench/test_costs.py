"""The costs of ops, by hand; and that those of a step sum up to the step's operations."""

import inspect

import numpy as np
import pytest

from llmpy import ops
from llmpy.bench.costs import PRODUCTS, cost_of
from llmpy.bench.profile import Recorder
from llmpy.bench.steps import Trainer
from llmpy.errors import UsageError
from llmpy.ops.contract import rows

from .sizes import LIMITS, TINY


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def test_every_op_is_listed():
    functions = {n for n in ops.__all__ if inspect.isfunction(getattr(ops, n))}
    memory = {
        "alloc", "alloc_places", "copy", "describe", "download", "fit_places", "largest_tensor",
        "on_host", "record", "scratch_bytes", "sync", "upload", "view",
    }  # fmt: skip
    assert set(PRODUCTS) == functions - memory - {"attention_scores"}


def test_matmul_by_hand():
    """B 2, T 3, C 5, OC 7: 2 * 6 * 5 * 7 operations; 42 + 30 + 35 + 7 floats."""
    args = zeros(2, 3, 7), zeros(2, 3, 5), zeros(7, 5), zeros(7)
    assert cost_of("matmul_forward", args, {}) == (420, 4 * 114)
    assert cost_of("matmul_forward", (*args[:3], None), {}) == (420, 4 * 107)
    args = zeros(2, 3, 5), zeros(7, 5), zeros(7), zeros(2, 3, 7), zeros(2, 3, 5), zeros(7, 5)
    once = 30 + 35 + 7 + 42 + 30 + 35
    assert cost_of("matmul_backward", args, {"accumulate": False}) == (840, 4 * once)
    assert cost_of("matmul_backward", args, {"accumulate": True}) == (840, 4 * (once + 42))


def test_attention_by_hand():
    """B 2, T 3, C 4, NH 2: half of the two products of (T, T) a head, of 2 * 2 operations each."""
    out, lse, qkv = zeros(2, 3, 4), zeros(2, 2, 3), zeros(2, 3, 12)
    assert cost_of("attention_forward", (out, lse, qkv), {"NH": 2}) == (
        2 * (2 * 2 * 3 * 3 * 4) // 2, 4 * (24 + 12 + 72)
    )  # fmt: skip


def test_embeddings_touch_only_the_rows_of_their_tokens():
    out, tokens, wte, wpe = zeros(2, 3, 4), zeros(2, 3, dtype=np.int32), zeros(99, 4), zeros(8, 4)
    assert cost_of("encoder_forward", (out, tokens, wte, wpe), {}) == (
        0, 4 * (24 + 6 + 24 + 12)
    )  # fmt: skip
    args, how = (wte, wpe, out, tokens), {"accumulate": True}
    assert cost_of("encoder_backward", args, how) == (0, 4 * (2 * 24 + 2 * 12 + 24 + 6))


def test_adamw_moves_28_bytes_a_parameter():
    assert cost_of("adamw", (zeros(10),) * 4, {"lr": 0.1}) == (0, 280)


def test_arrays_by_name_count_too():
    assert cost_of("adamw", (), dict.fromkeys(("params", "grads", "m", "v"), zeros(10))) == (0, 280)


def test_zero_writes():
    assert cost_of("zero", (zeros(3, 5),), {}) == (0, 60)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recompute", [0, 1, 2])
def test_a_step_sums_up_to_the_workload(dtype, recompute):
    """And at level 2 the product before GELU, once more."""
    trainer = Trainer(TINY, ops, dtype, recompute)
    recorder = Recorder(ops)
    trainer.model.backend = recorder.backend
    profile = recorder.take(trainer.step(), LIMITS)
    L, C = TINY.config.num_layers, TINY.config.channels
    again = 2 * TINY.B * TINY.T * L * C * 4 * C if recompute == 2 else 0
    assert sum(op["operations"] for op in profile["ops"]) == TINY.operations + again
    (adamw,) = [op for op in profile["ops"] if op["op"] == "adamw"]
    assert adamw["bytes"] == TINY.optimizer_bytes


def test_without_docstrings(monkeypatch):
    monkeypatch.setattr("llmpy.bench.costs.rows", lambda op: ())
    with pytest.raises(UsageError) as error:
        cost_of("adamw", (zeros(1),) * 4, {})
    assert str(error.value) == (
        "--profile needs docstrings, which -OO leaves out. Run Python without it."
    )
    assert rows(ops.adamw)
