"""Backends by name, and what is said of them."""

import numpy as np
import pytest

from llmpy import device, ops
from llmpy.config import DeviceConfig
from llmpy.cpu import jit
from llmpy.device import check_environment, open_backend, tell_of_compiling
from llmpy.errors import UsageError


def test_numpy():
    backend, line = open_backend(DeviceConfig(backend="numpy"))
    assert backend is ops
    assert line == f"backend numpy: the NumPy reference, NumPy {np.__version__}"


def test_auto_is_the_cpu_and_threads_are_told():
    backend, line = open_backend(DeviceConfig(threads=1))
    assert backend.name == "cpu"
    assert line.startswith("backend cpu: Numba ")
    assert line.endswith(", 1 thread")
    backend.set_threads()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"backend": "webgpu"}, "--backend webgpu is not built yet, expected cpu or numpy"),
        (
            {"backend": "numpy", "threads": 2},
            "--threads is given with --backend numpy, expected --backend cpu",
        ),
    ],
)
def test_refusals(values, message):
    with pytest.raises(UsageError) as error:
        open_backend(DeviceConfig(**values))
    assert str(error.value) == message


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
