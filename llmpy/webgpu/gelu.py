"""GELU on a GPU. The maths and the contract are in ops/gelu.py."""

from .kernels import run
from .memory import ITEM, view

WG = 64  # threads of a workgroup, each with an element


def gelu_forward(out, inp):
    each_part("gelu_forward", out, inp)


def gelu_backward(dinp, inp, dout):
    each_part("gelu_backward", dinp, inp, dout)


def each_part(entry, *arrays):
    """Run an entry point on parts of arrays of one size, such as a binding can hold."""
    size, most = arrays[0].size, arrays[0].device.max_binding // ITEM
    for start in range(0, size, most):
        count = min(most, size - start)
        parts = {i: view(array, start, (count,)) for i, array in enumerate(arrays)}
        run("gelu", entry, parts, -(-count // WG), WG=WG)
