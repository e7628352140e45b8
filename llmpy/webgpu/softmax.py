"""Softmax on a GPU. The maths and the contract are in ops/softmax.py."""

import math

from .kernels import row_threads, run
from .ranges import parts


def softmax_forward(probs, logits, *, V):
    for part in parts(math.prod(probs.shape[:2]), probs, logits):
        count, Vp = part[0].shape
        arrays = dict(enumerate(part))
        run("softmax", "softmax_forward", arrays, count, (V, Vp), WG=row_threads(V))
