"""Start the processes of bench: our own, and those of a peer, which end with all they started."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence


def run_ours(words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m llmpy.bench` to its end; its messages go where ours go.

    By default -m looks for modules in the current folder first, where a folder `llmpy` or a file
    `numpy.py` may be anybody's. It is told not to (-P), and to look where this process does.
    """
    return subprocess.run(
        [sys.executable, "-P", "-m", "llmpy.bench", *words],
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def run_group(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command that has no keyboard, and end what it started when it ends, however it does.

    limit_s      end it after so long
    environment  None is that of this process

    Raises OSError if it does not start, subprocess.TimeoutExpired if it takes too long.
    """
    # files, since a pipe ends only when all that were started have let go of it
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            process_group=0,
        )
        try:
            status = process.wait(limit_s)
        finally:  # an interrupt of ours does not reach them, as they are no longer in our group
            _end_group(process)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and those of its group; on Windows, which has no groups, it alone."""
    if sys.platform == "win32":
        process.kill()
    else:
        # all have ended; macOS says so in another way
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
