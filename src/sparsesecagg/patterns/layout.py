"""How coordinates are cut into blocks.

A block is what a pattern hands out: `length` coordinates followed by `extra` words for private integers (a weight, a
count of clipped values). The last blocks are padded with zeros, so that all have the same width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BlockIds = NDArray[np.int64] | slice
"""Sorted block numbers, or `ALL`: all blocks in order."""

ALL = slice(None)


@dataclass(frozen=True)
class Layout:
    """`blocks` blocks of `length` coordinates, covering `dim`."""

    dim: int
    blocks: int
    length: int

    @staticmethod
    def cut(dim: int, blocks: int) -> Layout:
        """Cut `dim` coordinates into `blocks` blocks of equal length, the last ones padded."""
        return Layout(dim, blocks, -(-dim // blocks))

    def count(self, blocks: BlockIds) -> int:
        """Return how many blocks are named."""
        return self.blocks if isinstance(blocks, slice) else len(blocks)

    def piece(self, vector: NDArray[Any], block: int, start: int, stop: int) -> NDArray[Any]:
        """Return the vector's values at places start … stop of a block; padding is zero."""
        offset = block * self.length
        part = vector[offset + start : offset + stop]
        if len(part) == stop - start:
            return part
        values = np.zeros(stop - start, vector.dtype)
        values[: len(part)] = part
        return values

    def flatten(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the coordinates of all blocks, shape (blocks, ≥ length), as one vector of length dim."""
        return values[:, : self.length].reshape(-1)[: self.dim]

    def spread(self, per_block: NDArray[Any]) -> NDArray[Any]:
        """Repeat a number per block for each of its coordinates."""
        return np.repeat(per_block, self.length)[: self.dim]
