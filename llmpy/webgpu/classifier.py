"""Classifier on a GPU. The maths and the contract are in ops/classifier.py.

The logits of a chunk of positions are made in scratch memory, turned into their own gradient in
place, and used up by the two products of the backward pass before the next chunk begins.
"""

from .kernels import row_threads, run, scratch_array
from .limits import PORTABLE
from .matmul import dinp_product, dweight_product, forward_product
from .memory import ITEM, view, zero
from .ranges import UNIT

LOGITS = 1 << 24  # of a chunk, at most: 64 MiB
POSITIONS = 1024  # of a chunk, at most


def logits_forward(logits, lnf, wte, *, bf16=False):
    forward_product(logits, lnf, wte)


def classifier_forward(losses, lnf, wte, targets, *, V, bf16=False):
    for first, count in chunks(losses, V):
        logits = chunk_logits(lnf, wte, V, first, count)
        chunk_losses("classifier_forward", losses, targets, logits, first, V, 0.0)


def classifier_forward_backward(
    losses, dlnf, dwte, lnf, wte, targets, *, V, dloss, accumulate, bf16=False
):
    Vp, C = dwte.shape
    if not accumulate:  # the padded rows; all where there is no position
        padded = V if losses.size else 0
        zero(view(dwte, padded * C, (Vp - padded, C)))
    for first, count in chunks(losses, V):
        logits = chunk_logits(lnf, wte, V, first, count)
        entry = "classifier_forward_backward"
        chunk_losses(entry, losses, targets, logits, first, V, float(dloss))
        stride = logits.shape[1]
        positions = first * C, (count, C)
        dinp_product(view(dlnf, *positions), logits, view(wte, 0, (V, C)), stride=stride)
        dweight_product(
            view(dwte, 0, (V, C)), logits, view(lnf, *positions),
            stride=stride, add=accumulate or first > 0,
        )  # fmt: skip


def chunks(losses, V):
    """Cut positions into chunks: the first of each and their number."""
    N, most = losses.size, chunk_rows(V, losses.device.max_binding)
    return [(first, min(most, N - first)) for first in range(0, N, most)]


def chunk_rows(V, max_binding=PORTABLE["max-storage-buffer-binding-size"]):
    """Give the positions of a chunk: the same on all devices, but where a binding is too small."""
    stride = row_stride(V)
    usual = max(1, LOGITS // stride // UNIT) * UNIT
    return max(1, min(POSITIONS, usual, max_binding // ITEM // stride))


def row_stride(V):
    """Give the elements from a row of logits to the next, such that each begins on a boundary."""
    return -(-V // UNIT) * UNIT


def chunk_logits(lnf, wte, V, first, count):
    """Make the logits of positions, in scratch memory."""
    C, stride = wte.shape[1], row_stride(V)
    logits = scratch_array(lnf.device, "classifier logits", count * stride)
    logits = view(logits, 0, (count, stride))
    inp = view(lnf, first * C, (count, C))
    forward_product(logits, inp, view(wte, 0, (V, C)), stride=stride)
    return logits


def chunk_losses(entry, losses, targets, logits, first, V, dloss):
    """Write the losses of positions, and with their gradient, that over the logits."""
    count, stride = logits.shape
    scalars = (V, stride, first, count, dloss)
    arrays = {0: losses, 5: targets}
    run("classifier", entry, arrays, count, scalars, (logits,), WG=row_threads(V))
