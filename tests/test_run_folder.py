"""The folder of a run, where the disk or an earlier run is in the way."""

import os

import pytest

from llmpy.run_folder import RunFolder


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_log(tmp_path):
    (tmp_path / "main.log").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*main\.log'$"):
        RunFolder(tmp_path).log_step(0, 1.0, 1e-3, 2.0)


def test_starting_over_takes_away_what_a_killed_run_left(tmp_path):
    for name in ("main.log", ".llmpy-0123456789abcdef.tmp", ".llmpy-mine.tmp", "notes"):
        (tmp_path / name).touch()
    RunFolder(tmp_path).start()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".llmpy-mine.tmp", "main.log", "notes"]
