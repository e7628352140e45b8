"""Output: results to stdout as UTF-8 bytes on any console, everything else to stderr."""

import codecs
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

STDOUT = "stdout"  # its name in errors
REFRESH_S = 0.5  # seconds between two pictures of the bar

_passing = False  # whether a passing line is on the terminal


def passing(text: str) -> None:
    """Show a line on the terminal while something takes long; the next output replaces it.

    Nothing is written where stderr is no terminal.
    """
    global _passing
    if is_terminal(sys.stderr):
        width = max(1, shutil.get_terminal_size().columns - 1)
        _put(f"\r{text[:width]:{width}}\r")
        _passing = text != ""


def _clear_passing() -> None:
    if _passing:
        passing("")


def write(data: bytes | str) -> None:
    """Write to stdout, at once. Text becomes UTF-8 whatever the console's encoding is.

    Raises OSError with `stdout` as the file's name, BrokenPipeError if its reader has left.
    """
    _clear_passing()
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    if sys.stdout is None:  # closed
        return
    stream = getattr(sys.stdout, "buffer", None)
    try:
        if stream is None:  # no bytes underneath, as in a notebook
            sys.stdout.write(data.decode("utf-8", "replace"))
        else:
            stream.write(data)
        sys.stdout.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from None


def note(text: str) -> None:
    """Write a line to stderr; what its encoding lacks comes escaped, and what is not to be seen."""
    _clear_passing()
    shown = (c if c.isprintable() else ascii(c)[1:-1] for c in text)
    _put("".join(shown) + "\n")


def _put(text: str) -> None:
    if sys.stderr is None:  # closed
        return
    with contextlib.suppress(OSError, ValueError):
        encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()


def is_terminal(stream: Any) -> bool:
    """Whether a person sees this stream as it is written."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # None, or closed
        return False


def close_stdout() -> None:
    """Let stdout go nowhere: it can't be written, and the interpreter must not trip over it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class TextStream:
    """Bytes of tokens to stdout as whole UTF-8 characters; what is none becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, piece: bytes) -> None:
        """Write the characters that are complete."""
        text = self._decoder.decode(piece)
        if text:
            write(text)

    def end(self) -> None:
        """Write what is left of a character that was cut."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if text:
            write(text)


class Progress:
    """A bar on stderr while training, if it is to be shown; it appears with the first step.

    It is drawn between steps, never by a thread of its own: that would take a core from the
    kernels in the middle of a step, and all threads wait for the last.
    """

    def __init__(self, steps: int, shown: bool) -> None:
        self._steps, self._shown = steps, shown
        self._bar: Any = None
        self._next_refresh = 0.0

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("train", total=self._steps, state="")
        self._bar.start()

    def advance(self, state: str) -> None:
        """Count a step; `state` is shown beside the bar."""
        if self._shown and self._bar is None:
            self._start()
        if self._bar is not None:
            self._update(advance=1, state=state)

    def working(self, what: str) -> None:
        """Show what is being done between two steps."""
        if self._bar is None:
            passing(what)
        else:
            self._update(state=what)

    def _update(self, **what: Any) -> None:
        self._bar.update(self._task, **what)
        now = time.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_S
            self._bar.refresh()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away while something else is written to the terminal."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        yield
        self._bar.start()

    def close(self) -> None:
        """Take the bar away for good."""
        if self._bar is not None:
            self._bar.stop()
