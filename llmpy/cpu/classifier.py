"""Classifier on the CPU. The maths and the contract are in ops/classifier.py.

The logits of a chunk of positions are made, turned into their own gradient in place, and used up
by the two products of the backward pass before the next chunk begins. A chunk is as long as the
logits of about 8 MB, but whole pieces of KC positions, in which dwte is summed in both dtypes: so
it has the same bits whatever the chunk.
"""

import numpy as np

from ..ops.memory import view
from .crossentropy import crossentropy_forward
from .gemm import KC, gemm
from .jit import kernel
from .matmul import matrix
from .memory import data, scratch
from .simd import floats, ints
from .softmax import softmax_row
from .tasks import integers, numbers, run
from .tile import ADD, WRITE

CHUNK = 1 << 21  # logits of a chunk, unless KC positions have more


def chunk_rows(V):
    """Give the positions of a chunk."""
    return max(1, CHUNK // V // KC) * KC


def logits_forward(logits, lnf, wte, *, bf16=False):
    gemm(logits, lnf, wte, a_unit_k=True, b_unit_k=True, K=wte.shape[1], bf16=bf16)


@kernel
def gradients_task(arguments, task, thread):
    """Write the loss of one position, and the gradient of its logits over the logits."""
    losses, logits, targets, V, dloss = integers(arguments, 5)
    row, target = floats(logits + 4 * task * V, V), ints(targets + 4 * task, 1)[0]
    (factor,) = numbers(dloss, 1)
    logit = row[target]
    largest, log_sum = softmax_row(row)
    floats(losses + 4 * task, 1)[0] = log_sum - (logit - largest)
    row[target] -= np.float32(1)
    for v in range(V):
        row[v] = row[v] * factor


def chunks(losses, lnf, wte, targets, V, bf16):
    """Go through chunks of positions: their losses, lnf, targets and logits, and the first row."""
    rows, losses, targets = matrix(lnf), losses.reshape(-1), targets.reshape(-1)
    step = chunk_rows(V)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        count = len(losses[part])
        logits = view(scratch("logits", count * V), 0, (count, V))
        logits_forward(logits, rows[part], wte[:V], bf16=bf16)
        yield losses[part], rows[part], targets[part], logits, part


def classifier_forward(losses, lnf, wte, targets, *, V, bf16=False):
    for part_losses, _, part_targets, logits, _ in chunks(losses, lnf, wte, targets, V, bf16):
        crossentropy_forward(part_losses, logits, part_targets, V=V)


def classifier_forward_backward(
    losses, dlnf, dwte, lnf, wte, targets, *, V, dloss, accumulate, bf16=False
):
    drows, mode, factor = matrix(dlnf), ADD if accumulate else WRITE, np.array([dloss], np.float32)
    for part_losses, rows, part_targets, logits, part in chunks(losses, lnf, wte, targets, V, bf16):
        arrays = data(part_losses), data(logits), data(part_targets)
        run(gradients_task, len(rows), *arrays, V, data(factor))
        gemm(drows[part], logits, wte[:V], a_unit_k=True, b_unit_k=False, K=V, bf16=bf16)
        gemm(
            dwte[:V], logits, rows, a_unit_k=False, b_unit_k=False, K=len(rows), bf16=bf16,
            mode=mode, piece=KC,
        )  # fmt: skip
        mode = ADD
    if not accumulate:
        dwte[V if losses.size else 0 :] = 0  # all of it where there is no position
