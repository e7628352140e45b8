"""Products on a device: shapes of the kernel, parts of matrices, and matrices beyond a binding."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from llmpy.errors import BackendError, UsageError
from llmpy.webgpu import search
from llmpy.webgpu.device import Device, kernel_source
from llmpy.webgpu.matmul import TILES, candidates, dinp_product, dweight_product, forward_product
from llmpy.webgpu.search import time_tiles

from ..check import close
from ..op_cases import all_calls
from ..test_backends import compare
from ..tolerances import SUMMED

pytestmark = pytest.mark.webgpu

SHAPES = ("32x32", "64x128", "direct-64x64-few")  # of each kind
EDGES = (63, 64, 65, 127, 128, 129)  # of the tiles of these


def upload(webgpu, array):
    """Give a copy of an array on the device."""
    copy = webgpu.alloc(array.shape)
    webgpu.upload(copy, array)
    return copy


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=SHAPES)
def tile(request, webgpu, monkeypatch):
    """A shape that products on the device have."""
    monkeypatch.setattr(webgpu.device(), "tile", request.param)


@pytest.mark.usefixtures("tile")
def test_every_shape_of_the_kernel(webgpu, rng):
    sizes = [
        {"B": 1, "T": T, "C": C, "OC": OC}
        for T, C, OC in zip(EDGES, EDGES[2:] + EDGES[:2], EDGES[4:] + EDGES[:4], strict=True)
    ]
    for name in ("matmul_forward", "matmul_backward"):
        calls = all_calls(name, rng, sizes)
        compare(webgpu, name, (call for call in calls if not call[2]["bf16"]))


@pytest.mark.parametrize("name", sorted(set(TILES) - set(SHAPES)))
def test_the_other_shapes(webgpu, rng, monkeypatch, name):
    """Each has other numbers of threads, rows and columns: all three products, with edges."""
    monkeypatch.setattr(webgpu.device(), "tile", name)
    sizes = [{"B": 1, "T": 131, "C": 37, "OC": 133}]
    for op in ("matmul_forward", "matmul_backward"):
        compare(webgpu, op, (call for call in all_calls(op, rng, sizes) if not call[2]["bf16"]))


def test_candidates(webgpu):
    names = candidates(webgpu.device())
    assert 6 <= len(names) <= len(TILES)
    for name in names:
        tile = TILES[name]
        assert tile["X"] * tile["Y"] <= 256, name
        floats = tile.get("BK", 8) * (tile["TM"] * tile["Y"] + tile["TN"] * tile["X"])
        assert floats * 4 <= 16 << 10, name


def test_candidates_are_timed(webgpu, monkeypatch):
    device = webgpu.device()
    monkeypatch.setattr(device, "tile", "64x64")
    told = []
    rates = time_tiles(device, 40, 24, 16, told.append)
    assert told == candidates(device)
    assert sorted(rate["tile"] for rate in rates) == sorted(told)
    speeds = [rate["gflops"] for rate in rates]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[-1] > 0
    for rate in rates:  # each product is as large as the others
        each = [rate[f"{name}_gflops"] for name in ("forward", "dinp", "dweight")]
        assert rate["gflops"] == pytest.approx(3 / sum(1 / x for x in each))
    assert device.tile == "64x64"  # as it was


def test_a_shape_that_the_driver_refuses_is_told_and_left_out(webgpu, monkeypatch, capfd):
    def product(*arrays):
        if webgpu.device().tile == "64x64":
            raise BackendError("webgpu: no")

    names = ("forward_product", "dinp_product", "dweight_product")
    for name in names:
        monkeypatch.setattr(search, name, product)
    rates = time_tiles(webgpu.device(), 4, 4, 4)
    tiles = {rate["tile"] for rate in rates}
    assert tiles == set(candidates(webgpu.device())) - {"64x64"}
    assert capfd.readouterr().err == "--tile 64x64: webgpu: no\n"


def test_a_run_takes_the_tile_that_is_asked_for(webgpu, monkeypatch):
    import llmpy.webgpu as backend

    made, first = [], SimpleNamespace(replaced=False)
    monkeypatch.setattr(backend, "Device", lambda *words: made.append(words))
    monkeypatch.setattr(backend, "_opened", [first])
    backend.open_device(object(), tile="128x64")
    assert made[0][1:] == (False, "128x64")
    assert first.replaced
    message = f"--tile is 1x1, expected one of {', '.join(TILES)}"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        backend.open_device(object(), tile="1x1")
    assert len(made) == 1


def test_parts_of_matrices(webgpu, rng):
    """Columns of wider rows, rows of a taller matrix, and an input that begins anywhere."""
    M, C, N, stride, column, first = 37, 19, 23, 61, 29, 5
    inp, weight, logits = draw(rng, M, C), draw(rng, N + 9, C), draw(rng, M, stride)
    part = weight[first : first + N].astype(np.float64)
    dout = logits[:, column : column + N].astype(np.float64)

    block = upload(webgpu, np.concatenate([draw(rng, 71), inp.reshape(-1)]))
    x = webgpu.view(block, 71, (M, C))
    w = webgpu.view(upload(webgpu, weight), first * C, (N, C))
    y = upload(webgpu, logits)
    forward_product(y, x, w, stride=stride, column=column)
    want = logits.copy()
    want[:, column : column + N] = inp @ part.T
    close(webgpu.download(y), want, SUMMED, "forward")

    y = upload(webgpu, logits)
    dx = upload(webgpu, inp)
    dinp_product(dx, y, w, stride=stride, column=column, add=True)
    close(webgpu.download(dx), inp + dout @ part, SUMMED, "dinp")
    dweight_product(w, y, x, stride=stride, column=column, add=True)
    close(webgpu.download(w), part + dout.T @ inp, SUMMED, "dweight")


def test_matrices_beyond_a_binding(webgpu, rng, monkeypatch):
    """Both of rows of positions and rows of weights there are several ranges."""
    monkeypatch.setattr(Device, "max_binding", 4096)
    sizes = [{"B": 2, "T": 41, "C": 23, "OC": 67}, {"B": 1, "T": 3, "C": 130, "OC": 29}]
    for name in ("matmul_backward", "matmul_gelu_forward", "matmul_gelu_backward"):
        calls = all_calls(name, rng, sizes)
        compare(webgpu, name, (call for call in calls if not call[2]["bf16"]))


def test_the_files_agree_on_gelu():
    """WGSL has no imports: what both kernels need stands in both."""
    shared = r"^const (?:LOW|HIGH) = \S+;|^(?:// [^\n]*\n)*fn gelu(?:|_clamp|_derivative)\(.*?^}"
    once, again = (
        re.findall(shared, kernel_source(stem), re.MULTILINE | re.DOTALL)
        for stem in ("gelu", "matmul")
    )
    assert len(once) == 5
    assert once == again
