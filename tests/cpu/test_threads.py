"""The number of threads: the least of what is asked for and what the process may use."""

import numba
import pytest

from llmpy.cpu import threads
from llmpy.errors import BackendError, UsageError


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
    assert threads.cgroup_quota(["0::/"], tmp_path) == quota


def test_the_smallest_quota_on_the_way_up_counts(tmp_path):
    """As of `systemd-run -p CPUQuota=...`, whose group is not the root."""
    folder = tmp_path / "job.slice" / "step"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("max 100000\n")
    (folder.parent / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    assert threads.cgroup_quota(["0::/job.slice/step"], tmp_path) == 1
    assert threads.cgroup_quota(["0::/"], tmp_path) == 4


def test_cgroup_version_1(tmp_path):
    folder = tmp_path / "cpu" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    lines = ["5:memory:/job", "4:cpu,cpuacct:/job"]
    assert threads.cgroup_quota(lines, tmp_path) == 3
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert threads.cgroup_quota(lines, tmp_path) is None


def test_no_cgroup(tmp_path):
    assert threads.cgroup_quota(["0::/"], tmp_path) is None
    assert threads.cgroup_quota([], tmp_path) is None


def test_quota_limits_the_threads(monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda lines: 1)
    assert threads.set_threads() == 1
    assert threads.set_threads(64) == 1
    assert numba.get_num_threads() == 1


def test_set_threads(monkeypatch):
    monkeypatch.setattr(threads, "cgroup_quota", lambda lines: None)
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


def test_threads_that_numba_cannot_start_are_told(monkeypatch):
    def fail(count):
        raise ValueError("The threading layer requested 'none' is unknown to Numba.")

    with monkeypatch.context() as patch:
        patch.setattr(numba, "set_num_threads", fail)
        with pytest.raises(BackendError) as error:
            threads.set_threads()
    assert str(error.value) == (
        "cpu: Numba starts no threads: The threading layer requested 'none' is unknown to Numba."
    )
