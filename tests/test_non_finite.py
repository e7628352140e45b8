"""NaN and infinity in every backend reach what the plain loops let them reach, and no more."""

import importlib

import numpy as np
import pytest

from llmpy import ops
from llmpy.ops.contract import rows

from .check import close
from .op_cases import MODULES, OPS, all_calls, call, op_file
from .tolerances import tolerance_of

ODD = {"B": 2, "T": 3, "C": 6, "V": 7, "Vp": 16, "NH": 2, "maxT": 4, "N": 9, "OC": 5}
WIDE = {**ODD, "C": 48}
PRODUCTS = [n for n in OPS if op_file(n) in ("matmul", "attention", "classifier")]


@pytest.fixture
def backend(backend):
    return importlib.import_module(MODULES[backend])


def hurt_calls(backend, name, value, rng):
    """Go through calls with one element of one input changed to `value`; also give its name."""
    for text, arrays, scalars in all_calls(name, rng, [ODD, WIDE], backend):
        for row in rows(getattr(ops, name)):
            if row.mode not in ("reads", "updates") or row.kind != "f" or arrays[row.name] is None:
                continue
            hurt = {key: None if x is None else x.copy() for key, x in arrays.items()}
            at = rng.integers(hurt[row.name].size)
            hurt[row.name].reshape(-1)[at] = value
            yield f"{text}: {value} in {row.name} at {at}", row.name, hurt, scalars


@pytest.mark.parametrize("name", OPS)
def test_nan_stays_visible(backend, name, rng):
    """One NaN in any input appears in the same outputs as in the reference, and in no other."""
    for text, _, arrays, scalars in hurt_calls(backend, name, np.nan, rng):
        want = call(ops, name, arrays, scalars, "float64")
        got = call(backend, name, arrays, scalars, "float32")
        for output in want:
            same = np.array_equal(np.isnan(got[output]), np.isnan(want[output]))
            assert same, f"{text}, and not the right ones in {output}"


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("name", PRODUCTS)
def test_infinity_has_the_effect_that_it_has_in_the_reference(backend, name, value, rng):
    for text, array, arrays, scalars in hurt_calls(backend, name, value, rng):
        if name == "attention_backward" and array != "out":  # out and lse as they would come
            forward = arrays["out"], arrays["lse"], arrays["qkv"]
            ops.attention_forward(*forward, NH=scalars["NH"], bf16=scalars["bf16"])
        want = call(ops, name, arrays, scalars, "float64")
        got = call(backend, name, arrays, scalars, "float32")
        for output in want:
            close(got[output], want[output], tolerance_of(name, output, scalars), text)


# by hand: one element is spoiled, and these parts of the outputs are what it reaches


def check_reach(backend, name, sizes, spoiled, reached, rng, value=np.nan):
    """Spoil elements, `spoiled` = (array, index), and check just which outputs aren't finite."""
    for text, arrays, scalars in all_calls(name, rng, [sizes], backend):
        array, index = spoiled
        arrays[array][index] = value
        got = call(backend, name, arrays, scalars, "float32")
        for output, made in got.items():
            want = np.zeros(made.shape, bool)
            for part in reached.get(output, ()):
                want[part] = True
            assert np.array_equal(~np.isfinite(made), want), f"{text}: {output}"


MATMUL = {"B": 2, "T": 9, "C": 40, "OC": 37}
s = np.s_


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "spoiled", "reached"),
    [
        ("matmul_forward", ("inp", s[1, 4, 7]), {"out": [s[1, 4]]}),
        ("matmul_forward", ("weight", s[36, 39]), {"out": [s[..., 36]]}),
        (
            "matmul_backward",
            ("dout", s[0, 8, 36]),
            {"dinp": [s[0, 8]], "dweight": [s[36]], "dbias": [s[36]]},
        ),
        ("matmul_backward", ("inp", s[1, 0, 3]), {"dweight": [s[:, 3]]}),
        ("matmul_backward", ("weight", s[5, 39]), {"dinp": [s[..., 39]]}),
    ],
)
def test_reach_in_matmul(backend, name, spoiled, reached, value, rng):
    """A row of inp reaches its row of out, a number of the weights one column."""
    check_reach(backend, name, MATMUL, spoiled, reached, rng, value)


