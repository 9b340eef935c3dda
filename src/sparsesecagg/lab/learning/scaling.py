"""A clip that follows public information, so that short words lose next to nothing.

A word of b bits that sums n users gives each of them about 2^(b−1)/n steps on either side of zero, over ±clip. Set too
wide, small values drown in rounding noise; set too tight, large values are cut off. Updates shrink by an order of
magnitude while a model trains, and layers differ by as much, so one fixed clip is wrong for most of them.

`quantize/clips.py` has the rule: the clip of a layer is a headroom times the largest magnitude in the layer's last
aggregate, which the server learns anyway, so the clip tells nobody anything new. The headroom is 3 where steps are
scarce (8-bit words): single users' updates spread about that much wider than their mean. Where steps are plenty it is
larger, as long as `STEPS` of them remain below the largest magnitude, and clipping all but ends.

A round takes one clip for all coordinates. Users therefore divide each layer by its own clip before the round, and the
mean is multiplied by it afterwards.

Before the first aggregate, a layer's clip is the largest magnitude of its first weights, which everybody knows too: an
update is seldom larger than the weights themselves.

The rule mends itself. Where the clip was too tight, the coordinates that everybody cut off come out at the clip itself,
and the next clip is headroom times as wide. Where it was too wide, rounding is unbiased, and the next clip follows the
aggregate down. In a single round a clip changes by a factor of `FASTEST` at most, so one odd round can't ruin it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.models.base import Layer, Vector
from sparsesecagg.rounding import next_clips

LEAST_HEADROOM = 3.0
MOST_HEADROOM = 64.0
STEPS = 64
FASTEST = 8.0
SMALLEST = 1e-12


class AdaptiveClip:
    """The clip of every layer, from one round to the next."""

    def __init__(self, layers: Sequence[Layer], first: float | Vector, steps: int) -> None:
        """`first`: the first clip, or the model that it follows. `steps`: those of a user on either side of zero."""
        self.headroom = min(MOST_HEADROOM, max(LEAST_HEADROOM, steps / STEPS))
        self._layers = tuple(layers)
        self.clips: NDArray[np.float64] = (
            self._largest(first) if isinstance(first, np.ndarray) else np.full(len(self._layers), first, np.float64)
        )
        # Layers that begin at zero, such as biases, take the widest clip of the others.
        self.clips[self.clips == 0] = self.clips.max() or 1.0

    def per_coordinate(self) -> Vector:
        """Return the clip of each coordinate: what updates are divided by, and means multiplied by."""
        return np.repeat(self.clips, [layer.stop - layer.start for layer in self._layers]).astype(np.float32)

    def follow(self, mean: Vector, updated: NDArray[np.bool_] | None = None) -> None:
        """Set the clips for the next round from the public mean of this one.

        `updated` says where there is a mean: a layer of which nothing was opened keeps its clip.
        """
        known = updated is None or [updated[layer.start : layer.stop].any() for layer in self._layers]
        wanted = next_clips(self.clips, self._largest(mean), self.headroom, fastest=FASTEST, known=known)
        self.clips = np.maximum(wanted, SMALLEST)

    def _largest(self, vector: Vector) -> NDArray[np.float64]:
        return np.array([np.abs(vector[layer.start : layer.stop]).max() for layer in self._layers], np.float64)
