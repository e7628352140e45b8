"""The table in a docstring is read, and every call is held to it."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llmpy import ops
from llmpy.errors import UsageError
from llmpy.ops.contract import Row, bind, op, rows

from ..op_cases import OPS


@op
def example(out, ids, table, bias, *, NH):
    """Do something.

    out    f   (B, T, 3C)     writes       what comes out
    ids    i32 (B, T)         reads
    table  f   (Vp, C)        accumulates
    bias   f   (NH) optional  reads
    """
    out[:] = 1
    return NH


def arguments(**changes):
    """Give the arguments of a right call of `example`, changed."""
    right = {
        "out": np.zeros((2, 3, 12)),
        "ids": np.zeros((2, 3), np.int32),
        "table": np.zeros((7, 4)),
        "bias": np.zeros(2),
        "NH": 2,
    }
    return right | changes


def test_rows():
    want = (
        Row("out", "f", ("B", "T", "3C"), False, "writes"),
        Row("ids", "i32", ("B", "T"), False, "reads"),
        Row("table", "f", ("Vp", "C"), False, "accumulates"),
        Row("bias", "f", ("NH",), True, "reads"),
    )
    assert rows(example) == want
    assert rows(bind(example, lambda out, ids, table, bias, *, NH: None)) == want
    assert want[0].shape == "(B, T, 3C)"


def test_right_calls():
    call = arguments()
    assert example(*list(call.values())[:4], NH=2) == 2
    assert (call["out"] == 1).all()
    assert example(**arguments(bias=None)) == 2
    f32 = {k: np.zeros(v.shape, np.float32) for k, v in call.items() if k in ("out", "table")}
    assert example(**arguments(bias=None, **f32)) == 2


def read_only(shape):
    array = np.zeros(shape)
    array.flags.writeable = False
    return array


WRONG = [
    (
        {"out": np.zeros((2, 3))},
        "out has shape (2, 3), expected (B, T, 3C) with B=2, T=3, C=4",
    ),
    (
        {"out": np.zeros((2, 3, 4))},
        "out has shape (2, 3, 4), expected (B, T, 3C) with B=2, T=3, C=4",
    ),
    ({"ids": np.zeros((2, 5), np.int32)}, "ids has shape (2, 5), expected (B, T) with B=2, T=3"),
    ({"table": np.zeros(7)}, "table has shape (7,), expected (Vp, C) with C=4"),
    ({"bias": np.zeros(4)}, "bias has shape (4,), expected (NH) with NH=2"),
    ({"table": None}, "table is None, expected an array (Vp, C)"),
    ({"ids": [[0, 1]]}, "ids is of type list, expected an array (B, T)"),
    ({"ids": np.zeros((2, 3), np.int64)}, "ids has dtype int64, expected int32"),
    (
        {"table": np.zeros((7, 4), np.float32)},
        "table has dtype float32, expected float64, that of out",
    ),
    ({"out": np.zeros((2, 3, 12), int)}, "out has dtype int64, expected floating point"),
    ({"table": read_only((7, 4))}, "table is read-only, expected an array to write to"),
    ({"NH": 3, "bias": None}, "NH is 3, expected a divisor of C = 4"),
    ({"NH": 0, "bias": None}, "NH is 0, expected a divisor of C = 4"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[m for _, m in WRONG])
def test_wrong_calls(changes, message):
    with pytest.raises(UsageError) as e:
        example(**arguments(**changes))
    assert str(e.value) == f"example: {message}"


def test_the_first_array_with_a_letter_gives_its_size():
    x = np.zeros((2, 3, 8))
    with pytest.raises(UsageError) as e:
        ops.layernorm_forward(x, x[..., 0], x[..., 1], x, np.zeros(7), None)
    assert str(e.value) == "layernorm_forward: weight has shape (7,), expected (C) with C=8"


def test_too_many_positions():
    tokens = np.zeros((1, 5), np.int32)
    with pytest.raises(UsageError) as e:
        ops.encoder_forward(np.zeros((1, 5, 2)), tokens, np.zeros((3, 2)), np.zeros((4, 2)))
    assert str(e.value) == "encoder_forward: T is 5, expected at most maxT = 4"


@pytest.mark.parametrize(
    ("V", "message"),
    [(4, "V is 4, expected at most Vp = 3"), (0, "V is 0, expected at least 1")],
)
def test_wrong_vocabulary(V, message):
    with pytest.raises(UsageError) as e:
        ops.softmax_forward(np.zeros((1, 1, 3)), np.zeros((1, 1, 3)), V=V)
    assert str(e.value) == f"softmax_forward: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0}, "step is 0, expected at least 1"),
        (
            {"decay": ((0, 2), (3, 6))},
            "decay has the range (3, 6), expected 0 <= start <= stop <= N = 5",
        ),
        (
            {"decay": ((-1, 2),)},
            "decay has the range (-1, 2), expected 0 <= start <= stop <= N = 5",
        ),
    ],
)
def test_wrong_scalars_of_adamw(changes, message):
    scalars = {"lr": 1, "beta1": 0, "beta2": 0, "eps": 1, "weight_decay": 0, "grad_scale": 1}
    scalars |= {"step": 1, "decay": None, "max_norm": 0} | changes
    arrays = np.zeros((4, 5), np.float32)
    for function in (ops.adamw, bind(ops.adamw, ops.adamw)):
        with pytest.raises(UsageError) as e:
            function(*arrays, None, **scalars)
        assert str(e.value) == f"adamw: {message}"


def test_a_call_with_missing_arguments_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing a required argument: 'inp'"):
        ops.gelu_forward(np.zeros((1, 1, 1)))


def test_a_table_that_differs_from_the_parameters_is_refused():
    @op
    def wrong(out, inp):
        """Do something.

        out  f (N)  writes
        """

    with pytest.raises(TypeError) as e:
        wrong(np.zeros(1), np.zeros(1))
    text = "wrong: the table lists ('out',), the parameters are ('out', 'inp')"
    assert str(e.value) == text


def bound():
    """Give `example` bound to a backend's function, and the list of its calls."""
    calls = []

    def fast(out, ids, table, bias, *, NH):
        calls.append(NH)

    return bind(example, fast), calls


