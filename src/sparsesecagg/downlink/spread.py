"""Arrays of a model side by side, each in its own blocks, with what a round changes close together.

Steps have one scale per block of 512 coordinates, and a block in which nothing changes costs one byte. Arrays differ in
size by orders of magnitude (weights, and the variances of batch normalisation), and a common scale would round the
small ones away, so each begins a block. A round with slices changes coordinates that are spread over the whole model
(`Pattern.turns` says in which round which); inside an array, those of one turn lie side by side, so that a step costs
in proportion to the part that the round covered.
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

    def __init__(self, sizes: Sequence[int], turns: NDArray[np.integer[Any]] | None = None) -> None:
        """`turns` has a number for each coordinate of all arrays, one after the other: equal ones change together."""
        starts = BLOCK * np.cumsum([0, *(block_count(size) for size in sizes)])
        self.size = int(starts[-1])
        """The length of the vector."""
        self._places: list[slice | NDArray[np.int64]] = [
            slice(start, start + size) for start, size in zip(starts[:-1].tolist(), sizes, strict=True)
        ]
        if turns is not None:
            parts = np.split(turns, np.cumsum(sizes)[:-1])
            self._places = [_place(int(start), part) for start, part in zip(starts, parts, strict=False)]

    def join(self, arrays: Sequence[NDArray[Any]]) -> Vector:
        """Return the vector that holds these arrays, as float32; zeros fill it up."""
        vector = np.zeros(self.size, np.float32)
        for place, array in zip(self._places, arrays, strict=True):
            vector[place] = array.reshape(-1)
        return vector

    def split(self, vector: Vector) -> list[Vector]:
        """Return the flat arrays in a vector; views where the order is theirs."""
        return [vector[place] for place in self._places]


def _place(start: int, turns: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return where each coordinate of one array lies: sorted by its turn."""
    place = np.empty(len(turns), np.int64)
    place[np.argsort(turns, kind="stable")] = np.arange(start, start + len(turns))
    return place
