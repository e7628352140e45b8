"""How the kernels are compiled: the options, in one place. They are kept by kernel_cache.py.

There is no fast-math here: the few loops that need some say so, in vector_math.py.

Numba's threads meet at GNU OpenMP's barriers, where one that is early spins. It does so for
milliseconds by default, which on a machine with other work to do keeps the very thread that it
waits for from running. With about 20 microseconds it bridges the Python between two kernels, and
then sleeps. The variable is read when the first kernel starts; one that is set already is kept.
"""

import os
from functools import cache

from numba import config, njit, types
from numba.extending import register_jitable

from .kernel_cache import KernelCache, tell_once

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
        tell_once("no writable directory for compiled kernels, so they are compiled at each start")
        return False
    return True


def _for_all_integers(kernel):
    """Let calls with constant integers use the version for any: fewer versions to compile."""
    if config.DISABLE_JIT:
        return kernel
    ask = kernel.get_call_template
    kernel.get_call_template = lambda args, kws: ask(tuple(map(types.unliteral, args)), kws)
    return kernel


def _compiled(parallel: bool):
    """Make a decorator that compiles with our options, and keeps the result while it is valid."""

    def decorate(function):
        # error_model: x / 0 is infinity or NaN; the default, an exception, also stops vectorization
        kernel = njit(parallel=parallel, error_model="numpy")(function)
        if cache_works():
            kernel._cache = KernelCache(function)
        return _for_all_integers(kernel)

    return decorate


# kernels: what a task computes depends on the problem alone, never on the threads
parallel = _compiled(parallel=True)
serial = _compiled(parallel=False)


# parts of kernels, without an entry of their own for Python or C; `inlined` for those that are
# called in one or two places, where they are put instead of the call: less to compile
def part(function):
    return _for_all_integers(
        njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    )


inlined = njit(error_model="numpy", inline="always")

# plain Python where Python calls it, and compiled within kernels: so sizes are reckoned, and told,
# before anything compiles
plain = register_jitable(error_model="numpy")
