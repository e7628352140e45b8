"""What wgpu says when something is wrong, in one line, and as an exception.

Most errors are raised by the call that makes them. What is wrong between calls, a lost device
above all, wgpu-py only logs: it is kept here, and raised by the next call.
"""

import contextlib
import logging
import re
from collections.abc import Iterator

from ..errors import BackendError

# lines that say nothing to a reader who knows the kernel's name, or draw the place
FRAME = re.compile(
    r"Validation Error|Caused by:|In wgpu\w+(, label = .*)?|(\d+ )?\u2502.*"
    r"|Request \w+ failed \(\d+\): Validation Error"
)
PLACE = re.compile(r"\u250c\u2500 wgsl:(\d+):(\d+)")
TOLD_BY = "log_error"  # wgpu-py's function for what no call raises; all else is for information
NO_MEMORY, LESS = "Not enough memory left", "A smaller batch takes less"
ON_PURPOSE = "(destroyed)"  # in its words for a device that was let go


class Kept(logging.Handler):
    """The errors that were logged and not raised yet."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is an error of the device."""
        text = record.getMessage()
        if record.funcName == TOLD_BY and ON_PURPOSE not in text:
            self.texts.append(text)

    def take(self) -> str | None:
        """Give all that is kept in one line, and forget it."""
        texts, self.texts = self.texts, []
        return "; ".join(map(in_one_line, texts)) or None


kept = Kept()


def keep_messages(name: str = "wgpu") -> None:
    """Keep what wgpu-py logs, once it is imported; without any handler it would go to stderr."""
    logging.getLogger(name).addHandler(kept)  # once, however often


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn what wgpu raises, or has logged, into a BackendError that says at what."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        kept.take()  # mostly the same
        raise BackendError(f"webgpu: {what}: {in_one_line(error)}") from None
    logged = kept.take()
    if logged is not None:
        raise BackendError(f"webgpu: {what}: {logged}")


def in_one_line(error: object) -> str:
    """Give what wgpu's message says, which takes several lines, in one."""
    lines = []
    for line in (line.strip() for line in str(error).splitlines()):
        place = PLACE.fullmatch(line)
        if place:
            line = f"line {place[1]}, column {place[2]}"
        if line and not FRAME.fullmatch(line):
            lines.append(line.rstrip(".:"))
    if NO_MEMORY in lines:
        lines.append(LESS)
    return ". ".join(lines) or type(error).__name__
