"""Compiled kernels on the disk: found again, each under a name of its own, and never in the way."""

import importlib.util

import pytest
from numba import config, njit

from llmpy.cpu import kernel_cache
from llmpy.cpu.kernel_cache import KernelCache, KernelFiles, sources_stamp, tell_once

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")


@pytest.fixture(autouse=True)
def _tell_again():
    tell_once.cache_clear()


def kernel(folder):
    """Make a kernel as a new process does: what it knows is on the disk."""
    path = folder / "module.py"
    path.write_text("def double(x):\n    return x * 2\n")
    spec = importlib.util.spec_from_file_location("module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = njit(module.double)
    made._cache = KernelCache(module.double)
    return made


def files(folder):
    return sorted((folder / "__pycache__").glob("*.nb*"))


def loaded(made):
    """Count the versions that came from the disk."""
    return sum(made.stats.cache_hits.values())


def test_each_type_has_a_file_of_its_own_and_is_found_again(tmp_path):
    first, second = kernel(tmp_path), kernel(tmp_path)  # two processes, neither sees the other's
    assert (first(2), second(2.5), first(2.5), second(2)) == (4, 5.0, 5.0, 4)
    assert len(files(tmp_path)) == 2
    third = kernel(tmp_path)
    assert (third(2), third(2.5), loaded(third)) == (4, 5.0, 2)


@pytest.mark.parametrize("damage", [lambda x: b"", lambda x: x[:-1], lambda x: x[:-1] + b"?"])
def test_a_damaged_file_is_compiled_again(damage, tmp_path):
    assert kernel(tmp_path)(2) == 4
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = kernel(tmp_path)
    assert (again(2), loaded(again)) == (4, 0)
    last = kernel(tmp_path)
    assert (last(2), loaded(last)) == (4, 1)


def test_content_that_is_no_code_is_compiled_again(tmp_path, monkeypatch):
    assert kernel(tmp_path)(2) == 4
    monkeypatch.setattr(KernelFiles, "load", lambda self, key: ("no", "code"))
    assert kernel(tmp_path)(2) == 4


def test_files_of_other_sources_go_away(tmp_path, monkeypatch):
    assert kernel(tmp_path)(2) == 4
    (old,) = files(tmp_path)
    (old.parent / "module.other.py311.0.1.nbc").write_text("another kernel's")
    monkeypatch.setattr(kernel_cache, "sources_stamp", lambda: "0" * 64)
    again = kernel(tmp_path)
    assert (again(2), loaded(again)) == (4, 0)
    new, other = files(tmp_path)
    assert "0" * 16 in new.name
    assert sources_stamp()[:16] in old.name
    assert other.read_text() == "another kernel's"


def test_a_full_disk_is_told_once_and_done_without(tmp_path, monkeypatch, capfd):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(KernelFiles, "_open_for_write", full)
    made = kernel(tmp_path)
    assert (made(2), made(2.5)) == (4, 5.0)
    assert capfd.readouterr().err == (
        f"llmpy: compiled kernels are not kept: {tmp_path}/__pycache__: No space left on device."
        " Set NUMBA_CACHE_DIR to a directory to keep them.\n"
    )
    assert files(tmp_path) == []
