"""The result of a round: sums, means and how they are normalised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, grouped, small
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters, Result, Stage
from sparsesecagg.simulate import Cohort, run_round


def outcome(params: Parameters, vectors: list[np.ndarray], **settings: Any) -> Result:
    return run_round(params, vectors, Cohort(LENIENT), **settings).result


@pytest.fixture
def result() -> Result:
    params = small(clients=5, dim=4, dropout=0.2)
    vectors = [np.full(4, 0.1 * (user + 1), np.float32) for user in range(5)]
    return outcome(params, vectors, drops={4: Stage.UPLOAD})


def test_sum_and_means(result: Result) -> None:
    assert result.sum() == pytest.approx([1.0] * 4, abs=1e-6)
    assert result.mean() == pytest.approx([0.25] * 4, abs=1e-6)
    assert result.mean("expected") == pytest.approx([1.0 / (0.8 * 5)] * 4, abs=1e-6)
    assert result.mean().dtype == result.mean("expected").dtype == np.float32


def test_the_expected_mean_divides_by_the_fraction_that_is_sent() -> None:
    """Of the pairwise pattern; everybody in a group sends the same slice, so there it is all or nothing."""
    params = small(clients=8, dim=80, alpha=0.5, dropout=0.0)
    result = outcome(params, [np.ones(80, np.float32)] * 8)
    assert set(result.mean().tolist()) == {0.0, 1.0}
    assert result.mean("expected")[result.updated] == pytest.approx([2.0] * 40, abs=1e-6)
    assert result.mean("expected").mean() == pytest.approx(1.0, abs=1e-6)


def test_weighted_sums_and_means() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    vectors = [np.full(4, value, np.float32) for value in (0.1, 0.2, 0.3)]
    result = outcome(params, vectors, weights=[10, 0, 5])
    assert result.sum() == pytest.approx([2.5] * 4, abs=1e-5)
    assert result.mean() == pytest.approx([2.5 / 15] * 4, abs=1e-6)
    assert result.combined.weights is not None
    assert set(result.combined.weights.tolist()) == {15}
    assert result.mean("expected", total_weight=15) == pytest.approx([2.5 / (15 * 0.9)] * 4, abs=1e-6)
    for wrong in (None, 0, -1):
        with pytest.raises(InvalidInput, match="total_weight must be positive"):
            result.mean("expected", total_weight=wrong)


def test_where_nobody_is_the_mean_is_zero() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    result = outcome(params, [np.ones(4, np.float32)] * 3, weights=[0, 0, 0])
    assert result.mean().tolist() == [0.0] * 4


def test_where_one_unit_of_weight_is_the_mean_is_that_users_update() -> None:
    params = small(clients=3, dim=4, max_weight=10)
    vectors = [np.full(4, value, np.float32) for value in (0.1, 0.2, 0.3)]
    result = outcome(params, vectors, weights=[0, 1, 0])
    assert result.mean() == pytest.approx([0.2] * 4, abs=1e-5)


def test_another_normalisation_is_refused_by_name() -> None:
    result = outcome(small(), [np.ones(40, np.float32)] * 5)
    with pytest.raises(InvalidInput, match="got 'none'"):
        result.mean("none")  # type: ignore[arg-type]


def test_where_weights_stay_private_only_the_expected_mean_is_known() -> None:
    """With the published pattern no sum of weights travels."""
    params = small(pattern="pairwise", max_weight=10)
    result = outcome(params, [np.ones(40, np.float32)] * 5, weights=[1, 2, 3, 4, 5])
    with pytest.raises(InvalidInput, match="must be 'expected' where weights"):
        result.mean()
    assert result.mean("expected", total_weight=15).shape == (40,)


def test_a_result_is_frozen() -> None:
    result = outcome(small(), [np.ones(40, np.float32)] * 5)
    with pytest.raises(AttributeError):
        result.survivors = ()  # type: ignore[misc]


def test_where_nothing_was_opened_the_model_stays_as_it_is() -> None:
    run = Run(grouped())
    lost = run.server.groups.groups[0].users.tolist()
    result = run.round(silent=lost[:3])
    assert set(result.contributors.tolist()) == {0, 6}
    assert (result.mean()[~result.updated] == 0).all()
    assert (result.mean("expected")[~result.updated] == 0).all()
    assert (result.updated.sum(), result.coordinates_updated, result.groups_opened) == (10, 0.25, 1)
    assert not set(result.survivors) & set(lost)


def test_one_contributor_updates_a_coordinate() -> None:
    """With the published pattern there may be so few, where the other one of a pair has dropped out."""
    params = small(dim=400, pattern="pairwise", alpha=0.2)
    result = outcome(params, [np.ones(400, np.float32)] * 5, drops={0: Stage.UPLOAD})
    assert {0, 1, 2} <= set(result.contributors.tolist())
    assert (result.updated == (result.contributors > 0)).all()


def test_mean_sizes_are_over_those_who_took_part() -> None:
    sizes = {"a": (1, 2, 6), "b": (), "c": (5,)}
    assert Result.mean_bytes(sizes) == {"a": 3.0, "b": 0.0, "c": 5.0, "total": 8.0}
