"""Tests of the device are skipped only where nobody asked for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILE = """
import pytest

@pytest.mark.webgpu
def test_of_a_device():
    pytest.skip("for a reason")

def test_of_something_else():
    pytest.skip("for another")

@pytest.mark.webgpu
def test_that_runs():
    pass
"""


@pytest.mark.parametrize(
    ("adapter", "counts"),
    [(None, "1 passed, 2 skipped"), ("some", "1 failed, 1 passed, 1 skipped")],
)
def test_a_skipped_test_of_a_named_device_has_failed(adapter, counts, tmp_path):
    (tmp_path / "test_some.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = webgpu: x\n")
    environment = {k: v for k, v in os.environ.items() if k != "LLMPY_TEST_ADAPTER"}
    if adapter is not None:
        environment["LLMPY_TEST_ADAPTER"] = adapter
    words = ["-m", "pytest", "-p", "tests.gpu", tmp_path / "test_some.py"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert re.search(rf"{counts} in ", done.stdout), done.stdout + done.stderr
    assert ("expected to run on LLMPY_TEST_ADAPTER" in done.stdout) == (adapter is not None)
