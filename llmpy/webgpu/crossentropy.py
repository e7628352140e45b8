"""Cross-entropy on a GPU. The maths and the contract are in ops/crossentropy.py."""

from .kernels import row_threads, run
from .ranges import parts

ELEMENTS = 64  # of a workgroup of the backward pass; same as crossentropy.wgsl


def crossentropy_forward(losses, logits, targets, *, V):
    entry, WG = "crossentropy_forward", row_threads(V)
    for part in parts(losses.size, losses, logits, targets):
        count, Vp = part[1].shape
        run("crossentropy", entry, dict(enumerate(part)), count, (V, Vp), WG=WG)


def crossentropy_softmax_backward(dlogits, dlosses, probs, targets, *, V):
    entry = "crossentropy_softmax_backward"
    for part in parts(dlosses.size, dlogits, dlosses, probs, targets):
        groups, Vp = -(-part[0].size // ELEMENTS), part[0].shape[1]
        run("crossentropy", entry, dict(enumerate(part)), groups, (V, Vp))
