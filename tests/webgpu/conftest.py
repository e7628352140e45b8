"""Fixtures of the tests of one backend."""

import pytest

from ..gpu import require_device


@pytest.fixture
def webgpu():
    """The backend, with a device."""
    require_device()
    from llmpy import webgpu

    return webgpu


@pytest.fixture
def small_bindings(webgpu, monkeypatch):
    """A function that lets kernels see no more than so many bytes of a buffer."""

    def shrink(size):
        monkeypatch.setitem(webgpu.device().limits, "max-storage-buffer-binding-size", size)

    return shrink
