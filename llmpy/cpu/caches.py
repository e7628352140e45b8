"""The sizes of the processor's caches, as far as the system tells."""

from pathlib import Path

CACHES = Path("/sys/devices/system/cpu")


def data_caches(folder=CACHES):
    """Give (level, bytes) of each data cache of the machine, those that cores share once."""
    found = set()
    for index in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size, kind, cpus = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "size", "type", "shared_cpu_list")
            )
            if kind != "Instruction" and size.endswith("K"):
                found.add((int(level), cpus, int(size[:-1]) * 1024))
        except (OSError, ValueError):
            continue
    return [(level, size) for level, _, size in sorted(found)]


def first_cache_bytes(folder=CACHES):
    """Give the bytes of a core's first cache; 32 KiB where the system does not tell."""
    return min((size for level, size in data_caches(folder) if level == 1), default=1 << 15)


def last_cache_bytes(folder=CACHES):
    """Give the bytes of all caches of the last level together, within 32 to 512 MiB."""
    caches = data_caches(folder)
    last = max((level for level, _ in caches), default=0)
    total = sum(size for level, size in caches if level == last)
    return min(max(total, 1 << 25), 1 << 29)


def second_cache_bytes(folder=CACHES):
    """Give the bytes of a core's second cache; 512 KiB where the system does not tell."""
    return min((size for level, size in data_caches(folder) if level == 2), default=1 << 19)
