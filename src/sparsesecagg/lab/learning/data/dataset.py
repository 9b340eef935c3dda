"""Samples with labels, split into a training and a test part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.seeds import Purpose, generator


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification task. Build one from your own arrays with `Dataset.from_arrays`."""

    name: str
    train_x: NDArray[np.float32]  # (samples, ...)
    train_y: NDArray[np.int64]  # (samples,), 0 … classes − 1
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]

    @classmethod
    def from_arrays(
        cls,
        train_x: ArrayLike,
        train_y: ArrayLike,
        test_x: ArrayLike | None = None,
        test_y: ArrayLike | None = None,
        *,
        classes: Sequence[str] | None = None,
        name: str = "own data",
        test_fraction: float = 0.2,
        seed: int = 0,
    ) -> Dataset:
        """Check the arrays and make a data set of them.

        Samples are (samples, ...) numbers, labels whole numbers from 0. Without a test part, `test_fraction` of the
        samples becomes one, drawn with `seed`.
        """
        x, y = _samples("train", train_x, train_y)
        if (test_x is None) != (test_y is None):
            raise InvalidInput("test_x", "must be given together with test_y")
        if test_x is None or test_y is None:
            x, y, other_x, other_y = _split(x, y, test_fraction, seed)
        else:
            other_x, other_y = _samples("test", test_x, test_y)
            if other_x.shape[1:] != x.shape[1:]:
                raise InvalidInput("test_x", f"has samples of shape {other_x.shape[1:]}, train_x of {x.shape[1:]}")
        highest = int(max(y.max(), other_y.max()))
        names = tuple(classes) if classes is not None else tuple(str(label) for label in range(highest + 1))
        if highest >= len(names):
            raise InvalidInput("classes", f"has {len(names)} names, but a label is {highest}")
        return cls(name, x, y, other_x, other_y, names)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.train_x.shape[1:]

    @cached_property
    def digest(self) -> str:
        """A hash of all samples and labels: a resumed run must see the data that the run began with."""
        state = hashlib.sha256()
        for part in (self.train_x, self.train_y, self.test_x, self.test_y):
            state.update(repr((part.shape, part.dtype.str)).encode())
            state.update(np.ascontiguousarray(part).data)
        return state.hexdigest()

    def with_samples(self, samples: int, seed: int) -> Dataset:
        """Return the task with only `samples` training samples, drawn with `seed`."""
        if not 1 <= samples <= len(self.train_y):
            raise InvalidInput("samples", f"must be 1 to {len(self.train_y)}, all there are, got {samples}")
        kept = np.sort(generator(seed, Purpose.SPLIT, 1).permutation(len(self.train_y))[:samples])
        return Dataset(self.name, self.train_x[kept], self.train_y[kept], self.test_x, self.test_y, self.classes)


def _samples(part: str, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        samples = np.ascontiguousarray(x, dtype=np.float32)
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"{part}_x", f"must be an array of numbers: {problem}") from None
    labels = np.asarray(y)
    if labels.ndim != 1 or (labels.dtype.kind not in "iu" and len(labels)):
        got = f"{labels.ndim} dimensions of {labels.dtype}"
        raise InvalidInput(f"{part}_y", f"must be a one-dimensional array of whole numbers, got {got}")
    if samples.ndim < 2 or len(samples) != len(labels) or not len(labels):
        wanted = f"one row for each of the {len(labels)} labels, and at least one"
        raise InvalidInput(f"{part}_x", f"must hold {wanted}, got shape {samples.shape}")
    if labels.min() < 0:
        raise InvalidInput(f"{part}_y", f"must count the classes from 0, got {labels.min()}")
    if not np.isfinite(samples).all():
        raise InvalidInput(f"{part}_x", "must be finite numbers, got NaN or infinity")
    return samples, labels.astype(np.int64)


def _split(
    x: NDArray[np.float32], y: NDArray[np.int64], fraction: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    held_out = round(len(y) * fraction)
    if not 0 < held_out < len(y):
        raise InvalidInput("test_fraction", f"must leave one of {len(y)} samples on either side, got {fraction}")
    order = generator(seed, Purpose.SPLIT).permutation(len(y))
    test, train = order[:held_out], order[held_out:]
    return x[train], y[train], x[test], y[test]
