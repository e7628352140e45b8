"""Arrays larger than a binding: where they are cut, and that ops don't mind."""

from types import SimpleNamespace

import pytest

from llmpy.webgpu.memory import Array, Piece
from llmpy.webgpu.ranges import UNIT, parts, runs, spans

from .. import op_cases
from ..test_backends import compare

BUFFERS = ("one", "two")


def make_array(*pieces, shape=None, max_binding=1 << 20):
    device = SimpleNamespace(max_binding=max_binding)
    pieces = tuple(Piece(*piece) for piece in pieces)
    return Array(device, shape or (sum(p.count for p in pieces),), "float32", pieces)


def test_a_run_is_what_lies_in_a_buffer_one_behind_the_other():
    one, two = BUFFERS
    array = make_array(
        (one, 0, 5), (one, 64, 64), (one, 128, 1), (two, 0, 70), (two, 128, 2), (two, 256, 9)
    )
    found = runs(array)
    assert [(r.first, r.start, r.stop, r.count) for r in found] == [
        (0, 0, 129, 70),
        (70, 0, 130, 72),
        (142, 256, 265, 9),  # elements of somebody else may lie before
    ]
    assert [found[0].place(i) for i in (0, 4, 5, 68, 69)] == [0, 4, 64, 127, 128]
    assert [found[1].place(i) for i in (70, 139, 140)] == [0, 69, 128]
    assert runs(make_array()) == []


def test_a_span_begins_where_a_binding_may():
    assert list(spans(70, 300, 128)) == [(64, 70, 192), (192, 192, 300)]
    assert list(spans(0, 128, 128)) == [(0, 0, 128)]
    assert UNIT == 64


def test_parts_are_whole_rows_and_alike():
    wide = make_array(("one", 0, 2000), shape=(2, 100, 10), max_binding=64 * 10 * 4)
    narrow = make_array(("two", 64, 200), shape=(2, 100), max_binding=64 * 10 * 4)
    cut = list(parts(200, narrow, None, wide))
    assert [(n.shape, nothing, w.shape) for n, nothing, w in cut] == [
        ((64, 1), None, (64, 10)),
        ((64, 1), None, (64, 10)),
        ((64, 1), None, (64, 10)),
        ((8, 1), None, (8, 10)),
    ]
    assert [(n.pieces[0].start, w.pieces[0].start) for n, _, w in cut] == [
        (64 + 64 * i, 640 * i) for i in range(4)
    ]
    assert list(parts(0, make_array(shape=(0, 3)))) == []


SMALL = ("attention", "mean_loss")  # files of ops that nobody has such arrays for
LARGE = [
    {"B": 3, "T": 70, "C": 40, "OC": 30, "NH": 2, "V": 40, "Vp": 45, "maxT": 75, "N": 9000},
    {"B": 2, "T": 129, "C": 17, "OC": 30, "NH": 1, "V": 59, "Vp": 64, "maxT": 129, "N": 5000},
]


@pytest.mark.webgpu
@pytest.mark.parametrize("name", [n for n in op_cases.OPS if op_cases.op_file(n) not in SMALL])
def test_ops_on_arrays_larger_than_a_binding(webgpu, small_bindings, name, rng):
    small_bindings(64 * 64 * 4)
    sizes = LARGE
    if op_cases.op_file(name) in ("encoder", "classifier"):
        sizes = [*LARGE, {"B": 2, "T": 65, "C": 20, "V": 299, "Vp": 300, "maxT": 65, "N": 130}]
    if name == "logits_forward":
        sizes = [{**LARGE[0], "N": 110}, sizes[-1]]
    compare(webgpu, name, op_cases.all_calls(name, rng, sizes, webgpu))
    largest = max(a.nbytes for _, arrays, _ in op_cases.all_calls(name, rng, sizes)
                  for a in arrays.values() if a is not None) // 2  # float64 here  # fmt: skip
    assert largest > webgpu.device().max_binding
