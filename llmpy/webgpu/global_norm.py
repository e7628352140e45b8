"""The global norm on a GPU. The maths and the contract are in ops/global_norm.py."""

from .kernels import run, scratch_array
from .memory import ITEM
from .ranges import bound, runs, spans

CHUNK = 16384  # elements of a workgroup; same as global_norm.wgsl


def global_norm(outcome, grads):
    device = grads.device
    most = device.max_binding // ITEM
    most = most // CHUNK * CHUNK or most  # cut where chunks begin: then the cut has no influence
    parts = [(run_, span) for run_ in runs(grads) for span in spans(run_.start, run_.stop, most)]
    chunks = [-(-(stop - base) // CHUNK) for _, (base, _, stop) in parts]
    sums = scratch_array(device, "global_norm sums", 4 * max(sum(chunks), 1))
    first = 0
    for (run_, (base, start, stop)), count in zip(parts, chunks, strict=True):
        arrays = {1: bound(grads, run_, base, stop)}
        scalars = (start - base, stop - base, first)
        run("global_norm", "global_norm_sums", arrays, count, scalars, (sums,))
        first += count
    run("global_norm", "global_norm", {0: outcome}, 1, (0, first, 0), (sums,))
