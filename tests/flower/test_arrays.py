"""Models as vectors: which arrays travel, and that models come back as they went."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st

from flower.local_grid import model, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower.arrays import Template, view

DTYPES = [np.float16, np.float32, np.float64, np.int64, np.bool_]

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
models = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4), st.tuples(shapes, st.sampled_from(DTYPES)), min_size=1, max_size=6
)


def filled(layout: dict[str, Any], seed: int) -> ArrayRecord:
    """Return a model of that layout with small random values."""
    rng = np.random.default_rng(seed)
    return model(
        **{name: np.asarray(rng.normal(0, 1, shape) * 3).astype(dtype) for name, (shape, dtype) in layout.items()}
    )


def dense(record: ArrayRecord, template: Template) -> np.ndarray:
    """Return the travelling arrays end to end, the slow way."""
    parts = [values(record)[slot.name].reshape(-1).astype(template.dtype) for slot in template.slots if slot.size]
    return np.concatenate(parts) if parts else np.zeros(0)


@given(layout=models)
def test_adding_the_update_back_gives_the_trained_model(layout: dict[str, Any]) -> None:
    received, trained = filled(layout, 1), filled(layout, 2)
    try:
        template = Template.of(received)
    except InvalidInput:
        return
    moved = template.cast(template.add(received, dense(trained, template) - dense(received, template)))
    for name, (shape, dtype) in layout.items():
        array = values(moved)[name]
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        source = trained if np.dtype(dtype).kind == "f" else received
        np.testing.assert_allclose(array, values(source)[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("values_", [np.float32(2.5), np.zeros((0, 3)), np.arange(6).reshape(2, 3), np.array([True])])
def test_a_view_shows_the_values_and_can_not_be_written_to(values_: Any) -> None:
    array = Array(np.asarray(values_))
    seen = view(array)
    np.testing.assert_array_equal(seen, values_)
    assert seen.shape == np.shape(values_)
    assert not seen.flags.writeable


def test_arrays_in_another_serialisation_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must hold NumPy arrays"):
        view(Array("float32", (1,), "pickle", b"\x00"))


def test_a_header_that_python_can_not_read_is_refused() -> None:
    """Found by fuzzing: NumPy reads a header once more as Python 2 wrote them, and another error comes out."""
    good = Array(np.ones(3, np.float32)).data
    with pytest.raises(InvalidInput, match="can't be read"):
        view(Array("float32", (3,), "numpy.ndarray", good.replace(b"(3,)", b"((3,")))


@pytest.mark.parametrize(("shape", "dtype", "size"), [((-1, -4), "<f4", 16), ((2,), "|V0", 0), ((0, 2**63), "<f4", 0)])
def test_a_shape_or_type_that_holds_no_numbers_is_refused(shape: tuple[int, ...], dtype: str, size: int) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    with pytest.raises(InvalidInput, match="arrays must"):
        view(Array(str(np.dtype(dtype)), shape, "numpy.ndarray", header.getvalue() + bytes(size)))
