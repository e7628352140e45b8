"""How many threads compute: what was asked for, within what the process may use."""

import os
from pathlib import Path

import numba

from ..errors import UsageError


def cgroup_quota(root="/sys/fs/cgroup"):
    """Give the processors that the cgroup's quota amounts to, rounded up; None without a quota."""
    try:
        quota, period = Path(root, "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:  # cgroup v1
            quota = Path(root, "cpu/cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = Path(root, "cpu/cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    if not quota.isdecimal() or not period.isdecimal():  # "max" or -1: no quota
        return None
    return max(1, -(-int(quota) // int(period)))


def available():
    """Count the processors of this process: its affinity, within its cgroup's quota."""
    affinity = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(affinity, cgroup_quota() or affinity)


def environment_threads():
    """Give OMP_NUM_THREADS as a number; None if it is unset, or no single number."""
    value = os.environ.get("OMP_NUM_THREADS", "").strip()
    return int(value) if value.isdecimal() and int(value) > 0 else None


def set_threads(count=None):
    """Set the number of threads, and give it.

    count  asked for; None is OMP_NUM_THREADS if that is set, else all that the process may use

    The result is the least of that, NUMBA_NUM_THREADS, the affinity and the cgroup's quota.
    Raises UsageError for a count below 1.
    """
    if count is not None and count < 1:
        raise UsageError(f"--threads is {count}, expected at least 1")
    count = environment_threads() if count is None else count
    largest = min(numba.config.NUMBA_NUM_THREADS, available())
    used = largest if count is None else min(count, largest)
    numba.set_num_threads(used)
    return used
