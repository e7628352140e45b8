"""Backends by name, and what is said of them."""

import importlib.util
import re
import sys

import numpy as np
import pytest

from llmpy import device, ops
from llmpy import webgpu as webgpu_backend
from llmpy.config import DeviceConfig
from llmpy.cpu import jit
from llmpy.device import check_environment, open_backend, tell_of_compiling
from llmpy.errors import BackendError, UsageError
from llmpy.webgpu import adapters


def test_numpy():
    backend, line = open_backend(DeviceConfig(backend="numpy"))
    assert backend is ops
    assert line == f"backend numpy: the NumPy reference, NumPy {np.__version__}"


def test_cpu_with_threads():
    backend, line = open_backend(DeviceConfig(backend="cpu", threads=1))
    assert backend.name == "cpu"
    assert line.startswith("backend cpu: Numba ")
    assert line.endswith(", 1 thread")
    backend.set_threads()


@pytest.fixture
def webgpu(monkeypatch):
    """The backend, whose device says which adapter was to be opened, with which tile."""
    opened = []

    def open_device(adapter, tile):
        opened.append(f"{adapter} with {tile}")

    monkeypatch.setattr(webgpu_backend, "open_device", open_device)
    monkeypatch.setattr(webgpu_backend, "describe", lambda: f"wgpu on {opened[-1]}")
    return webgpu_backend


def test_webgpu_opens_the_adapter(webgpu, monkeypatch):
    monkeypatch.setattr(device, "tell_of_compiling", lambda: pytest.fail("Numba was imported"))
    for adapter, tile in ((None, None), ("Big", "64x64")):
        config = DeviceConfig(backend="webgpu", adapter=adapter, tile=tile)
        assert open_backend(config) == (webgpu, f"backend webgpu: wgpu on {adapter} with {tile}")


def test_auto_takes_the_adapter_that_fits(webgpu, monkeypatch):
    asked = []

    def automatic(*words):
        asked.append(words)
        return "an adapter", ""

    monkeypatch.setattr(adapters, "automatic", automatic)
    backend, line = open_backend(DeviceConfig(adapter="Big"), largest=123)
    assert (backend, line) == (webgpu, "backend webgpu: wgpu on an adapter with None (auto)")
    assert asked == [("Big", 123)]


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({}, " (auto: no hardware GPU found)"),
        ({"threads": 1}, ", 1 thread (auto, for --threads)"),
        ({"dtype": "bfloat16"}, ", matrix products of bfloat16 (auto, for bfloat16)"),
    ],
)
def test_auto_takes_the_cpu_and_says_why(monkeypatch, values, end):
    monkeypatch.setattr(adapters, "automatic", lambda *_: (None, "no hardware GPU found"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    backend, line = open_backend(DeviceConfig(**values))
    assert backend.name == "cpu"
    assert line.startswith("backend cpu: Numba ")
    assert line.endswith(end)
    backend.set_threads()


def test_an_adapter_that_auto_does_not_take_is_refused(monkeypatch):
    monkeypatch.setattr(adapters, "automatic", lambda *_: (None, "llvmpipe is software"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    message = (
        "--adapter is 0: llvmpipe is software, expected a GPU that --backend auto takes."
        " Use --backend webgpu, or leave --adapter out."
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        open_backend(DeviceConfig(adapter="0"))


def test_auto_without_wgpu(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend, line = open_backend(DeviceConfig())
    assert backend.name == "cpu"
    assert line.endswith(" (auto: wgpu is not installed)")
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(BackendError, match=r"^webgpu: wgpu is not installed\. Run: pip install "):
        open_backend(DeviceConfig(adapter="0"))


def test_compiling_is_told_once_and_shown_by_kernel(capfd, monkeypatch):
    from numba.core import event

    def compile_something():
        with (
            event.trigger_event("numba:compile", data={"dispatcher": len}),
            event.trigger_event("numba:compile", data={"dispatcher": abs}),
        ):
            pass
        return capfd.readouterr().err

    compile_something()  # what other tests have left to tell
    tell_of_compiling.cache_clear()
    tell_of_compiling()
    tell_of_compiling()
    assert compile_something() == (
        "compiling kernels for this machine, which are kept for the next run\n"
    )
    assert compile_something() == ""

    tell_of_compiling.cache_clear()
    monkeypatch.setattr(jit, "cache_works", lambda: False)
    tell_of_compiling()
    assert compile_something() == "compiling kernels for this machine\n"

    shown = []
    monkeypatch.setattr(device, "passing", shown.append)
    compile_something()
    assert set(shown) == {"compiling builtins.len", ""}  # not abs, which is compiled for len
    assert shown[-1] == ""


def test_a_number_of_threads_that_numba_would_stumble_over(monkeypatch):
    for good in ("1", "64", " 2 ", "007"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", good)
        check_environment()
    for bad in ("", "0", "-3", "abc", "1.5", "\u0663"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", bad)
        with pytest.raises(UsageError) as error:
            open_backend(DeviceConfig())
        assert str(error.value) == (
            f"NUMBA_NUM_THREADS is {bad!r}, expected a whole number of at least 1"
        )
    open_backend(DeviceConfig(backend="numpy"))  # to which it is nothing
