"""The device that tests of the WebGPU backend run on: one for the whole process.

    LLMPY_TEST_ADAPTER   the adapter, by name or index: the tests must run, software or not
    without it           the best hardware adapter; where there is none, they are skipped

It is asked for the limits that every WebGPU device has, so that no kernel relies on more.
"""

import functools
import os

import pytest

from llmpy.errors import BackendError


@functools.cache
def opened():
    """Open the device, and give what is in the way, or None."""
    wanted = os.environ.get("LLMPY_TEST_ADAPTER")
    from llmpy.webgpu.adapters import choose_adapter, is_software

    try:
        adapter = choose_adapter(wanted)
    except BackendError as error:
        if wanted is not None:
            raise
        return str(error)
    if wanted is None and is_software(adapter):
        return "the adapter is software. Name it in LLMPY_TEST_ADAPTER to test on it."
    from llmpy import webgpu

    webgpu.open_device(wanted, portable=True)
    return None


def require_device():
    """Skip the test, with the reason, where there is no device."""
    reason = opened()
    if reason is not None:
        pytest.skip(reason)


WEBGPU = pytest.param("webgpu", marks=pytest.mark.webgpu)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Where an adapter is named, a test of the device that is skipped has failed."""
    report = yield
    if report.skipped and "LLMPY_TEST_ADAPTER" in os.environ and item.get_closest_marker("webgpu"):
        report.outcome = "failed"
        report.longrepr = f"skipped, expected to run on LLMPY_TEST_ADAPTER: {report.longrepr}"
    return report
