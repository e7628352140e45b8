"""SIGINT and SIGTERM as exceptions, so that what they end can take away a half-written file.

The exception is raised wherever the main thread is. A callback from C is no place for that: C code
drops the exception, and goes on without what the callback should have done. LLVM calls Numba back
when it has compiled or loads a kernel, and it is there that a signal of the seconds before is first
seen. So there, and in __del__, the signal is sent again a little later.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

CALLBACKS = ("_raw_object_cache_notify", "_raw_object_cache_getbuffer", "__del__")
LATER_S = 0.01


class Terminated(BaseException):
    """SIGTERM came."""


EXCEPTIONS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, Terminated on SIGTERM; one that is ignored stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [n for n in EXCEPTIONS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _in_callback(frame):
        raise EXCEPTIONS[signal.Signals(number)]
    timer = threading.Timer(LATER_S, signal.raise_signal, [number])
    timer.daemon = True
    timer.start()


def _in_callback(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in CALLBACKS:
            return True
        frame = frame.f_back
    return False
