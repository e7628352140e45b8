"""A way into the parts of kernels, which have none for Python."""

from numba import njit


def entry(part):
    """Give a part of kernels an entry for Python."""

    @njit
    def call(*arguments):
        return part(*arguments)

    return call
