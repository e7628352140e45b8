"""The sizes of caches as the system tells them."""

from llmpy.cpu import caches


def write_caches(folder, found):
    for i, (cpu, level, kind, size, cpus) in enumerate(found):
        index = folder / f"cpu{cpu}" / "cache" / f"index{i}"
        index.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (index / name).write_text(f"{text}\n")
        (index / "shared_cpu_list").write_text(f"{cpus}\n")


def test_caches(tmp_path):
    """Two cores with caches of their own, and one that they share."""
    write_caches(tmp_path, [
        (0, 1, "Data", "48K", "0"), (0, 1, "Instruction", "16K", "0"),
        (1, 1, "Data", "48K", "1"), (1, 1, "Instruction", "16K", "1"),
        (0, 2, "Unified", "1024K", "0"), (1, 2, "Unified", "1024K", "1"),
        (0, 3, "Unified", "98304K", "0-1"), (1, 3, "Unified", "98304K", "0-1"),
    ])  # fmt: skip
    assert caches.first_cache_bytes(tmp_path) == 48 * 1024
    assert caches.second_cache_bytes(tmp_path) == 1024 * 1024
    assert caches.last_cache_bytes(tmp_path) == 96 * 1024 * 1024


def test_caches_that_the_system_does_not_tell(tmp_path):
    (tmp_path / "cpu0" / "cache" / "index0").mkdir(parents=True)
    assert caches.first_cache_bytes(tmp_path) == 32 * 1024
    assert caches.second_cache_bytes(tmp_path) == 512 * 1024
    assert caches.last_cache_bytes(tmp_path) == 32 * 1024 * 1024
