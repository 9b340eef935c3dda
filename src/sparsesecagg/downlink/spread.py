"""Arrays of a model side by side, each in blocks of its own.

Steps have one scale per block of 512 coordinates. Arrays differ in size by orders of magnitude (weights, and the
variances of batch normalisation), and a common scale would round the small ones away, so each begins a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink.blocks import BLOCK, block_count
from sparsesecagg.downlink.vector import Vector


class Spread:
    """Where arrays of given sizes lie in the vector that steps are made of."""

    def __init__(self, sizes: Sequence[int]) -> None:
        starts = BLOCK * np.cumsum([0, *(block_count(size) for size in sizes)])
        self.size = int(starts[-1])
        """The length of the vector."""
        self._places = [slice(start, start + size) for start, size in zip(starts[:-1].tolist(), sizes, strict=True)]

    def join(self, arrays: Sequence[NDArray[Any]]) -> Vector:
        """Return the vector that holds these arrays, as float32; zeros fill it up."""
        vector = np.zeros(self.size, np.float32)
        for place, array in zip(self._places, arrays, strict=True):
            vector[place] = array.reshape(-1)
        return vector

    def split(self, vector: Vector) -> list[Vector]:
        """Return the flat arrays in a vector, as views."""
        return [vector[place] for place in self._places]
