"""A way into the parts of kernels, which have none for Python."""

from functools import cache

from numba import njit


@cache  # each is compiled once, for all tests
def entry(part):
    """Give a part of kernels an entry for Python."""

    @njit
    def call(*arguments):
        return part(*arguments)

    return call
