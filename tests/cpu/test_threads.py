"""The number of threads: the least of what is asked for and what the process may use."""

import subprocess
import sys

import numba
import pytest

from llmpy.cpu import threads
from llmpy.errors import UsageError


@pytest.fixture(autouse=True)
def restore_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.mark.parametrize(
    ("content", "quota"),
    [("max 100000\n", None), ("200000 100000\n", 2), ("150000 100000\n", 2), ("1000 100000", 1)],
)
def test_cgroup_quota(tmp_path, content, quota):
    (tmp_path / "cpu.max").write_text(content)
    assert threads.cgroup_quota(tmp_path) == quota


def test_cgroup_version_1(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert threads.cgroup_quota(tmp_path) == 3
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert threads.cgroup_quota(tmp_path) is None


def test_no_cgroup(tmp_path):
    assert threads.cgroup_quota(tmp_path) is None


def test_quota_limits_the_threads(monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda: 1)
    assert threads.set_threads() == 1
    assert threads.set_threads(64) == 1
    assert numba.get_num_threads() == 1


def test_set_threads(monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda: None)
    assert threads.set_threads(1) == 1
    assert threads.set_threads(10_000) == threads.set_threads() <= numba.config.NUMBA_NUM_THREADS


@pytest.mark.parametrize(("value", "threads_used"), [("1", 1), ("64", 2), ("4,2", 2), ("", 2)])
def test_omp_num_threads_is_respected(monkeypatch, value, threads_used):
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.setattr(numba, "set_num_threads", lambda n: None)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads.set_threads() == threads_used
    assert threads.set_threads(2) == 2


def test_too_few_threads_are_refused():
    with pytest.raises(UsageError) as error:
        threads.set_threads(0)
    assert str(error.value) == "--threads is 0, expected at least 1"


def test_read_only_install_without_home(tmp_path):
    """Kernels that cannot be kept are compiled, with a word about it, and no traceback."""
    code = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # what a read-only install amounts to

from llmpy.cpu.jit import cache_works
assert cache_works() is False
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "llmpy: no writable directory for compiled kernels, so they are compiled at each start. "
        "Set NUMBA_CACHE_DIR to a directory to keep them.\n"
    )
