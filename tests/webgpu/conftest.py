"""Fixtures of the tests of one backend."""

import pytest

from ..gpu import require_device


@pytest.fixture
def webgpu():
    """The backend, with a device."""
    require_device()
    from llmpy import webgpu

    return webgpu
