"""The clip of the next round, from what the server may know anyway: the last mean and how many values were clipped.

Short words leave few levels, so the clip should be close to the largest value that occurs. No single update is known,
but the mean is, and a user's values are rarely many times larger than the mean's largest. Where they were, the count of
clipped values tells, and the clip grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADROOM = 8.0
"""How much larger than the mean's largest value a single update may be before it is clipped."""
GROWTH = 4.0
"""How much the clip grows after a round in which values were clipped."""
CEILING = 1024.0
"""Beyond this multiple of the mean's largest value more room is no help: what is clipped then is an outlier."""
SLOWEST_FALL = 8.0
"""The clip falls at most by this factor in a round, so that one quiet round does not spoil the next."""


@dataclass
class Clip:
    """The clip of a round."""

    value: float
    adaptive: bool = True

    def learn(self, mean: NDArray[Any], clipped: int | None) -> None:
        """Adapt to a completed round."""
        if not self.adaptive:
            return
        largest = float(np.max(np.abs(mean), initial=0.0))
        if not np.isfinite(largest) or largest == 0:
            return
        if clipped and self.value < CEILING * largest:
            self.value *= GROWTH
        elif not clipped:
            self.value = min(max(HEADROOM * largest, self.value / SLOWEST_FALL), self.value * GROWTH)
