"""What a node packs, the server opens: any model, any part of it, any weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from hypothesis import given
from hypothesis import strategies as st

from flower.local_grid import model, values
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.packing import Packing
from sparsesecagg.protocol import Parameters, Policy, RoundOptions
from sparsesecagg.simulate import Cohort, run_round

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
models = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.tuples(shapes, st.sampled_from([np.float16, np.float32, np.float64, np.int64])),
    min_size=1,
    max_size=6,
)


def filled(layout: dict[str, Any], seed: int) -> ArrayRecord:
    rng = np.random.default_rng(seed)
    return model(
        **{name: np.asarray(rng.normal(0, 1, shape) * 3).astype(dtype) for name, (shape, dtype) in layout.items()}
    )


def packing_of(received: ArrayRecord, metrics: int = 0, clients: int = 5, **options: Any) -> Packing:
    """Return the packing of a run with room for votes."""
    template = Template.of(received)
    settings = {"modulus_bits": 9, "alpha": 1.0, **options}
    params = Parameters.create(clients, max(8, template.dim), RoundOptions(**settings))
    dim = Packing(template, params, metrics).dim_with_votes
    return Packing(template, params.replace(dim=dim), metrics)


@given(
    layout=models,
    metrics=st.lists(st.floats(-1, 1, width=16), max_size=3),
    alpha=st.sampled_from([0.3, 0.5, 1.0]),
    data=st.data(),
)
def test_an_update_reads_the_same_in_pieces_and_opens_to_the_difference(
    layout: dict[str, Any], metrics: list[float], alpha: float, data: Any
) -> None:
    received, trained = filled(layout, 1), filled(layout, 2)
    try:
        packing = packing_of(received, len(metrics), alpha=alpha, modulus_bits=32)
    except InvalidInput:
        return
    arrays = packing.template.travelling
    scales = data.draw(st.lists(st.sampled_from([16.0, 64.0]), min_size=len(arrays), max_size=len(arrays)))
    update = packing.update(received, trained, scales, metrics)
    everything = update.read(0, update.dim)
    start = data.draw(st.integers(0, update.dim))
    stop = data.draw(st.integers(start, update.dim))
    np.testing.assert_array_equal(update.read(start, stop), everything[start:stop])
    places = np.array(sorted(data.draw(st.lists(st.integers(0, update.dim - 1), max_size=8))), np.int64)
    np.testing.assert_array_equal(update.take(places), everything[places])
    opened = packing.open(everything.astype(np.float64), np.ones(update.dim, bool), scales)
    moved = values(packing.template.cast(packing.template.add(received, opened.update(1.0))))
    for name, (_, dtype) in layout.items():
        expected = values(trained if np.dtype(dtype).kind == "f" else received)[name]
        np.testing.assert_allclose(moved[name], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(opened.metrics, metrics, atol=1e-4)


@pytest.mark.parametrize("pattern", ["sliced", "full", "pairwise"])
@pytest.mark.parametrize("max_weight", [0, 8])
def test_the_protocol_sums_packed_updates_in_every_pattern(pattern: str, max_weight: int) -> None:
    """The core reads updates in pieces; a source without memory must serve every pattern, weighted too."""
    if pattern == "pairwise" and max_weight:
        return
    layout = {"a": ((30, 7), np.float32), "b": ((91,), np.float32), "n.running_var": ((4,), np.float32)}
    received, trained = (
        model(**{k: np.zeros(s, t) for k, (s, t) in layout.items()}),
        [filled(layout, s) for s in range(5)],
    )
    alpha = 1.0 if pattern == "full" else 0.5
    packing = packing_of(received, alpha=alpha, pattern=pattern, modulus_bits=32, max_weight=max_weight)
    weights = [8, 4, 2, 1, 1] if max_weight else [1] * 5
    scales = [32.0, 32.0, 1024.0]
    updates = [packing.update(received, t, scales, weight=w) for t, w in zip(trained, weights, strict=True)]
    cohort = Cohort(policy=Policy(patterns=frozenset({pattern})))
    outcome = run_round(packing.params, updates, cohort, weights=weights if max_weight else None)
    assert outcome.exact
    if pattern == "pairwise":
        return
    result = outcome.result
    opened = packing.open(result.mean().astype(np.float64), result.updated, scales)
    places = {slot.name: place for slot, place in packing.places}
    for name in ("b", "n.running_var"):
        plain = np.average([values(each)[name] for each in trained], axis=0, weights=weights)
        np.testing.assert_allclose(opened.values[places[name]], plain, atol=2e-5)
    plain = np.average([values(each)["a"].reshape(-1) for each in trained], axis=0, weights=weights)
    sliced, covered = opened.sliced
    np.testing.assert_allclose(sliced[covered], plain[covered], atol=1e-5)
    assert covered.mean() == pytest.approx(alpha)


def test_vectors_are_sent_whole_while_they_are_few_and_only_beside_matrices() -> None:
    few = packing_of(model(w=np.zeros((50, 50)), b=np.zeros(50)), alpha=0.5)
    assert [slot.name for slot, _ in few.whole] == ["b"]
    many = packing_of(model(w=np.zeros((5, 5)), b=np.zeros(9000)), alpha=0.5)
    assert not many.whole
    flat = packing_of(model(w=np.zeros(100), b=np.zeros(10)), alpha=0.5)
    assert not flat.whole


def test_statistics_have_more_digits_than_biases_and_go_first() -> None:
    arrays = {"w": np.zeros((50, 50)), "b": np.zeros(1000), "bn.running_var": np.zeros(300)}
    packing = packing_of(model(**arrays), alpha=0.5)
    assert {slot.name: digits for slot, digits in packing.whole} == {"bn.running_var": 7}
    assert packing_of(model(**arrays), alpha=0.5, modulus_bits=32).digits(36) == 2


def test_a_run_that_has_no_room_for_a_model_is_refused() -> None:
    packing = packing_of(model(w=np.zeros((5, 5))))
    larger = Packing(Template.of(model(w=np.zeros((50, 50)))), packing.params)
    with pytest.raises(MalformedMessage, match="do not fit the run's parameters"):
        larger.check()


def test_a_fortran_array_is_laid_out_like_its_twin() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    received, trained = model(w=np.zeros_like(rows)), model(w=np.asfortranarray(rows))
    update = packing_of(received).update(received, trained, [1.0])
    np.testing.assert_array_equal(update.read(0, 12), rows.reshape(-1))
