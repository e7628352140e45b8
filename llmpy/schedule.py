"""Learning rate by step: llm.c's four schedules, in float32 as there.

    warm-up   lr * (step + 1) / warmup while step < warmup; `constant` has none
    cosine    min + (lr - min) * (1 + cos(pi r)) / 2       r = (step - warmup) / (steps - warmup)
    linear    lr - (lr - min) * r
    constant  lr
    wsd       lr until step d = int(0.8 steps), then min + (lr - min) * (1 - sqrt(r))
                                                           r = (step - d) / (steps - d)

with min = lr * final_lr_frac. r is held within 0 and 1, so the rate is finite for any step, also
past the end, and where warm-up is as long as the run. Source: llm.c, llmc/schedulers.h.
"""

import numpy as np

from .config import SCHEDULES
from .errors import ConfigError


def learning_rate(
    step: int, *, lr: float, schedule: str, warmup: int, steps: int, final_lr_frac: float
) -> float:
    """Give the learning rate of one step.

    step    counted from 0
    warmup  steps in which the rate rises to `lr`
    steps   of the whole run

    >>> learning_rate(9, lr=1e-3, schedule="linear", warmup=20, steps=100, final_lr_frac=0)
    0.0005000000237487257
    """
    if schedule not in SCHEDULES:
        raise ConfigError(f"schedule is {schedule}, expected one of {', '.join(SCHEDULES)}")
    highest = np.float32(lr)
    lowest = highest * np.float32(final_lr_frac)
    if schedule == "constant":
        return float(highest)
    if step < warmup:
        return float(highest * np.float32(step + 1) / np.float32(warmup))
    if schedule == "wsd":
        decay_start = int(np.float32(0.8) * np.float32(steps))
        if step < decay_start:
            return float(highest)
        fall = np.float32(1) - np.sqrt(_ratio(step - decay_start, steps - decay_start))
        return float(lowest + fall * (highest - lowest))
    ratio = _ratio(step - warmup, steps - warmup)
    if schedule == "linear":
        return float(highest - ratio * (highest - lowest))
    fall = np.float32(0.5) * (np.float32(1) + np.cos(np.float32(np.pi) * ratio))
    return float(lowest + fall * (highest - lowest))


def _ratio(done: int, length: int) -> np.float32:
    """Give done / length within 0 and 1; 1 where nothing is left to go."""
    if done >= length:
        return np.float32(1)
    return np.float32(done) / np.float32(length)
