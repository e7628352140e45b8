"""Mean loss on the CPU. The maths and the contract are in ops/mean_loss.py."""

import numpy as np


def mean_loss(outcome, losses, *, scale, accumulate):
    total = scale * np.sum(losses, dtype=np.float64)  # few numbers: not worth a kernel
    outcome[0] = outcome[0] + total if accumulate else total
