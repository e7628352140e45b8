"""How many threads compute: what was asked for, within what the process may use."""

import os

import numba

from ..control_groups import ROOT, group_folders, own_groups
from ..errors import BackendError, UsageError


def cgroup_quota(lines, root=ROOT):
    """Give the processors that the control groups' quotas amount to, rounded up; None without one.

    lines  of /proc/self/cgroup
    """
    quotas = [
        _group_quota(version, folder) for version, folder in group_folders("cpu", lines, root)
    ]
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_quota(version, folder):
    names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        words = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
        quota, period = (int(word) for word in words)
    except (OSError, ValueError):  # no such group, or "max": no quota
        return None
    return max(1, -(-quota // period)) if quota > 0 and period > 0 else None  # -1: no quota


def available():
    """Count the processors of this process: its affinity, within its cgroup's quota."""
    affinity = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(affinity, cgroup_quota(own_groups()) or affinity)


def environment_threads():
    """Give OMP_NUM_THREADS as a number; None if it is unset, or no single number."""
    value = os.environ.get("OMP_NUM_THREADS", "").strip()
    return int(value) if value.isdecimal() and int(value) > 0 else None


def set_threads(count=None):
    """Set the number of threads, and give it.

    count  asked for; None is OMP_NUM_THREADS if that is set, else all that the process may use

    The result is the least of that, NUMBA_NUM_THREADS, the affinity and the cgroup's quota.
    Raises UsageError for a count below 1, BackendError if Numba has no threads to give, such as for
    a NUMBA_THREADING_LAYER that is not installed.
    """
    if count is not None and count < 1:
        raise UsageError(f"--threads is {count}, expected at least 1")
    count = environment_threads() if count is None else count
    largest = min(numba.config.NUMBA_NUM_THREADS, available())
    used = largest if count is None else min(count, largest)
    try:
        numba.set_num_threads(used)
    except ValueError as error:
        raise BackendError(f"cpu: Numba starts no threads: {error}") from None
    return used
