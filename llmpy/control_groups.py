"""The control groups around this process, through which Linux limits its memory and processors.

A process is in one group of each hierarchy, and a group's limits hold for all groups within it.
Version 2 has one hierarchy, at the root; version 1 one for each controller, in a folder.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")  # where the groups are folders


def own_groups() -> list[str]:
    """Give the lines of /proc/self/cgroup, `id:controllers:group`; none on another system."""
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def group_folders(
    controller: str, lines: list[str], root: Path = ROOT
) -> Iterator[tuple[int, Path]]:
    """Go through the groups of `controller` on the way up: version, 1 or 2, and folder.

    lines  as `own_groups` gives them
    """
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            version, top = 2, root
        elif controller in controllers.split(","):
            version, top = 1, root / controller
        else:
            continue
        folder = top / group.lstrip("/")
        yield version, folder
        while folder != top and top in folder.parents:
            folder = folder.parent
            yield version, folder
