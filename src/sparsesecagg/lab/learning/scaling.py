"""The ranges of `train`: those of the product (`ranges.py`), for the layers of a model.

A round takes one clip for all coordinates. Users therefore divide each layer by its own range before the round, and the
mean is multiplied by it afterwards. Before the first aggregate, a layer's range is the largest magnitude of its first
weights, which everybody knows: an update is seldom larger than the weights themselves. A headroom of 3 is enough where
steps are scarce (8-bit words): single users' updates spread about that much wider than their mean. Where steps are
plenty it is larger, as long as `STEPS` of them remain below the largest magnitude, and clipping all but ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.models.base import Layer, Vector
from sparsesecagg.ranges import Ranges

LEAST_HEADROOM = 3.0
MOST_HEADROOM = 64.0
STEPS = 64


class AdaptiveClip:
    """The range of every layer, from one round to the next."""

    def __init__(self, layers: Sequence[Layer], first: float | Vector, steps: int) -> None:
        """`first`: the first range, or the model that it follows. `steps`: those of a user on either side of zero."""
        self.headroom = min(MOST_HEADROOM, max(LEAST_HEADROOM, steps / STEPS))
        self._layers = tuple(layers)
        ranges = self._largest(first) if isinstance(first, np.ndarray) else np.full(len(self._layers), first)
        # Layers that begin at zero, such as biases, take the widest range of the others.
        ranges[ranges == 0] = ranges.max() or 1.0
        self._ranges = Ranges(ranges, self.headroom)

    @property
    def clips(self) -> NDArray[np.float64]:
        """The ranges of the next round."""
        return self._ranges.values

    def per_coordinate(self) -> Vector:
        """Return the range of each coordinate: what updates are divided by, and means multiplied by."""
        return np.repeat(self.clips, [layer.stop - layer.start for layer in self._layers]).astype(np.float32)

    def follow(self, mean: Vector, updated: NDArray[np.bool_] | None = None, clipped: float = 0.0) -> None:
        """Set the ranges for the next round from the public mean of this one, and the part of all values clipped.

        `updated` says where there is a mean: a layer of which nothing was opened keeps its range.
        """
        known = updated is None or [updated[layer.start : layer.stop].any() for layer in self._layers]
        self._ranges.follow(self._largest(mean), known, clipped)

    def save(self) -> bytes:
        """Return what the next ranges depend on."""
        return self._ranges.save()

    def restore(self, data: bytes) -> None:
        """Go back to what `save` returned."""
        self._ranges = Ranges.restore(data)

    def _largest(self, vector: Vector) -> NDArray[np.float64]:
        return np.array([np.abs(vector[layer.start : layer.stop]).max() for layer in self._layers], np.float64)
