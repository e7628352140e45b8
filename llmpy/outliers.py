"""How unusual a value is beside the last 128 of its kind: the z-scores of llm.c's step lines.

    z = (value - mean) / std    over the window, which includes the value; 0 if std is 0

The first 128 values fill the window and have no z-score. The moments are sums over the whole window
each time, not running ones: a value that was not finite leaves with its place in the window.
Source: llm.c, llmc/outlier_detector.h.
"""

import math
from collections import deque

WINDOW = 128  # same as llm.c


class OutlierDetector:
    """The last values of one quantity.

    >>> detector = OutlierDetector(window=2)
    >>> [detector.update(x) for x in (5.0, 1.0, 3.0)]
    [None, None, 1.0]
    """

    def __init__(self, window: int = WINDOW) -> None:
        """Start with an empty window of so many values."""
        self.values: deque[float] = deque(maxlen=window)

    def update(self, value: float) -> float | None:
        """Take a value; give its z-score, or None where the window was not full before it."""
        n = len(self.values)
        filling = n != self.values.maxlen
        self.values.append(value)
        if filling:
            return None
        if min(self.values) == max(self.values):  # rounding could leave a std that is not 0
            return 0.0
        mean = math.fsum(self.values) / n
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in self.values) / n)
        return (value - mean) / std
