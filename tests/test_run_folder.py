"""The folder of a run, where the disk or an earlier run is in the way."""

import os
import subprocess
import sys

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


def test_a_picture_that_matplotlib_cannot_draw_is_told(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")

    def fail(*args, **kwargs):
        raise RuntimeError("latex could not be found")

    folder = RunFolder(tmp_path)
    folder.start()
    folder.log_step(0, 1.0, 1e-3, 2.0)
    monkeypatch.setattr(figure.Figure, "savefig", fail)
    assert folder.write_curve() == "matplotlib failed: latex could not be found"
    assert [p.name for p in tmp_path.iterdir()] == ["main.log"]


def test_matplotlib_is_quiet_about_its_caches(tmp_path):
    """Without a home, it would warn of the folder it takes instead."""
    (tmp_path / "file").touch()
    code = "from llmpy.run_folder import draw_curve; draw_curve([(0, 1.0), (1, 2.0)], [])"
    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path / "file")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
