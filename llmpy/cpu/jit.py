"""How the kernels are compiled: the options, in one place. They are kept by kernel_cache.py.

There is no fast-math here: the few loops that need some say so, in vector_math.py.

Numba's threads meet at GNU OpenMP's barriers, where one that is early spins. It does so for
milliseconds by default, which on a machine with other work to do keeps the very thread that it
waits for from running. With about 20 microseconds it bridges the Python between two kernels, and
then sleeps. The variable is read when the first kernel starts; one that is set already is kept.
"""

import gc
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


def _without_entry(kernel):
    """Refuse calls from Python, which would jump to address 0."""
    if config.DISABLE_JIT:
        return kernel

    def refuse(*arguments):
        raise TypeError(f"{kernel.__name__}: called from Python, expected a call from a kernel")

    kernel._compile_for_args = refuse
    kernel._insert = lambda *entry, **more: None  # what would be found without asking to compile
    return _for_all_integers(kernel)


def _without_collecting(compile):
    """Look for no garbage while a kernel is compiled: that would be a tenth of the time."""

    def wrapped(signature):
        collecting = gc.isenabled()
        gc.disable()
        try:
            return compile(signature)
        finally:
            if collecting:
                gc.enable()

    return wrapped


def _compiled(**options):
    """Make a decorator that compiles with our options, and keeps the result while it is valid."""

    def decorate(function):
        # error_model: x / 0 is infinity or NaN; the default, an exception, also stops vectorization
        kernel = njit(error_model="numpy", **options)(function)
        if cache_works():
            kernel._cache = KernelCache(function)
        if not config.DISABLE_JIT:
            kernel.compile = _without_collecting(kernel.compile)
        without_entry = options.get("no_cpython_wrapper")
        return _without_entry(kernel) if without_entry else _for_all_integers(kernel)

    return decorate


# what Python calls, and what C code does: each entry takes time to compile
parallel = _compiled(parallel=True, no_cfunc_wrapper=True)
serial = _compiled(no_cfunc_wrapper=True)
kernel = _compiled(no_cpython_wrapper=True)  # tasks.py calls it


# parts of kernels, without an entry of their own; `inlined` for those that are called in one or two
# places, where they are put instead of the call: less to compile
def part(function=None, **options):
    if function is None:
        return lambda function: part(function, **options)
    entries = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _without_entry(njit(error_model="numpy", **entries, **options)(function))


inlined = njit(error_model="numpy", inline="always")

# plain Python where Python calls it, and compiled within kernels: so sizes are reckoned, and told,
# before anything compiles
plain = register_jitable(error_model="numpy")
