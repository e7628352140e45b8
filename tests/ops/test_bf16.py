"""bf16=True: which operands are rounded, what is not, and that a backend's mistake would show."""

import math

import numpy as np
import pytest

from llmpy import ops

from ..check import Together, close
from ..op_cases import call, make_arrays
from ..tolerances import STEPPED_TOGETHER, is_stepped, tolerance_of
from . import loops

SIZES = {"B": 2, "T": 9, "C": 12, "OC": 7, "NH": 2, "V": 11, "Vp": 16, "N": 18}

# the operands of products, by the names of loops.py
MATMUL = {"inp", "weight"}
MATMUL_BACKWARD = {"dout of dinp", "weight of dinp", "dout of dweight", "inp of dweight"}
ROUNDED = {
    "matmul_forward": MATMUL,
    "matmul_backward": MATMUL_BACKWARD,
    "classifier_forward": MATMUL,
    "classifier_forward_backward": MATMUL | MATMUL_BACKWARD,
    "attention_forward": {"query", "key", "exp", "value"},
    "attention_backward": {
        *("query", "key", "dout of datt", "value of datt", "att of dvalue", "dout of dvalue"),
        *("dpreatt of dquery", "key of dquery", "dpreatt of dkey", "query of dkey"),
    },
}
# what else a backend could round by mistake
NOT_ROUNDED = {
    "matmul_forward": {"bias"},
    "matmul_backward": {"dout of dbias"},
    "classifier_forward": set(),
    "classifier_forward_backward": set(),
    "attention_forward": {"exp of total", "lse"},
    "attention_backward": {"dout of D", "out of D", "att of dpreatt"},
}
EACH = pytest.mark.parametrize("name", ROUNDED)


def nearest(x):
    """Round one number to 8 bits, ties to even, as round() does; far from overflow."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(mantissa, 8)), exponent - 8)


def cut(x):
    """Cut one number off after 8 bits."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(math.trunc(math.ldexp(mantissa, 8)), exponent - 8)


def truth(name, a, names, rounding=nearest):
    """Give the outputs of an op by loops in which the operands in `names` are rounded."""

    def r(what, x):
        return rounding(x) if what in names else x

    made = {
        "matmul_forward": lambda: (loops.matmul(a["inp"], a["weight"], a["bias"], r),),
        "matmul_backward": lambda: loops.matmul_gradients(a["dout"], a["inp"], a["weight"], r),
        "classifier_forward": lambda: (
            loops.classifier(a["lnf"], a["wte"], a["targets"], SIZES["V"], r)[0],
        ),
        "classifier_forward_backward": lambda: loops.classifier_gradients(
            a["lnf"], a["wte"], a["targets"], SIZES["V"], 0.625, r
        ),
        "attention_forward": lambda: loops.attention(a["qkv"], SIZES["NH"], r),
        "attention_backward": lambda: (
            loops.attention_gradient(a["dout"], a["out"], a["lse"], a["qkv"], SIZES["NH"], r),
        ),
    }[name]()
    return dict(zip(list(a)[: len(made)], made, strict=True))  # outputs come first


def make_case(name, rng):
    """Make the arrays of a call, and its scalars."""
    names = {"attention": ["NH"], "classifier": ["V"]}.get(name.split("_")[0], [])
    scalars = {key: SIZES[key] for key in names} | {"bf16": True}
    if name.endswith("backward") and not name.startswith("attention"):
        scalars["accumulate"] = False
    if name == "classifier_forward_backward":
        scalars["dloss"] = 0.625
    return make_arrays(name, SIZES, scalars, rng), scalars


@EACH
def test_just_these_operands_are_rounded(name, rng):
    arrays, scalars = make_case(name, rng)
    got = call(ops, name, arrays, scalars, "float64")
    for output, want in truth(name, arrays, ROUNDED[name]).items():
        np.testing.assert_allclose(got[output], want, rtol=1e-11, atol=1e-12, err_msg=output)
    scalars["bf16"] = False
    got = call(ops, name, arrays, scalars, "float64")
    for output, want in truth(name, arrays, set()).items():
        np.testing.assert_allclose(got[output], want, rtol=1e-11, atol=1e-12, err_msg=output)


