"""Fixtures that all tests share."""

import os
import zlib

import numpy as np
import pytest

from .gpu import WEBGPU, pytest_runtest_makereport, require_device  # noqa: F401  # a hook

# drawn anew in every run; a failure shows it, and LLMPY_TEST_SEED repeats it
SEED = int(os.environ.get("LLMPY_TEST_SEED", int.from_bytes(os.urandom(4), "little")))


@pytest.fixture
def rng(request):
    """Random numbers that differ from run to run and from test to test."""
    request.node.add_report_section("setup", "seed", f"LLMPY_TEST_SEED={SEED}")
    return np.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture(params=["numpy", "cpu", WEBGPU])
def backend(request):
    """The name of a backend."""
    if request.param == "webgpu":
        require_device()
    return request.param
