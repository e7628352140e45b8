"""Signals become exceptions, but where C code would drop them."""

import ctypes
import signal
import threading
import time

import pytest
from llvmlite.binding.executionengine import ExecutionEngine

from llmpy.cli.signals import CALLBACKS, Terminated, signals_raise

BOTH = pytest.mark.parametrize(
    ("number", "exception"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)


@BOTH
def test_a_signal_is_an_exception(number, exception):
    before = signal.getsignal(number)
    with pytest.raises(exception), signals_raise():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@BOTH
def test_a_signal_in_a_callback_of_llvm_waits_for_its_end(number, exception):
    done = []

    def _raw_object_cache_notify():
        signal.raise_signal(number)
        done.append("all of it")

    def work():
        ctypes.CFUNCTYPE(None)(_raw_object_cache_notify)()
        time.sleep(10)

    with pytest.raises(exception), signals_raise():
        work()
    assert done == ["all of it"]


def test_the_callbacks_are_those_of_llvmlite():
    assert all(hasattr(ExecutionEngine, name) for name in CALLBACKS)


def test_what_is_ignored_stays_ignored():
    """As in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_raise():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_has_no_handlers():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with signals_raise():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
