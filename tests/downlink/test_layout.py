"""From the arrays of a model to the flat vector and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsesecagg.downlink import Layout, Replica, StepLog
from sparsesecagg.errors import InvalidInput

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=6)


def batch_norm() -> list[np.ndarray]:
    """Return what a layer with batch normalisation holds: reals of two precisions, and a counter."""
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=(3, 4)).astype(np.float32),
        np.array(17, np.int64),
        rng.normal(size=4).astype(np.float32).astype(np.float64),
        np.array([True, False]),
        np.array(0.5, np.float32),
    ]


@given(SHAPES, st.data())
def test_flattening_and_restoring_returns_the_arrays(shapes: list[tuple[int, ...]], data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.bool_])) for _ in shapes]
    arrays: list[NDArray[Any]] = [
        np.arange(int(np.prod(shape))).reshape(shape).astype(kind) for shape, kind in zip(shapes, kinds, strict=True)
    ]
    layout = Layout.of(arrays)
    vector, others = layout.flatten(arrays)
    assert vector.dtype == np.float32
    assert vector.shape == (layout.dim,)
    for array, again in zip(arrays, layout.restore(vector, others), strict=True):
        assert array.dtype == again.dtype
        assert np.array_equal(array, again)


def test_a_model_with_counters_travels_in_steps() -> None:
    arrays = batch_norm()
    layout = Layout.of(arrays)
    vector, others = layout.flatten(arrays)
    assert [other.dtype.kind for other in others] == ["i", "b"]
    log = StepLog(vector)
    replica = Replica.from_model(log.for_node(None))
    log.advance(vector + np.float32(1))
    replica.catch_up(log.for_node(None))
    rebuilt = layout.restore(replica.model, others)
    assert rebuilt[0].shape == (3, 4)
    assert np.allclose(rebuilt[0], arrays[0] + 1, atol=0.3)
    assert rebuilt[1] == 17


def test_arrays_that_do_not_fit_are_rejected() -> None:
    arrays = batch_norm()
    layout = Layout.of(arrays)
    vector, others = layout.flatten(arrays)
    with pytest.raises(InvalidInput, match="arrays must have the shapes and types"):
        layout.flatten(arrays[:-1])
    with pytest.raises(InvalidInput, match="vector must have 17 values"):
        layout.restore(vector[:-1], others)
    with pytest.raises(InvalidInput, match="others must be the arrays that have no steps, got 1"):
        layout.restore(vector, others[:1])
