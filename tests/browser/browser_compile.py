"""Every entry point of every kernel file goes through Tint, the compiler that Chromium has."""

import importlib

import pytest

from llmpy.errors import BackendError
from llmpy.webgpu.matmul import TILES

from .kernel_files import FILES, entry_points, overrides

SHAPES = [
    {**tile, "A_UNIT_K": i % 2, "B_UNIT_K": i // 2 % 2, "GELU": i % 3}
    for i, tile in enumerate(TILES.values())
]
PARTS = [{"FAR": far, "GRADIENT": part} for far in (True, False) for part in (0, 1, 2)]
# what constants may be besides their defaults, by entry point; WG is 32 at all others
VARIANTS = {
    "attention_forward": [{"FAR": False}],
    "attention_backward": PARTS,
    "matmul": SHAPES,
    "matmul_backward_sums": [{"WG": 32, "SUMMED": 16}],
}


def constants_of(stem, entry):
    """Give the sets of constants to compile an entry point with."""
    otherwise = [{"WG": 32}] if "WG" in overrides(FILES[stem]) else []
    return [{}, *VARIANTS.get(entry, otherwise)]


CASES = [
    pytest.param(stem, entry, constants, id="-".join((stem, entry, *map(str, constants.values()))))
    for stem, code in FILES.items()
    for entry in entry_points(code)
    for constants in constants_of(stem, entry)
]

UNEVEN = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
var<workgroup> shared_x: f32;
@compute @workgroup_size(64)
fn uneven(@builtin(local_invocation_index) lane: u32) {
    if lane < 7u { shared_x = x[lane]; BARRIER }
    x[lane] = shared_x;
}
"""


@pytest.mark.parametrize(("stem", "entry", "constants"), CASES)
def test_entry_point_compiles(device, stem, entry, constants):
    device.pipeline(stem, entry, constants)


@pytest.mark.parametrize("stem", FILES)
def test_every_constant_is_varied(stem):
    sets = [x for entry in entry_points(FILES[stem]) for x in constants_of(stem, entry)]
    varied = {name for constants in sets for name in constants}
    assert set(overrides(FILES[stem])) <= varied


def test_every_kernel_file_is_found():
    assert len(FILES) >= 12
    assert all(entry_points(code) for code in FILES.values())


def test_a_barrier_that_not_all_threads_reach_is_refused(device, monkeypatch):
    """naga takes such a file."""
    module = importlib.import_module("llmpy.webgpu.device")
    monkeypatch.setattr(module, "kernel_source", {"even": UNEVEN.replace("BARRIER", "")}.get)
    device.pipeline("even", "uneven", {})
    code = UNEVEN.replace("BARRIER", "workgroupBarrier();")
    monkeypatch.setattr(module, "kernel_source", {"uneven": code}.get)
    with pytest.raises(BackendError, match="must only be called from uniform control flow"):
        device.pipeline("uneven", "uneven", {})


def test_readers_of_kernel_files():
    code = (
        "override N: u32 = 8u;  // words\noverride M = 2u * N;\noverride ON: bool = true;\n"
        "@compute @workgroup_size(N)\nfn one(@builtin(workgroup_id) group: vec3u) {}\n"
        "fn none() {}\n@compute @workgroup_size(8, 8) fn two() {}\n"
    )
    assert entry_points(code) == ["one", "two"]
    assert overrides(code) == {"N": "8u", "ON": "true"}