def judge(name, got, want, scalars):
    """Judge as test_backends.py does."""
    for output in want:
        close(got[output], want[output], tolerance_of(name, output, scalars), output)
        if is_stepped(name, output, scalars):
            together = Together()
            together.add(got[output], want[output])
            together.close(STEPPED_TOGETHER, output)


@EACH
def test_a_backend_that_rounds_otherwise_is_found(name, rng):
    """One operand left as it is, one number too many rounded, or operands cut off."""
    arrays, scalars = make_case(name, rng)
    want = call(ops, name, arrays, scalars, "float64")
    right = ROUNDED[name]
    judge(name, truth(name, arrays, right), want, scalars)
    wrong = [(f"{x} not rounded", truth(name, arrays, right - {x})) for x in right]
    wrong += [(f"{x} rounded", truth(name, arrays, right | {x})) for x in NOT_ROUNDED[name]]
    wrong += [("cut off", truth(name, arrays, right, cut))]
    for what, got in wrong:
        try:
            judge(name, got, want, scalars)
        except AssertionError:
            continue
        pytest.fail(f"{name}: {what}, and not found")


def test_matmul_by_hand():
    """1 + 1/256 lies between 1 and 1 + 1/128: a tie, that goes to 1; 1 + 3/256 goes up."""
    tie, up = 1 + 2.0**-8, 1 + 3 * 2.0**-8
    for dtype in (np.float32, np.float64):
        inp, weight = np.array([[[tie, up]]], dtype), np.array([[1, 1], [tie, 0], [0, up]], dtype)
        bias, out = np.array([tie, 0, 0], dtype), np.full((1, 1, 3), np.nan, dtype)
        ops.matmul_forward(out, inp, weight, bias, bf16=True)
        assert out.tolist() == [[[1 + 1 + 2.0**-6 + tie, 1, (1 + 2.0**-6) ** 2]]]
        dinp, dweight, dbias = np.empty_like(inp), np.empty_like(weight), np.empty_like(bias)
        dout = np.array([[[tie, up, 0]]], dtype)
        ops.matmul_backward(dinp, dweight, dbias, dout, inp, weight, accumulate=False, bf16=True)
        assert dinp.tolist() == [[[1 + 1 + 2.0**-6, 1]]]
        assert dweight.tolist() == [
            [1, 1 + 2.0**-6], [1 + 2.0**-6, (1 + 2.0**-6) ** 2], [0, 0]
        ]  # fmt: skip
        assert dbias.tolist() == [tie, up, 0]


def test_nan_infinity_and_numbers_past_the_largest():
    largest = np.float32(2.0**128 - 2.0**120)
    inp = np.array([[[np.nan]], [[np.inf]], [[largest]], [[np.float32(3.4e38)]]], np.float32)
    out = np.empty((4, 1, 1), np.float32)
    ops.matmul_forward(out, inp, np.ones((1, 1), np.float32), None, bf16=True)
    assert np.array_equal(out.ravel(), [np.nan, np.inf, largest, np.inf], equal_nan=True)


def test_the_fused_matmuls_pass_it_on(rng):
    """They are compositions, with and without."""
    inp, weight, bias = (rng.standard_normal(s) for s in ((2, 3, 5), (7, 5), 7))
    out, pre, plain, gelu = (np.full((2, 3, 7), np.nan) for _ in range(4))
    ops.matmul_gelu_forward(out, pre, inp, weight, bias, bf16=True)
    ops.matmul_forward(plain, inp, weight, bias, bf16=True)
    ops.gelu_forward(gelu, plain)
    assert np.array_equal(pre, plain)
    assert np.array_equal(out, gelu)
    got, want = ([np.zeros_like(x) for x in (inp, weight, bias)] for _ in range(2))
    again, gelu = np.full_like(inp, np.nan), np.empty_like(inp)
    ops.matmul_gelu_backward(*got, out, again, weight, inp, accumulate=False, bf16=True)
    ops.gelu_forward(gelu, inp)
    ops.matmul_backward(*want, out, gelu, weight, accumulate=False, bf16=True)
    dgelu, want[0] = want[0], np.zeros_like(inp)
    ops.gelu_backward(want[0], inp, dgelu)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    logits = np.empty((6, 7))
    ops.logits_forward(logits, inp.reshape(6, 5), weight, bf16=True)
    ops.matmul_forward(plain, inp, weight, None, bf16=True)
    assert np.array_equal(logits, plain.reshape(6, 7))
