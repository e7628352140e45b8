"""How the kernels are compiled: the options and the cache, in one place.

There is no fast-math here: the few loops that need some say so, in vector_math.py.

Numba's threads meet at GNU OpenMP's barriers, where one that is early spins. It does so for
milliseconds by default, which on a machine with other work to do keeps the very thread that it
waits for from running. With about 20 microseconds it bridges the Python between two kernels, and
then sleeps. The variable is read when the first kernel starts; one that is set already is kept.
"""

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

from numba import config, njit

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _probe():
    """Do nothing: what cache_works compiles."""


@cache
def cache_works() -> bool:
    """Tell whether Numba finds a place for compiled kernels: beside the source, or the user's.

    A read-only install without a home directory has none. The kernels are then compiled at each
    start, and standard error says so, instead of an end with "no locator available".
    """
    if config.DISABLE_JIT:
        return False
    try:
        njit(cache=True)(_probe)
    except RuntimeError:
        sys.stderr.write(
            "llmpy: no writable directory for compiled kernels, so they are compiled at each "
            "start. Set NUMBA_CACHE_DIR to a directory to keep them.\n"
        )
        return False
    return True


@cache
def sources_stamp() -> str:
    """Give a hash of all modules of this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compiled(parallel: bool):
    """Make a decorator that compiles with our options, and keeps the result while it is valid.

    Numba takes a cached kernel for valid while its own file is the same. Ours call functions of
    other files, so their stamp is that of all files together.
    """

    def decorate(function):
        # error_model: x / 0 is infinity or NaN; the default, an exception, also stops vectorization
        kernel = njit(parallel=parallel, cache=cache_works(), error_model="numpy")(function)
        if cache_works():
            kernel._cache._cache_file._source_stamp = sources_stamp()
        return kernel

    return decorate


# kernels: what they split with prange depends on the problem alone, never on the threads
parallel = _compiled(parallel=True)
serial = _compiled(parallel=False)