CLASSIFIER = {"B": 2, "T": 9, "C": 12, "V": 37, "Vp": 48, "N": 18}


@pytest.mark.parametrize(
    ("spoiled", "reached"),
    [
        (
            ("lnf", s[1, 4, 7]),
            {"losses": [s[1, 4]], "dlnf": [s[1, 4]], "dwte": [s[:37]]},
        ),
        (("wte", s[36, 11]), {"losses": [s[:]], "dlnf": [s[:]], "dwte": [s[:37]]}),
        (("wte", s[37, 0]), {}),
        (("wte", s[37:]), {}),
    ],
)
def test_reach_in_the_classifier(backend, spoiled, reached, rng):
    """A position reaches its loss and dlnf, and dwte but for the padding; the padding nothing."""
    for name in ("classifier_forward", "classifier_forward_backward"):
        check_reach(backend, name, CLASSIFIER, spoiled, reached, rng)


B, T, NH, HS = 2, 9, 2, 4
C = NH * HS
ATTENTION = {"B": B, "T": T, "NH": NH, "C": C}
HEAD = s[HS:C]  # the channels of the second head
QUERY, KEY, VALUE = HEAD, s[C + HS : 2 * C], s[2 * C + HS : 3 * C]
AT = 5  # the channel of `out` that is spoiled in VALUE and dout


def attention_reach(what, t):
    """Give what is spoiled at position t, and what that reaches forward and in dqkv.

    In the second head of the second sequence. Row t has the pairs of query t with the keys up to t,
    column t those of key t with the queries from t on.
    """
    row, column = s[1, : t + 1], s[1, t:]
    return {
        "query": (
            ("qkv", s[1, t, HS]),
            {"out": [s[1, t, HEAD]], "lse": [s[1, 1, t]]},
            [s[1, t, QUERY], (*row, KEY), (*row, VALUE)],
        ),
        "key": (
            ("qkv", s[1, t, C + HS]),
            {"out": [(*column, HEAD)], "lse": [s[1, 1, t:]]},
            [(*column, QUERY), s[1, t, KEY], s[1, t, VALUE]],
        ),
        "value": (
            ("qkv", s[1, t, 2 * C + AT]),
            {"out": [(*column, AT)]},
            [(*column, QUERY), s[1, t, KEY]],
        ),
        "dout": (("dout", s[1, t, AT]), None, [s[1, t, QUERY], (*row, KEY), (*row, 2 * C + AT)]),
        "out": (("out", s[1, t, AT]), None, [s[1, t, QUERY], (*row, KEY)]),
        "lse": (("lse", s[1, 1, t]), None, [s[1, t, QUERY], (*row, KEY), (*row, VALUE)]),
    }[what]


@pytest.mark.parametrize("what", ["query", "key", "value", "dout", "out", "lse"])
def test_reach_in_attention(backend, what, rng):
    """A position reaches those that see it or that it sees; a masked pair is none."""
    for t in (0, 3, T - 1):
        spoiled, forward, backward = attention_reach(what, t)
        if forward is not None:
            check_reach(backend, "attention_forward", ATTENTION, spoiled, forward, rng)
        check_reach(backend, "attention_backward", ATTENTION, spoiled, {"dqkv": backward}, rng)


def test_infinity_stays_visible(backend):
    inp = np.array([[[np.inf, -np.inf, np.nan]]])  # -infinity meets a factor of 0
    out = call(backend, "gelu_forward", {"out": np.zeros(inp.shape), "inp": inp}, {}, "float32")
    assert np.array_equal(out["out"], [[[np.inf, np.nan, np.nan]]], equal_nan=True)
    arrays = {"outcome": np.zeros(2), "grads": np.array([1.0, -np.inf])}
    norm = call(backend, "global_norm", arrays, {}, "float32")
    assert norm["outcome"].tolist() == [0, np.inf]
    arrays = {
        "losses": np.zeros((1, 2)),
        "logits": np.array([[[0, -np.inf, 1], [np.inf, 0, 0]]]),
        "targets": np.array([[1, 0]], np.int32),
    }
    losses = call(backend, "crossentropy_forward", arrays, {"V": 3}, "float32")["losses"]
    assert losses[0, 0] == np.inf
    assert np.isnan(losses[0, 1])
