"""The result of a round: sums, means and how they are normalised."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, small
from sparsesecagg.simulate import run_round
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Result, Stage


@pytest.fixture
def result() -> Result:
    params = small(clients=5, dim=4, dropout=0.2)
    vectors = [np.full(4, 0.1 * (user + 1), np.float32) for user in range(5)]
    return run_round(params, vectors, drops={4: Stage.UPLOAD}, policy=LENIENT).result


def test_sum_and_means(result: Result) -> None:
    assert result.sum() == pytest.approx([1.0] * 4, abs=1e-6)
    assert result.mean() == pytest.approx([0.25] * 4, abs=1e-6)
    assert result.mean("expected") == pytest.approx([1.0 / (0.8 * 5)] * 4, abs=1e-6)
    assert result.mean().dtype == result.mean("expected").dtype == np.float32


def test_the_expected_mean_divides_by_the_fraction_that_is_sent() -> None:
    params = small(clients=8, dim=80, alpha=0.5, pattern="committee")
    result = run_round(params, [np.ones(80, np.float32)] * 8, policy=LENIENT).result
    assert result.mean("expected") == pytest.approx([1.0] * 80, abs=1e-6)
    assert result.mean() == pytest.approx([1.0] * 80, abs=1e-6)


def test_weighted_sums_and_means() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    vectors = [np.full(4, value, np.float32) for value in (0.1, 0.2, 0.3)]
    result = run_round(params, vectors, weights=[10, 0, 5], policy=LENIENT).result
    assert result.sum() == pytest.approx([2.5] * 4, abs=1e-5)
    assert result.mean() == pytest.approx([2.5 / 15] * 4, abs=1e-6)
    assert result.weight_per_slice is not None
    assert set(result.weight_per_slice.tolist()) == {15}
    with pytest.raises(InvalidInput, match="private weights"):
        result.mean("expected")


def test_where_nobody_is_the_mean_is_zero() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    result = run_round(params, [np.ones(4, np.float32)] * 3, weights=[0, 0, 0], policy=LENIENT).result
    assert result.mean().tolist() == [0.0] * 4


def test_where_one_unit_of_weight_is_the_mean_is_that_users_update() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    vectors = [np.full(4, value, np.float32) for value in (0.1, 0.2, 0.3)]
    result = run_round(params, vectors, weights=[0, 1, 0], policy=LENIENT).result
    assert result.mean() == pytest.approx([0.2] * 4, abs=1e-5)


def test_another_normalisation_is_refused_by_name() -> None:
    result = run_round(small(), [np.ones(40, np.float32)] * 5, policy=LENIENT).result
    with pytest.raises(InvalidInput, match="got 'none'"):
        result.mean("none")  # type: ignore[arg-type]


def test_a_result_is_frozen() -> None:
    result = run_round(small(), [np.ones(40, np.float32)] * 5, policy=LENIENT).result
    with pytest.raises(AttributeError):
        result.survivors = ()  # type: ignore[misc]


def test_where_nothing_was_opened_the_model_stays_as_it_is() -> None:
    params = small(clients=8, dim=10, pattern="committee", alpha=0.5, min_survivors=4)
    run = Run(params)
    result = run.round(silent=run.committees()[0][:1])
    lost = params.slices.of(0, 1)
    assert result.contributors_per_slice.tolist() == [0 if number in lost else 4 for number in range(2)]
    assert (result.mean()[~result.updated] == 0).all()
    assert (result.mean("expected")[~result.updated] == 0).all()
    assert (result.updated.sum(), result.coordinates_updated, result.committees_opened) == (5, 0.5, 1)


def test_mean_sizes_are_over_those_who_took_part() -> None:
    sizes = {"a": (1, 2, 6), "b": (), "c": (5,)}
    assert Result.mean_bytes(sizes) == {"a": 3.0, "b": 0.0, "c": 5.0, "total": 8.0}
