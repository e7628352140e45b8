"""Every entry point of every kernel file goes through Tint, the compiler that Chromium has."""

import importlib

import pytest

from llmpy.errors import BackendError

from .kernel_files import FILES, entry_points, overrides

ENTRIES = [(stem, entry) for stem, code in FILES.items() for entry in entry_points(code)]

# what each constant may be besides its default
OTHER = {
    "WG": 32, "X": 16, "Y": 16, "BK": 16, "A_UNIT_K": False, "B_UNIT_K": False,
    "FAR": False, "GRADIENT": 2,
}  # fmt: skip

UNEVEN = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
var<workgroup> shared_x: f32;
@compute @workgroup_size(64)
fn uneven(@builtin(local_invocation_index) lane: u32) {
    if lane < 7u { shared_x = x[lane]; BARRIER }
    x[lane] = shared_x;
}
"""


@pytest.mark.parametrize("which", ["default", "other"])
@pytest.mark.parametrize(("stem", "entry"), ENTRIES, ids=[f"{s}-{e}" for s, e in ENTRIES])
def test_entry_point_compiles(device, stem, entry, which):
    others = {name: OTHER[name] for name in overrides(FILES[stem])}
    device.pipeline(stem, entry, others if which == "other" else {})


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
