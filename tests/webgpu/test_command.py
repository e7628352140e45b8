"""`llmpy train --backend webgpu`, in a process of its own."""

import os
import subprocess
import sys

import numpy as np
import pytest

from llmpy.run_folder import read_log

from ..tiny_run import write_files

pytestmark = pytest.mark.webgpu
STEPS = 20


def run(folder, words):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "llmpy", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_twenty_steps_by_the_command_line(webgpu, tmp_path, rng):
    files = write_files(tmp_path, rng, train=4000)
    words = ["train", *files, "--batch-size", "2", "--steps", str(STEPS)]
    words += ["--total-batch-size", "64", "--lr", "3e-3", "--sample-every", "10"]
    named = os.environ.get("LLMPY_TEST_ADAPTER")
    adapter = ["--adapter", named] if named else []
    told = run(tmp_path, [*words, "--backend", "webgpu", *adapter, "--out", "device"])
    run(tmp_path, [*words, "--out", "reference"])
    assert told.startswith(f"backend webgpu: {webgpu.describe()}\n")
    got, want = (read_log(tmp_path / name / "main.log") for name in ("device", "reference"))
    for ours, others in zip(got, want, strict=True):  # of training, of validation
        np.testing.assert_allclose(ours, others, rtol=1e-4)
    assert len(want[0]) == STEPS
