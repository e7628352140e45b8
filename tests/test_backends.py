"""Every op of every backend, against the reference in float64."""

import importlib
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from llmpy import ops

from .check import Together, close
from .op_cases import MODULES, OPS, all_calls, call, op_file, round_arrays
from .tolerances import STEPPED_TOGETHER, Tolerance, is_stepped, tolerance_of

ROOT = Path(__file__).parent.parent
FLAT = ("adamw", "global_norm")  # files of ops without positions
NO_POSITION = {"B": 2, "T": 3, "C": 6, "OC": 5, "NH": 2, "V": 7, "Vp": 9, "maxT": 4, "N": 0}


@pytest.fixture
def backend(backend):
    return importlib.import_module(MODULES[backend])


@pytest.mark.parametrize("name", OPS)
def test_op_equals_the_reference(backend, name, rng):
    compare(backend, name, all_calls(name, rng, backend=backend))


@pytest.mark.parametrize("empty", ["B", "T"])
@pytest.mark.parametrize("name", [name for name in OPS if op_file(name) not in FLAT])
def test_an_op_on_no_position(backend, name, empty, rng):
    """What is added to is as it was; what is written is the sum of nothing."""
    compare(backend, name, all_calls(name, rng, [{**NO_POSITION, empty: 0}], backend))


def compare(backend, name, calls):
    """Check calls of an op against the reference, each by itself and what must be all together."""
    stepped = defaultdict(Together)
    for text, arrays, scalars in calls:
        want = call(ops, name, arrays, scalars, "float64")
        got = call(backend, name, arrays, scalars, "float32")
        for output in want:
            tolerance = tolerance_of(name, output, scalars)
            close(got[output], want[output], tolerance, f"{text}: {output}")
            if is_stepped(name, output, scalars):
                stepped[output].add(got[output], want[output])
    for output, together in stepped.items():
        together.close(STEPPED_TOGETHER, f"{name} with bf16: {output}")


# hard inputs: by name of the op, what is done to its arrays, and how near the result must come

LARGE_MEAN = Tolerance(1e-3, 1e-3, 3e-3, "the mean of numbers near 1000, rounded to 1e-4")
STEEP = Tolerance(2e-5, 1e-4, 1e-4, "scores near 200, rounded to 1e-5, in an exponent")
STEEP_BACKWARD = Tolerance(1e-4, 1e-3, 5e-3, "scores near 200, differences of near equals")
STEEP_STEPPED = Tolerance(1e-2, 1e-2, 1e-1, "such scores; a weight rounded to the other neighbour")


def huge_logits(a):
    a["logits"] *= 1e4


def minus_infinity(a):
    a["logits"][..., ::2] = -np.inf
    a["logits"][..., 1] = -3e38  # and far below any stand-in for minus infinity
    if "targets" in a:
        a["targets"][:] = 1


def very_negative(a):
    a["logits"] -= 1e6


def unlikely_target(a):
    a["logits"][..., 3] = 300
    a["targets"][:] = 1


def padded_columns(a):
    a["logits"][..., 7:] = np.nan


def padded_rows(a):
    a["wte"][7:] = np.nan


def huge_lnf(a):
    a["lnf"] *= 200


def large_mean(a):
    a["inp" if "inp" in a else "inp1"] += 1000


def large_mean_backward(a):
    a["inp"] += 1000
    a["mean"] += 1000


def zero_variance(a):
    for name in a.keys() & {"inp", "inp1", "inp2"}:
        a[name][:] = 3


def zero_variance_backward(a):
    a["inp"][:] = 3
    a["mean"][:] = 3
    a["rstd"][:] = 1e-5**-0.5


def tails(a):
    values = [-1e30, -1e19, -1e12, -300, -50, -20, -12, -9, -5.5, -3, -1e-20, 0, 1e-30, 4, 9, 50]
    name = "inp" if "inp" in a else "pre"
    a[name].reshape(-1)[: len(values)] = np.array(values, np.float32)
    a[name].reshape(-1)[len(values) : 2 * len(values)] = -np.array(values, np.float32)


def steep_scores(a):
    a["qkv"] *= 10


def equal_scores(a):
    a["qkv"][:] = 1


def huge_scores(a):
    """Scores of a million and more, all equal, so that the values are averaged."""
    C = a["qkv"].shape[-1] // 3
    a["qkv"][..., : 2 * C] = 1000


