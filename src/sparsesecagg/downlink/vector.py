"""What a model is on the way down: a flat float32 vector within limits, the digest of its bytes, and arrays in it.

The limits make "bit for bit on any machine" true without a footnote. All values are 0 or at least 2^−103 in magnitude,
so they are multiples of 2^−126, and so are the products that a step adds: no sum is ever subnormal, and a machine that
flushes subnormals to zero computes the same. No value exceeds 2^100, so nothing overflows on the way there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require

Vector = NDArray[np.float32]

BLOCK = 512
"""Coordinates that share a scale in a step."""

SMALLEST = np.float32(2.0**-103)
"""Its last bit is worth 2^−126, the smallest normal float32."""
LARGEST = np.float32(2.0**100)


def model_digest(model: Vector) -> bytes:
    """Return SHA-256 of the model's float32 values in little-endian order."""
    return hashlib.sha256(wire_bytes(model)).digest()


def wire_bytes(model: Vector) -> memoryview:
    """Return the little-endian bytes of a model; a copy only on a big-endian machine."""
    return np.ascontiguousarray(model, "<f4").view(np.uint8).data


def from_wire(data: bytes | memoryview) -> Vector:
    """Return a model, in new memory, from its little-endian bytes."""
    return np.frombuffer(data, "<f4").astype(np.float32, copy=True)


def require_vector(name: str, values: Any) -> Vector:
    """Return `values` as they are if they are a flat float32 vector that a step can lead to or start from."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.ndim != 1 or not values.size:
        kind = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise InvalidInput(name, f"must be a flat float32 vector with at least one value, got {kind}")
    require(name, in_range(values), "must be finite, with values between -2**100 and 2**100")
    return values


def require_sequence(sequence: int) -> int:
    """Return `sequence` if a model may have that number."""
    require("sequence", 0 <= sequence < 1 << 64, f"must be at least 0 and below 2**64, got {sequence}")
    return sequence


def in_range(values: Vector) -> bool:
    """Say whether all values are finite and of magnitude at most 2^100."""
    # NaN compares false, so it is out of range as well.
    return bool(values.max() <= LARGEST and values.min() >= -LARGEST)


def too_small(model: Vector) -> NDArray[np.bool_]:
    """Say for each value whether it must be 0 instead; −0 need not, so a clean model keeps its bits."""
    size = np.abs(model)
    return (size > 0) & (size < SMALLEST)


def read_only(model: Vector) -> Vector:
    """Return a view that can't be written to, so that a digest taken once stays true."""
    view = model.view()
    view.flags.writeable = False
    return view


def block_count(dim: int) -> int:
    """Return how many blocks a model has; the last one may be shorter."""
    return -(-dim // BLOCK)


class Spread:
    """Where arrays of given sizes lie in the vector that steps are made of: each begins a block.

    Arrays differ in size by orders of magnitude (weights, and the variances of batch normalisation), and a common scale
    would round the small ones away. A round with slices changes coordinates that are spread over the whole model
    (`Pattern.turns` says in which round which); inside an array, those of one turn lie side by side, so that a step
    costs in proportion to the part that the round covered.
    """

    def __init__(self, sizes: Sequence[int], turns: NDArray[np.integer[Any]] | None = None) -> None:
        """`turns` has a number for each coordinate of all arrays, one after the other: equal ones change together."""
        self.size = 0
        """The length of the vector."""
        self._places: list[slice | NDArray[np.int64]] = []
        for size, stop in zip(sizes, np.cumsum(sizes), strict=True):
            if turns is None:
                self._places.append(slice(self.size, self.size + size))
            else:
                place = np.empty(size, np.int64)
                place[np.argsort(turns[stop - size : stop], kind="stable")] = np.arange(self.size, self.size + size)
                self._places.append(place)
            self.size += BLOCK * block_count(size)

    def join(self, arrays: Sequence[NDArray[Any]]) -> Vector:
        """Return the vector that holds these arrays, as float32; zeros fill it up."""
        vector = np.zeros(self.size, np.float32)
        for place, array in zip(self._places, arrays, strict=True):
            vector[place] = array.reshape(-1)
        return vector

    def split(self, vector: Vector) -> list[Vector]:
        """Return the flat arrays in a vector; views where the order is theirs."""
        return [vector[place] for place in self._places]
