"""From the arrays of a real model to the flat vector that steps are made of, and back.

Arrays of reals become one float32 vector, in order. Whatever else a model holds (integers such as the counters of batch
normalisation, truth values) has no steps: send it as it is, it is a few bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import InvalidInput

Array = NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """The shapes and types of a model's arrays, in order."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @staticmethod
    def of(arrays: Sequence[Array]) -> Layout:
        """Return the layout of these arrays."""
        return Layout(tuple(array.shape for array in arrays), tuple(array.dtype for array in arrays))

    @property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(prod(shape) for shape, dtype in zip(self.shapes, self.dtypes, strict=True) if _is_real(dtype))

    def flatten(self, arrays: Sequence[Array]) -> tuple[Vector, list[Array]]:
        """Return the reals as one float32 vector, and the arrays that have no steps.

        float64 and float16 are cast: the model that everybody holds has float32 precision.
        """
        if Layout.of(arrays) != self:
            raise InvalidInput("arrays", "must have the shapes and types of the layout")
        reals = [array.reshape(-1).astype(np.float32) for array in arrays if _is_real(array.dtype)]
        others = [array for array in arrays if not _is_real(array.dtype)]
        return np.concatenate(reals) if reals else np.zeros(0, np.float32), others

    def restore(self, vector: Vector, others: Sequence[Array] = ()) -> list[Array]:
        """Return the arrays of the model: new ones for the reals, with the types they had, and `others` as they are."""
        if vector.shape != (self.dim,):
            raise InvalidInput("vector", f"must have {self.dim} values, got shape {vector.shape}")
        if len(others) != sum(not _is_real(dtype) for dtype in self.dtypes):
            raise InvalidInput("others", f"must be the arrays that have no steps, got {len(others)}")
        rest, arrays, start = iter(others), list[Array](), 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            if _is_real(dtype):
                stop = start + prod(shape)
                arrays.append(vector[start:stop].reshape(shape).astype(dtype))
                start = stop
            else:
                arrays.append(next(rest))
        return arrays


def _is_real(dtype: np.dtype[Any]) -> bool:
    return bool(np.issubdtype(dtype, np.floating))