def hugely_negative_scores(a):
    huge_scores(a)
    C = a["qkv"].shape[-1] // 3
    a["qkv"][..., C : 2 * C] = -1000


def huge_gradient(a):
    a["grads"] *= 1e30


def tiny_gradient(a):
    a["grads"] *= 1e-30
    for name in a.keys() & {"m", "v"}:
        a[name][:] = 0


SMALL = {"B": 2, "T": 3, "C": 6, "V": 7, "Vp": 16, "NH": 2, "maxT": 4, "N": 9, "OC": 5}
WIDE = {**SMALL, "C": 48}
NARROW = {**SMALL, "T": 16, "C": 1, "NH": 1, "maxT": 16}
HARD = [
    ("softmax_forward", huge_logits, None),
    ("softmax_forward", minus_infinity, None),
    ("softmax_forward", very_negative, None),
    ("softmax_forward", padded_columns, None),
    ("crossentropy_forward", huge_logits, Tolerance(1e-6, 1e-6, 1e-2, "losses near 10000")),
    ("crossentropy_forward", minus_infinity, Tolerance(1e-6, 1e-6, 1e32, "losses near 3e38")),
    ("crossentropy_forward", very_negative, None),
    ("crossentropy_forward", unlikely_target, Tolerance(1e-6, 1e-6, 1e-4, "losses near 300")),
    ("crossentropy_forward", padded_columns, None),
    ("classifier_forward", padded_rows, None),
    ("classifier_forward", huge_lnf, Tolerance(1e-5, 1e-5, 1e-3, "losses near 500")),
    ("classifier_forward_backward", padded_rows, None),
    ("classifier_forward_backward", huge_lnf, Tolerance(1e-4, 1e-3, 1e-2, "logits near 500")),
    ("layernorm_forward", large_mean, LARGE_MEAN),
    ("layernorm_forward", zero_variance, None),
    ("residual_layernorm_forward", large_mean, LARGE_MEAN),
    ("residual_layernorm_forward", zero_variance, None),
    ("layernorm_backward", large_mean_backward, Tolerance(2e-4, 1e-4, 1e-3, "inputs near 1000")),
    ("layernorm_backward", zero_variance_backward, Tolerance(2e-4, 1e-4, 1e-3, "rstd is 316")),
    ("gelu_forward", tails, None),
    ("gelu_backward", tails, None),
    ("matmul_gelu_backward", tails, None),
    ("attention_forward", steep_scores, STEEP),
    ("attention_forward", equal_scores, None),
    ("attention_forward", huge_scores, None),
    ("attention_forward", hugely_negative_scores, None),
    ("attention_backward", equal_scores, None),
    ("global_norm", huge_gradient, None),
    ("global_norm", tiny_gradient, Tolerance(1e-7, 2e-7, 0, "float64 sums")),
    ("adamw", tiny_gradient, None),
]


@pytest.mark.parametrize(
    ("name", "harden", "tolerance"), HARD, ids=[f"{n}-{f.__name__}" for n, f, _ in HARD]
)
def test_hard_inputs(backend, name, harden, tolerance, rng):
    for text, arrays, scalars in all_calls(name, rng, [SMALL, WIDE, NARROW], backend):
        harden(arrays)
        round_arrays(arrays)
        want = call(ops, name, arrays, scalars, "float64")
        got = call(backend, name, arrays, scalars, "float32")
        for output in want:
            assert np.isfinite(want[output]).all(), f"{text}: the reference isn't finite"
            close(got[output], want[output], tolerance_of(name, output, scalars, tolerance), text)


def test_attention_backward_with_steep_scores(backend, rng):
    """The gradient of a saturated softmax is the difference of near equals: judged by its size."""
    sizes = {"B": 2, "T": 17, "C": 32, "NH": 2}
    for text, arrays, scalars in all_calls("attention_backward", rng, [sizes], backend):
        arrays["qkv"] *= 6
        round_arrays(arrays)
        forward = {"out": arrays["out"], "lse": arrays["lse"], "qkv": arrays["qkv"]}
        want = call(ops, "attention_forward", forward, scalars, "float64")
        got = call(backend, "attention_forward", forward, scalars, "float32")
        both = []
        for module, made, dtype in ((ops, want, "float64"), (backend, got, "float32")):
            arrays.update({key: x.astype(np.float64) for key, x in made.items()})
            both.append(call(module, "attention_backward", arrays, scalars, dtype)["dqkv"])
        stepped = is_stepped("attention_backward", "dqkv", scalars)
        close(both[1], both[0], STEEP_STEPPED if stepped else STEEP_BACKWARD, text)


