"""What a model is on the way down: a flat float32 vector within limits, and the digest of its bytes.

The limits make "bit for bit on any machine" true without a footnote. All values are 0 or at least 2^−103 in magnitude,
so they are multiples of 2^−126, and so are the products that a step adds: no sum is ever subnormal, and a machine that
flushes subnormals to zero computes the same. No value exceeds 2^100, so nothing overflows on the way there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

Vector = NDArray[np.float32]

SMALLEST = np.float32(2.0**-103)
"""Its last bit is worth 2^−126, the smallest normal float32."""
LARGEST = np.float32(2.0**100)


def model_digest(model: Vector) -> bytes:
    """Return SHA-256 of the model's float32 values in little-endian order."""
    state = Hash(SHA256())
    state.update(wire_bytes(model))
    return state.finalize()


class NumberedModel:
    """A model that its number and its digest tell apart from all others; read-only from outside."""

    def __init__(self, model: Vector, sequence: int) -> None:
        self._model, self._sequence, self._digest = model, require_sequence(sequence), model_digest(model)

    @property
    def model(self) -> Vector:
        """The model, shape (dim,), float32; read-only, so that the digest stays true."""
        return read_only(self._model)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the model."""
        return self._digest

    @property
    def sequence(self) -> int:
        """The number of the model."""
        return self._sequence


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
    if not in_range(values):
        raise InvalidInput(name, "must be finite, with values between -2**100 and 2**100")
    return values


def require_sequence(sequence: int) -> int:
    """Return `sequence` if a model may have that number."""
    if not 0 <= sequence < 1 << 64:
        raise InvalidInput("sequence", f"must be at least 0 and below 2**64, got {sequence}")
    return sequence


def in_range(values: Vector) -> bool:
    """Say whether all values are finite and of magnitude at most 2^100."""
    # NaN compares false, so it is out of range as well.
    return bool(values.max() <= LARGEST and values.min() >= -LARGEST)


def cleaned(model: Vector) -> Vector:
    """Return a copy in which values of magnitude below 2^−103 are 0; −0 stays −0, so a clean model keeps its bits."""
    copy = model.astype(np.float32, copy=True)
    copy[_too_small(copy)] = 0
    return copy


def is_clean(model: Vector) -> bool:
    """Say whether the model keeps the limits at both ends."""
    return in_range(model) and not bool(_too_small(model).any())


def _too_small(model: Vector) -> NDArray[np.bool_]:
    size = np.abs(model)
    return (size > 0) & (size < SMALLEST)


def read_only(model: Vector) -> Vector:
    """Return a view that can't be written to, so that a digest taken once stays true."""
    view = model.view()
    view.flags.writeable = False
    return view
