"""AdamW on a GPU. The maths and the contract are in ops/adamw.py.

The kernel goes over whole buffers, a handful for a model, the zeros between two tensors included:
they stay 0. What decays is told as ranges of the buffer.
"""

import itertools
import struct

from ..errors import BackendError
from .device import pack_scalars
from .kernels import run
from .memory import ITEM
from .ranges import bound, runs, spans

GROUP = 1024  # elements of a workgroup; same as WG * EACH in adamw.wgsl


def adamw(
    params, grads, m, v, outcome,
    *, lr, beta1, beta2, eps, weight_decay, decay, step, grad_scale, max_norm,
):  # fmt: skip
    device = params.device
    buffers = list(zip(*_alike(params=params, grads=grads, m=m, v=v), strict=True))
    settings = (
        lr, beta1, 1 - beta1, beta2, 1 - beta2, eps, weight_decay,
        1 / (1 - beta1**step), 1 / (1 - beta2**step), grad_scale, max_norm,
    )  # fmt: skip
    now = device.changing("adamw settings", pack_scalars([float(x) for x in settings]))
    ranges = [[_in_buffer(run_, *r) for r in _of_run(run_, decay)] for run_, *_ in buffers]
    pairs = [x for of_run in ranges for pair in of_run for x in pair] or [0, 0]
    decays = device.changing("adamw decays", struct.pack(f"<{len(pairs)}I", *pairs))
    first = 0
    for own, of_run in zip(buffers, ranges, strict=True):
        last = first + len(of_run)
        for base, start, stop in spans(own[0].start, own[0].stop, device.max_binding // ITEM):
            parts = [
                bound(array, run_, base, stop)
                for array, run_ in zip((params, grads, m, v), own, strict=True)
            ]
            groups = -(-(stop - base) // GROUP)
            scalars = (base, start, stop, first, last)
            arrays = dict(enumerate((*parts, outcome)))
            run("adamw", "adamw", arrays, groups, scalars, (now, decays))
        first = last


def _alike(**arrays):
    """Give the runs of each array, which must lie in their buffers as those of `params` do."""
    found = {name: runs(array) for name, array in arrays.items()}
    places = {name: [p for run_ in own for p in _places(run_)] for name, own in found.items()}
    for name in found:
        for got, want in itertools.zip_longest(places[name], places["params"]):
            if got != want:
                raise BackendError(
                    f"webgpu: adamw: {name} has {got or 'nothing'}, expected"
                    f" {want or 'nothing'}, as params. Allocate all four alike."
                )
    return found.values()


def _places(run_):
    return [f"{piece.count} elements at {piece.start} of a buffer" for piece in run_.pieces]


def _of_run(run_, decay):
    """Give the ranges of the array that decay in a run, in order, none overlapping another."""
    found = []
    end = run_.first + run_.count
    for start, stop in ((0, end),) if decay is None else sorted(decay):
        start, stop = max(start, run_.first), min(stop, end)
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def _in_buffer(run_, start, stop):
    return run_.place(start), run_.place(stop - 1) + 1
