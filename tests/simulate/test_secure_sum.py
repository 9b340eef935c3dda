"""The three-line first try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsesecagg import Stage, secure_sum
from sparsesecagg.errors import InvalidInput, ThresholdNotMet


def test_the_sum_of_everybody() -> None:
    updates = [np.full(10, user, np.float32) for user in range(5)]
    assert secure_sum(updates).sum() == pytest.approx([10.0] * 10)


def test_the_mean_over_those_who_stay() -> None:
    updates = [np.full(10, user, np.float32) for user in range(5)]
    result = secure_sum(updates, drops={4: Stage.UPLOAD})
    assert result.mean() == pytest.approx([1.5] * 10)
    assert result.survivors == (0, 1, 2, 3)


def test_a_sparse_sum_counts_its_contributors() -> None:
    result = secure_sum([np.ones(90, np.float32)] * 12, alpha=0.25)
    assert result.sum() == pytest.approx(result.contributors)
    assert (result.contributors == 3).all()


def test_weights() -> None:
    updates = [np.full(4, user, np.float32) for user in range(3)]
    assert secure_sum(updates, weights=[1, 1, 2]).mean() == pytest.approx([1.25] * 4, abs=1e-6)


def test_the_papers_normalisation_expects_its_dropouts() -> None:
    result = secure_sum([np.ones(8, np.float32)] * 10, dropout=0.2, drops={0: Stage.UPLOAD, 1: Stage.UPLOAD})
    assert result.mean("expected") == pytest.approx([1.0] * 8)
    with pytest.raises(InvalidInput, match="normalisation"):
        result.mean("geometric")  # type: ignore[arg-type]


def test_too_few_users() -> None:
    with pytest.raises(InvalidInput, match="at least 3"):
        secure_sum([np.ones(3, np.float32)] * 2)
    with pytest.raises(ThresholdNotMet):
        secure_sum([np.ones(3, np.float32)] * 3, drops={0: Stage.UPLOAD, 1: Stage.UPLOAD})


def test_updates_of_different_lengths() -> None:
    with pytest.raises(InvalidInput, match="update"):
        secure_sum([np.ones(3, np.float32), np.ones(4, np.float32), np.ones(3, np.float32)])


def test_a_single_number_is_a_vector_too() -> None:
    assert secure_sum([np.array([value]) for value in (0.5, 1.0, 2.0)]).sum() == pytest.approx([3.5])


def test_the_largest_magnitude_is_the_clip_by_default() -> None:
    result = secure_sum([np.array([0.5, -4.0]), np.array([1.0, 2.0]), np.array([0.0, 0.0])])
    assert result.params.clip == 4.0
    assert result.clipped == 0
    assert secure_sum([np.array([0.25, -0.5])] * 3).params.clip == 0.5
    assert secure_sum([np.zeros(2, np.float32)] * 3).params.clip == 1.0


def test_a_given_clip_counts() -> None:
    result = secure_sum([np.array([3.0, -4.0])] * 3, clip=0.5)
    assert result.sum() == pytest.approx([1.5, -1.5])
    assert result.clipped == 6


def test_weights_set_the_largest_weight() -> None:
    result = secure_sum([np.ones(2, np.float32)] * 4, weights=[3, 1, 2, 3])
    assert result.params.max_weight == 3
    assert secure_sum([np.ones(2, np.float32)] * 4).params.max_weight == 0


def test_a_pattern_that_is_named_is_allowed() -> None:
    assert secure_sum([np.ones(9, np.float32)] * 6, pattern="pairwise", alpha=0.5).params.pattern == "pairwise"


@pytest.mark.parametrize("bad", [np.array([1.0, np.inf]), np.array([np.nan, 1.0]), np.array([])])
def test_updates_that_can_not_be_added_are_refused_by_name(bad: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="update"):
        secure_sum([bad, bad, bad])


def test_integers_are_added_up_as_well() -> None:
    updates = [np.arange(6) * user for user in range(4)]
    result = secure_sum(updates, alpha=1, modulus_bits=32)
    np.testing.assert_allclose(result.sum(), np.sum(updates, axis=0), atol=1e-5)


def test_a_stage_may_be_given_by_its_name() -> None:
    result = secure_sum([np.ones(4)] * 5, alpha=1, drops={3: "upload"})
    assert result.survivors == (0, 1, 2, 4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drops": {5: "UPLOAD"}}, "drops must name users from 0 to 4, got 5"),
        ({"drops": {1: "LUNCH"}}, "drops must name one of .*UPLOAD.*, got 'LUNCH'"),
        ({"weights": [1, 2]}, "weights must be one for each of 5 users, got 2"),
        ({"updates": [["a", "b"]] * 5}, "updates must be vectors of numbers, got <U1 from user 0"),
    ],
)
def test_a_mistake_is_named_with_what_was_given(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        secure_sum(**{"updates": [np.ones(4)] * 5, "alpha": 1, **options})
