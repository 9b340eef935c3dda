"""How a clip follows the aggregate: the one rule of simulated training and of Flower.

Short words leave few steps between −clip and clip, so a clip should be little wider than the values that occur. The
server may know the aggregate and nothing else, so the next clip follows from that: some headroom times the largest
magnitude in the last aggregate. In one round it changes by a bounded factor only, so that one odd round does not spoil
the next. How much headroom there should be depends on what else is known, and is the caller's to say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def next_clips(
    clips: ArrayLike,
    largest: ArrayLike,
    headroom: ArrayLike,
    *,
    fastest: float,
    known: ArrayLike = True,
) -> NDArray[np.float64]:
    """Return the clips of the next round, one for each layer.

    `largest` are the largest magnitudes in each layer of the last aggregate. A clip changes by a factor of `fastest` at
    most, and only where something is `known` of its layer.
    """
    now = np.asarray(clips, np.float64)
    wanted = np.clip(np.multiply(headroom, largest, dtype=np.float64), now / fastest, now * fastest)
    return np.where(known, wanted, now)