def test_same_documentation(backend):
    """Signatures are compared in test_api.py."""
    for name in OPS:
        assert getattr(backend, name).__doc__ == getattr(ops, name).__doc__, name


def test_wrong_calls_are_refused(backend):
    x = backend.alloc((2, 3, 8))
    row = backend.alloc((2, 3))
    with pytest.raises(ValueError, match="expected") as e:
        backend.layernorm_forward(x, row, row, x, backend.alloc((7,)), None)
    assert str(e.value) == "layernorm_forward: weight has shape (7,), expected (C) with C=8"


def test_memory(backend):
    assert backend.name in MODULES
    assert backend.describe()
    block = backend.alloc((10,))
    assert np.asarray(backend.download(block)).dtype == np.float32
    assert not np.asarray(backend.download(block)).any()
    assert np.asarray(backend.download(backend.alloc((2, 3), "int32"))).dtype == np.int32
    part = backend.view(block, 3, (2, 3))
    backend.upload(part, np.arange(6, dtype=np.float32).reshape(2, 3))
    backend.sync()
    assert np.asarray(backend.download(block)).tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 5, 0]
    backend.zero(part)
    assert not np.asarray(backend.download(block)).any()


def run_python(code, **environment):
    """Run a line of Python in the repository, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# sizes with some work for each thread, of several blocks, chunks and pieces, and some without
SPLIT = [
    {"B": 4, "T": 150, "C": 264, "OC": 300, "NH": 3, "V": 70, "Vp": 128, "maxT": 150, "N": 40_000},
    {"B": 2, "T": 67, "C": 48, "OC": 150, "NH": 3, "V": 300, "Vp": 384, "maxT": 67, "N": 70_001},
    {"B": 3, "T": 5, "C": 7, "OC": 3, "NH": 7, "V": 5, "Vp": 9, "maxT": 6, "N": 3},
]


def compare_threads(seed):
    """Check that 1 and 2 threads give the same bits, wherever the arrays lie in memory."""
    import numba

    from llmpy import cpu

    rng = np.random.default_rng(seed)
    for name in OPS:
        for text, arrays, scalars in all_calls(name, rng, SPLIT):
            numba.set_num_threads(1)
            once = call(cpu, name, arrays, scalars, "float32")
            for threads, offset in ((2, 0), (2, 1), (1, 3)):
                numba.set_num_threads(threads)
                again = call(cpu, name, arrays, scalars, "float32", offset)
                for output in once:
                    same = once[output].tobytes() == again[output].tobytes()
                    assert same, f"{text}: {output} differs, {threads} threads, offset {offset}"


def test_same_bits_on_any_number_of_threads(rng):
    code = f"from tests.test_backends import compare_threads; compare_threads({rng.integers(1e9)})"
    run_python(code, NUMBA_NUM_THREADS="2")


# small enough for loops in Python
TINY = [
    {"B": 1, "T": 3, "C": 4, "OC": 5, "NH": 2, "V": 3, "Vp": 5, "maxT": 4, "N": 5},
    {"B": 2, "T": 1, "C": 1, "OC": 1, "NH": 1, "V": 1, "Vp": 2, "maxT": 1, "N": 1},
    {"B": 2, "T": 5, "C": 18, "OC": 17, "NH": 1, "V": 17, "Vp": 19, "maxT": 5, "N": 35},
]


def compare_tiny(seed):
    """Check the CPU backend on tiny sizes."""
    from llmpy import cpu

    rng = np.random.default_rng(seed)
    for name in OPS:
        with np.errstate(all="ignore"):
            compare(cpu, name, all_calls(name, rng, TINY))


def test_without_the_jit(rng):
    """The kernels are Python: they give the same numbers when they run as such."""
    code = f"from tests.test_backends import compare_tiny; compare_tiny({rng.integers(1e9)})"
    run_python(code, NUMBA_DISABLE_JIT="1")
