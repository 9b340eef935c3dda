"""What sums of many rounds tell about single users: the design's figures, and the sums of a real run."""

import numpy as np
import pytest

from lab.audit.rounds import attacked_run, next_round, parameters
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit.attack import strip_known_masks
from sparsesecagg.lab.audit.many_rounds import (
    ManyRounds,
    compare_ways,
    correlation,
    draw_sums,
    estimate,
    serving,
    sums_of_round,
    watch,
)

# Twenty coordinates in five draws of 100 users: figures differ by 0.02 or so from seed to seed.
TOLERANCE = 0.06


@pytest.mark.parametrize(
    ("way", "dropout", "after_50", "after_200"),
    [
        ("fresh", 0.0, 0.45, 0.74),
        ("kept", 0.0, 0.28, 0.28),
        ("secagg", 0.0, 0.0, 0.0),
        ("fresh", 0.1, 0.44, 0.74),
        ("kept", 0.1, 0.33, 0.48),
        ("secagg", 0.1, 0.16, 0.38),
    ],
)
def test_the_figures_of_the_design(way: str, dropout: float, after_50: float, after_200: float) -> None:
    found = watch(ManyRounds(dropout=dropout), way, [50, 200], coordinates=20)
    assert found == pytest.approx([after_50, after_200], abs=TOLERANCE)


def test_after_a_thousand_rounds_kept_committees_are_where_secagg_is() -> None:
    found = compare_ways(ManyRounds(dropout=0.1), [1000], coordinates=20, draws=2)
    assert found["fresh"][0] == pytest.approx(0.94, abs=0.03)
    assert found["kept"][0] == pytest.approx(0.74, abs=TOLERANCE)
    assert found["secagg"][0] == pytest.approx(0.70, abs=TOLERANCE)


def test_without_dropouts_kept_committees_tell_no_more_than_a_committees_mean() -> None:
    """Of ten users a mean knows a tenth of the variance, but for what all users have in common."""
    (found,) = watch(ManyRounds(), "kept", [2000], draws=3)
    assert found == pytest.approx(np.sqrt((1 / 10 - 1 / 100) / (1 - 1 / 100)), abs=0.03)


def test_the_sums_are_those_that_the_protocol_opens() -> None:
    """A real run with dropouts: who is in which sum at each coordinate, and the sum itself, from messages alone."""
    params = parameters(clients=18, dim=12, committees=4, pods=2, served=2, alpha=0.5, dropout=0.2, min_survivors=3)
    settings = ManyRounds(18, params.committees, params.served, 0.2, min_survivors=params.min_survivors)
    run, rng = attacked_run(params), np.random.default_rng(3)
    committee_of = np.empty(18, np.int64)
    for pod in run.run.server.groups.pods:
        for number, members in enumerate(pod.committees):
            committee_of[pod.users[members]] = pod.first + number
    thin = 0
    for number in range(1, 9):
        dropped = np.flatnonzero(rng.random(18) < 0.3).tolist()
        found = next_round(run, dropped=dropped, seed=number)
        run.run.deal(dropped)
        survives = ~np.isin(np.arange(18), dropped)
        assumed = sums_of_round(settings, committee_of, survives, number)
        view, words = found.view, strip_known_masks(found.view).words
        opened: dict[int, list[tuple[int, int]]] = {}
        for node, (user, piece) in enumerate(
            zip(view.nodes.user.tolist(), view.nodes.slice_number.tolist(), strict=True)
        ):
            if piece == 0:
                opened.setdefault(int(committee_of[user]), []).append((user, node))
        assert sorted(tuple(np.flatnonzero(row)) for row in assumed) == sorted(
            tuple(sorted(user for user, _ in members)) for members in opened.values()
        )
        thin += len(serving(settings, number)) - len(opened)
        for serving_users in opened.values():
            total = words[[node for _, node in serving_users], : params.slices.length].sum(axis=0) % params.word.modulus
            rounded = [np.round(found.truth.update_of(user) * params.quantizer.scale) for user, _ in serving_users]
            steps = np.sum(rounded, axis=0)
            assert total.tolist() == (steps[: params.slices.length] % params.word.modulus).tolist()
    assert thin > 0, "some committee was too thin to be opened, and is left out in both"


def test_the_estimate_is_the_best_linear_one() -> None:
    """Against the formula of conditional means, written out."""
    rng = np.random.default_rng(1)
    members = (rng.random((7, 5)) < 0.6).astype(float)
    sums = rng.normal(size=(7, 3))
    prior, noise = 0.3, 0.7
    covariance = prior * members @ members.T + noise * np.diag(members.sum(axis=1))
    expected = prior * members.T @ np.linalg.solve(covariance, sums)
    assert np.allclose(estimate(members, sums, prior), expected)


def test_without_noise_enough_sums_give_everything() -> None:
    rng = np.random.default_rng(2)
    members = (rng.random((40, 6)) < 0.7).astype(float)
    truth = rng.normal(size=(6, 2))
    assert np.allclose(estimate(members, members @ truth, 1.0), truth)


def test_an_estimate_that_tells_nobody_apart_correlates_with_nothing() -> None:
    truth = np.random.default_rng(3).normal(size=(10, 4))
    assert correlation(np.ones((10, 1)) * truth.mean(axis=0), truth) == 0
    assert correlation(3 * truth + 1, truth) == pytest.approx(1)


def test_colluders_are_in_no_sum_and_leave_fewer_to_hide_among() -> None:
    settings = ManyRounds(dropout=0.1, colluding=0.3)
    sums = np.concatenate(draw_sums(settings, "kept", 20, np.random.default_rng(1)))
    assert sums.shape == (20, 70)
    assert 5 < sums.sum(axis=1).mean() < 7.5
    alone, helped = (watch(ManyRounds(dropout=0.1, colluding=part), "kept", [100], draws=3)[0] for part in (0, 0.4))
    assert helped > alone


def test_committees_that_are_too_thin_are_in_no_sum() -> None:
    settings = ManyRounds(clients=30, committees=10, dropout=0.4, min_survivors=3)
    sums = draw_sums(settings, "kept", 100, np.random.default_rng(2))
    assert {len(each) for each in sums} == {0, 1}
    assert all(each.sum() == 3 for each in sums if len(each))


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: ManyRounds(persistent=0), "persistent"),
        (lambda: ManyRounds(persistent=1.1), "persistent"),
        (lambda: ManyRounds(committees=101), "committees"),
        (lambda: ManyRounds(dropout=1), "dropout"),
        (lambda: compare_ways(ManyRounds(), []), "rounds"),
        (lambda: compare_ways(ManyRounds(), [0]), "rounds"),
        (lambda: draw_sums(ManyRounds(), "other", 1, np.random.default_rng(0)), "way"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(make, option: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        make()
    assert problem.value.option == option
