"""Models as vectors: the lazy update equals the plain difference, and models come back as they went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st

from flower.local_grid import model, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower.arrays import ModelUpdate, Template, view
from sparsesecagg.protocol import Parameters, Policy, RoundOptions
from sparsesecagg.simulate import Cohort, run_round

DTYPES = [np.float16, np.float32, np.float64, np.int64, np.bool_]

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
powers = st.sampled_from([0.25, 1.0, 8.0])  # Exact in every precision.
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


@given(layout=models, extra=st.lists(st.floats(-1, 1, width=16), max_size=3), data=st.data())
def test_an_update_reads_like_the_plain_difference(layout: dict[str, Any], extra: list[float], data: Any) -> None:
    received, trained = filled(layout, 1), filled(layout, 2)
    try:
        template = Template.of(received)
    except InvalidInput:
        return
    scales = data.draw(st.lists(powers, min_size=len(template.travelling), max_size=len(template.travelling)))
    update = ModelUpdate(template, received, trained, scales, extra)
    difference = template.scaled(dense(trained, template) - dense(received, template), [1 / scale for scale in scales])
    expected = np.append(difference, extra)
    assert update.dim == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    np.testing.assert_array_equal(update.read(start, stop), expected[start:stop].astype(template.dtype))
    places = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=8)), np.int64)
    np.testing.assert_array_equal(update.take(places), expected[places].astype(template.dtype))


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


@pytest.mark.parametrize("pattern", ["sliced", "full", "pairwise"])
def test_the_protocol_sums_lazy_updates_as_it_sums_plain_ones(pattern: str) -> None:
    """The core reads updates in pieces; a source without memory must serve every pattern."""
    received = model(a=np.zeros((30, 7), np.float32), b=np.zeros(91, np.float32))
    template = Template.of(received)
    models_ = [filled({"a": ((30, 7), np.float32), "b": ((91,), np.float32)}, seed) for seed in range(5)]
    lazy = [ModelUpdate(template, received, trained, [1.0, 1.0]) for trained in models_]
    alpha = 1.0 if pattern == "full" else 0.7
    params = Parameters.create(5, template.dim, RoundOptions(pattern=pattern, alpha=alpha, clip=32.0))
    outcome = run_round(params, lazy, Cohort(policy=Policy(patterns=frozenset({pattern}))))
    assert outcome.exact
    contributors = outcome.result.contributors
    if pattern != "pairwise":
        plain = np.mean([dense(trained, template) for trained in models_], axis=0)
        full = contributors == 5
        np.testing.assert_allclose(outcome.result.mean()[full], plain[full], atol=1e-5)


def test_a_fortran_array_is_laid_out_like_its_twin() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    received, trained = model(w=np.zeros_like(rows)), model(w=np.asfortranarray(rows))
    update = ModelUpdate(Template.of(received), received, trained, [1.0])
    np.testing.assert_array_equal(update.read(0, 12), rows.reshape(-1))


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
