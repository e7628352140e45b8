"""docs/matmul.md and its program: each step is right, and what the page shows is the program."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from numba import get_num_threads, njit, set_num_threads

from bench import matmul_steps as module
from bench.matmul_steps import STEPS, check, main, tile, tile_twin
from llmpy.cpu.gemm import KC
from llmpy.cpu.memory import data
from llmpy.cpu.simd import MR, NR, choose_tile
from llmpy.cpu.threads import set_threads

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "matmul.md").read_text(encoding="utf-8")
PROGRAM = (ROOT / "bench" / "matmul_steps.py").read_text(encoding="utf-8")
SIZES = [
    (1, 1, 1),
    (MR - 1, NR - 1, 7),
    (MR, NR, 8),
    (MR + 1, NR + 1, 9),
    (3 * MR + 2, 2 * NR + 3, KC),
    (3 * MR + 1, 3 * NR + 5, KC + 3),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let small matrices have several blocks, and put the number of threads back."""
    monkeypatch.setattr(module, "block_rows", lambda: 2 * MR)
    before = get_num_threads()
    yield
    set_num_threads(before)


def run(step, a, b):
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    step.run(c, a, b)
    return c


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_is_right(rng, step):
    for M, N, K in SIZES:
        a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
        want = a.astype(np.float64) @ b
        got = run(step, a, b)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * (K + 2), err_msg=f"{M, N, K}")


def test_the_order_of_the_loops_does_not_change_the_bits(rng):
    a, b = rng.standard_normal((5, 40), np.float32), rng.standard_normal((40, 19), np.float32)
    want = run(STEPS[0], a, b)
    for step in STEPS[1:3]:
        np.testing.assert_array_equal(run(step, a, b), want)


def test_neither_threads_nor_blocks_change_the_bits(rng, monkeypatch):
    M, N, K = 5 * MR + 2, 5 * NR + 3, 2 * KC + 9
    a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
    blocking, threads, own = STEPS[5:]
    want = run(own, a, b)
    for rows in (MR, 2 * MR, 10 * MR):
        monkeypatch.setattr(module, "block_rows", lambda rows=rows: rows)
        np.testing.assert_array_equal(run(blocking, a, b), want)
        for count in (1, 2):
            set_threads(count)
            np.testing.assert_array_equal(run(threads, a, b), want)


def test_twin_of_the_tile(rng):
    K = 9
    a, b, c = (rng.standard_normal(s, np.float32) for s in ((MR, K), (K, NR + 2), (MR, NR + 1)))
    again, want = c.copy(), c.copy()
    want[:, :NR] += a.astype(np.float64) @ b[:, :NR]
    for function, out in ((njit(lambda *x: tile(*x)), c), (tile_twin, again)):
        function(data(out), NR + 1, data(a), K, 1, data(b), NR + 2, K)
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(out[:, NR], want[:, NR])


def test_check_can_fail(rng):
    want = rng.standard_normal((100, 100))
    for wrong in (want[3, 4] + 0.1, np.nan):
        c = want.astype(np.float32)
        check("step", c, want)
        c[3, 4] = wrong
        with pytest.raises(SystemExit, match=r"^step: relative L2 norm of the error is .*1e-05$"):
            check("step", c, want)


def test_program(monkeypatch, capsys):
    monkeypatch.setattr(module, "peak_gflops", lambda: 100.0)
    monkeypatch.setattr(module, "ENOUGH_S", 0.0)
    main(["--size", "20", "40", "30", "--step", "1", "6", "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [
        "peak of the tile, 1 thread: 100 GFLOP/s",
        "c (20, 40) = a (20, 30) b (30, 40), 0.00 GFLOP",
    ]
    rows = [line.split(" | ")[:3] for line in lines[-2:]]
    assert rows == [["| 1", STEPS[1].name, "1"], ["| 6", STEPS[6].name, "1"]]


def test_program_refuses_no_rows(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--size", "0", "1", "1"])
    assert "argument --size: 0, expected at least 1" in capsys.readouterr().err


# the page


def quoted():
    """Give the page's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def functions_of_the_steps():
    """Give the source of each function that belongs to a step, with its decorators."""
    steps = PROGRAM.split("# run them")[0]
    lines = steps.splitlines(keepends=True)
    for node in ast.parse(steps).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
            yield node.name, "".join(lines[first - 1 : node.end_lineno])


def test_what_the_page_quotes_is_the_program():
    for block in quoted():
        assert f"\n{block}" in PROGRAM, block


def test_the_page_quotes_every_step():
    functions = dict(functions_of_the_steps())
    assert {step.run.__name__ for step in STEPS} <= set(functions)
    shown = "\n".join(quoted())
    for name, source in functions.items():
        assert source in shown, name


def test_the_table_has_every_step():
    for i, step in enumerate(STEPS):
        assert re.search(rf"^\| {i} \| {re.escape(step.name)} \| \d", PAGE, re.M), step.name
        assert re.search(rf"^## Step {i}: ", PAGE, re.M)


def test_sizes_that_the_page_reckons_with():
    assert choose_tile({})[:3] == (8, 6, 2)
    assert "`MR` x `NR` = 6 x 16" in PAGE
    assert f"`KC` = {KC}" in PAGE
    assert module.SIZE == (1024, 3072, 768)