def float32(**changes):
    call = arguments(**changes)
    return {k: v.astype("f4") if getattr(v, "dtype", None) == "f8" else v for k, v in call.items()}


def test_bind_keeps_name_documentation_and_signature():
    function, _ = bound()
    assert function.__name__ == "fast"
    assert function.__doc__ == example.__doc__
    assert inspect.signature(function) == inspect.signature(example)


def test_bind_checks_every_new_set_of_shapes():
    function, calls = bound()
    for _ in range(2):
        right = list(float32().values())[:4]
        function(*right, NH=2)
        function(*right[:3], None, NH=2)
        wrong = [*right[:3], np.zeros(5, np.float32)]
        with pytest.raises(UsageError) as e:
            function(*wrong, NH=2)
        assert str(e.value) == "example: bias has shape (5,), expected (NH) with NH=2"
        with pytest.raises(UsageError) as e:
            function(*right[:3], None, NH=3)
        assert str(e.value) == "example: NH is 3, expected a divisor of C = 4"
        with pytest.raises(UsageError) as e:
            function(right[0], [[1]], *right[2:], NH=2)
        assert str(e.value) == "example: ids is of type list, expected an array (B, T)"
        function(**float32())  # by name: checked at every call
    assert calls == [2, 2, 2] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": np.zeros((7, 4))}, "table has dtype float64, expected float32"),
        (
            {"table": np.zeros((4, 7), np.float32).T},
            "table has strides (4, 28), expected contiguous rows."
            " Copy it with np.ascontiguousarray.",
        ),
    ],
)
def test_bind_wants_contiguous_float32(changes, message):
    function, calls = bound()
    call = float32() | changes
    for _ in range(2):
        with pytest.raises(UsageError) as e:
            function(*list(call.values())[:4], NH=2)
        assert str(e.value) == f"example: {message}"
    assert not calls


def test_every_op_has_a_table():
    assert len(OPS) == 24
    for name in (*OPS, "attention_scores"):
        table = rows(getattr(ops, name))
        modes = {row.mode for row in table}
        assert modes - {"reads"}, name
        has_flag = "accumulate" in inspect.signature(getattr(ops, name)).parameters
        assert ("accumulates" in modes) == has_flag or name == "mean_loss", name


def test_without_docstrings_ops_run_unchecked():
    code = (
        "import numpy as np; from llmpy import ops; x = np.ones((1, 1, 2));"
        "ops.residual_forward(x, x, x); print(x.tolist(), ops.contract.rows(ops.gelu_forward));"
        "f = ops.contract.bind(ops.attention_forward, lambda out, lse, qkv, *, NH: out.fill(NH));"
        "f(x, x, x, NH=1); print(x.tolist())"
    )
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-OO", "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[[[2.0, 2.0]]] ()\n[[[1.0, 1.0]]]\n"
