"""Slices: the model in G stretches, of which every committee sends `served` in a round.

In round r committee g sends the slices g + served·r + j (mod G), j < served. So every slice is sent by exactly `served`
committees, and over the rounds every committee sends everything. A slice carries `length` coordinates; the last ones
are padded with zeros, so that all uploads have the same size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Slices:
    """`count` slices that cover `dim` coordinates, `served` of them per committee and round."""

    dim: int
    count: int
    served: int

    @property
    def length(self) -> int:
        """Coordinates per slice, padding included."""
        return -(-self.dim // self.count)

    def of(self, committee: int, round_number: int) -> list[int]:
        """Return the slices that a committee sends in a round."""
        first = committee + self.served * round_number
        return [(first + step) % self.count for step in range(self.served)]

    def bounds(self, number: int) -> tuple[int, int]:
        """Return where a slice starts and stops in the model; padding is left out."""
        return min(self.dim, number * self.length), min(self.dim, (number + 1) * self.length)

    def coordinates(self, chosen: NDArray[np.bool_]) -> int:
        """Return how many coordinates some slices have together, padding left out."""
        # Whole slices come first, then one that is padded, then empty ones.
        whole, rest = divmod(self.dim, self.length)
        found = self.length * int(np.count_nonzero(chosen[:whole]))
        return found + rest * int(np.count_nonzero(chosen[whole : whole + 1]))

    def spread(self, per_slice: NDArray[Any]) -> NDArray[Any]:
        """Repeat a number per slice for each of its coordinates."""
        return np.repeat(per_slice, self.length)[: self.dim]
