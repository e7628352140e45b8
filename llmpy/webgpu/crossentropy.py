"""Cross-entropy on a GPU. The maths and the contract are in ops/crossentropy.py."""

from .kernels import run
from .ranges import parts

WG = 64  # elements of a workgroup of the backward pass


def crossentropy_forward(losses, logits, targets, *, V):
    for part in parts(losses.size, losses, logits, targets):
        count, Vp = part[1].shape
        run("crossentropy", "crossentropy_forward", dict(enumerate(part)), count, (V, Vp))


def crossentropy_softmax_backward(dlogits, dlosses, probs, targets, *, V):
    entry = "crossentropy_softmax_backward"
    for part in parts(dlosses.size, dlogits, dlosses, probs, targets):
        groups, Vp = -(-part[0].size // WG), part[0].shape[1]
        run("crossentropy", entry, dict(enumerate(part)), groups, (V, Vp))
