"""The three-line first try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsesecagg import Parameters, RoundOptions, Stage, run_round, secure_sum
from sparsesecagg.errors import InvalidInput, ThresholdNotMet

FIVE = [np.full(10, user, np.float32) for user in range(5)]


def test_the_sum_of_everybody() -> None:
    assert secure_sum(FIVE).sum() == pytest.approx([10.0] * 10)


@pytest.mark.parametrize("stage", [Stage.UPLOAD, "UPLOAD", "upload"])
def test_the_mean_over_those_who_stay(stage: Stage | str) -> None:
    result = secure_sum(FIVE, drops={4: stage})
    assert result.mean() == pytest.approx([1.5] * 10)
    assert result.survivors == (0, 1, 2, 3)


def test_a_sparse_sum_has_everybody_in_a_part_of_the_model() -> None:
    """One group, one slice: a quarter of the coordinates with all twelve users."""
    result = secure_sum([np.ones(92, np.float32)] * 12, options=RoundOptions(alpha=0.25))
    assert result.sum() == pytest.approx(result.contributors)
    assert sorted(set(result.contributors.tolist())) == [0, 12]
    assert result.updated.sum() == 23
    assert result.mean()[~result.updated].tolist() == [0.0] * 69


def test_groups_that_send_different_slices_cover_more() -> None:
    updates = [np.ones(92, np.float32)] * 12
    for same, parts in ((False, 2), (True, 1)):
        options = RoundOptions(alpha=0.25, group_size=6, same_slices=same)
        result = secure_sum(updates, options=options)
        assert result.updated.sum() == 23 * parts
        assert set(result.contributors.tolist()) == {0, 12 // parts}
        assert result.mean()[result.updated] == pytest.approx(1.0)


def test_weights_are_private_and_set_the_largest() -> None:
    updates = [np.full(4, user, np.float32) for user in range(3)]
    result = secure_sum(updates, weights=[1, 1, 2])
    assert result.mean() == pytest.approx([1.25] * 4, abs=1e-6)
    assert result.params.max_weight == 2
    assert secure_sum(updates, weights=np.array([1, 1, 2])).mean() == pytest.approx([1.25] * 4, abs=1e-6)
    assert secure_sum(updates).params.max_weight == 0


def test_light_users_with_values_beyond_the_clip_do_not_spoil_the_round() -> None:
    """A value is clipped before its weight counts."""
    updates = [np.full(6, value) for value in (30.0, 30.0, 1.0)]
    result = secure_sum(updates, weights=[1, 1, 100], options=RoundOptions(clip=1.0))
    assert result.mean() == pytest.approx([1.0] * 6)
    assert result.clipped == 12


def test_the_papers_normalisation_expects_its_dropouts() -> None:
    options = RoundOptions(dropout=0.2, threshold=6)
    result = secure_sum([np.ones(8, np.float32)] * 10, options=options, drops={0: Stage.UPLOAD, 1: Stage.UPLOAD})
    assert result.mean("expected") == pytest.approx([1.0] * 8)
    with pytest.raises(InvalidInput, match="normalisation"):
        result.mean("geometric")  # type: ignore[arg-type]


def test_too_few_users() -> None:
    with pytest.raises(InvalidInput, match="at least 3"):
        secure_sum([np.ones(3, np.float32)] * 2)
    with pytest.raises(ThresholdNotMet):
        secure_sum([np.ones(3, np.float32)] * 3, drops={0: Stage.UPLOAD})


def test_the_largest_magnitude_is_the_clip_by_default() -> None:
    """With other options given as well."""
    updates = [np.array([0.5, -4.0]), np.array([1.0, 2.0]), np.array([0.0, 0.0])]
    for options in (None, RoundOptions(modulus_bits=16)):
        result = secure_sum(updates, options=options)
        assert (result.params.clip, result.clipped) == (4.0, 0)
    assert secure_sum([np.zeros(2, np.float32)] * 3).params.clip == 1.0


def test_a_given_clip_counts() -> None:
    result = secure_sum([np.array([3.0, -4.0])] * 3, options=RoundOptions(clip=0.5))
    assert result.sum() == pytest.approx([1.5, -1.5])
    assert result.clipped == 6


def test_what_is_not_finite_counts_as_zero_and_as_clipped() -> None:
    """Nobody's answer may depend on its data, so nobody refuses. `secure_sum`, which sees all data, does."""
    bad = np.array([np.nan, np.inf, -np.inf, 1.0])
    result = run_round(Parameters.create(3, 4), [bad, np.ones(4), np.ones(4)]).result
    assert result.sum() == pytest.approx([2.0, 2.0, 2.0, 3.0])
    assert result.clipped == 3


def test_a_pattern_that_is_named_is_allowed() -> None:
    result = secure_sum([np.ones(9, np.float32)] * 6, options=RoundOptions(pattern="pairwise", alpha=0.5))
    assert result.params.pattern == "pairwise"


def test_integers_and_single_numbers_are_added_up_as_well() -> None:
    updates = [np.arange(6) * user for user in range(4)]
    np.testing.assert_allclose(secure_sum(updates).sum(), np.sum(updates, axis=0), atol=1e-5)
    assert secure_sum([[value] for value in (0.5, 1.0, 2.0)]).sum() == pytest.approx([3.5])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"drops": {5: "UPLOAD"}}, "drops must name users from 0 to 4, got 5"),
        ({"drops": {1: "LUNCH"}}, "drops must name one of ADVERTISE_KEYS, SHARE_KEYS, UPLOAD, UNMASK, got 'LUNCH'"),
        ({"weights": [1, 2]}, "weights must be one for each of 5 users, got 2"),
        ({"updates": [["a", "b"]] * 5}, "updates must be vectors of numbers, got <U1 from user 0"),
        ({"updates": [np.ones(3)] * 4 + [np.ones(4)]}, r"one length, here 3, got shape \(4,\) from user 4"),
        ({"updates": [np.ones(4)] * 4 + [[np.nan] * 4]}, "updates must be finite, got nan from user 4"),
        ({"options": RoundOptions(clip=1.0), "updates": [[np.inf]] * 5}, "updates must be finite, got inf from user 0"),
        ({"updates": [np.array([])] * 5}, "update"),
        ({"options": RoundOptions(alpha=2)}, r"alpha must be in \(0, 1\], got 2"),
    ],
)
def test_a_mistake_is_named_with_what_was_given(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        secure_sum(**{"updates": [np.ones(4)] * 5, **given})
