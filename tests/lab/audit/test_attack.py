"""The attack on small rounds: everything that lies bare is read, and nothing else."""

import numpy as np
import pytest

from lab.audit.rounds import attacked, attacked_run, committee_of, next_round, parameters, steps_of
from sparsesecagg.field import Word
from sparsesecagg.lab.audit.attack import LARGEST_CHANCE, small_pairs, strip_known_masks
from sparsesecagg.lab.audit.truth import Score

PUBLIC = ("committee", "full")


def read_values(found):
    """Return the values read as {(user, coordinate): value}."""
    places = zip(found.findings.user.tolist(), found.findings.coordinate.tolist(), strict=True)
    return dict(zip(places, found.findings.value.tolist(), strict=True))


@pytest.mark.parametrize(("colluders", "dropped"), [((), (1, 5, 7)), ((0, 3, 9), (1, 5, 7)), ((0, 3, 9), ())])
def test_pairwise_shows_every_value_without_honest_partner_exactly(colluders, dropped) -> None:
    params = parameters(clients=14, dim=300, pattern="pairwise", alpha=0.3)
    found = attacked(params, colluders=colluders, dropped=dropped)
    steps = steps_of(0, 300)
    values = read_values(found)
    assert all(value == steps(user)[coordinate] for (user, coordinate), value in values.items())

    bare = found.truth.sizes == 1
    nodes = found.view.nodes
    assert set(values) == set(zip(nodes.user[bare].tolist(), nodes.slice_number[bare].tolist(), strict=True))
    assert len(values) > 50


def test_pairwise_shows_nothing_single_while_everybody_stays_and_is_honest() -> None:
    found = attacked(parameters(clients=14, dim=300, pattern="pairwise", alpha=0.3))
    assert not read_values(found)
    assert 1 not in found.truth.sizes
    assert found.findings.wrong_values == 0  # Without any known mask no value was a candidate.


def test_two_users_who_share_a_mask_with_nobody_else_are_found_by_their_small_sum() -> None:
    found = attacked(parameters(clients=14, dim=300, pattern="pairwise", alpha=0.2))
    pairs = found.truth.score_pairs(found.findings)
    in_pairs = np.count_nonzero(found.truth.sizes == 2)
    assert pairs.correct == pairs.count == in_pairs // 2
    assert in_pairs > len(found.view.nodes) / 2


def test_colluders_make_the_attacker_see_more() -> None:
    params = parameters(clients=14, dim=300, pattern="pairwise", alpha=0.3)
    alone = attacked(params, dropped=[1, 5])
    helped = attacked(params, colluders=[0, 3], dropped=[1, 5])
    mine = {place for place in read_values(alone) if place[0] not in (0, 3)}
    assert mine < set(read_values(helped))


def test_short_words_leave_only_what_is_certain() -> None:
    """Reading by size would err too often; a lone sender of a coordinate is read in words of any length."""
    params = parameters(clients=14, dim=300, pattern="pairwise", alpha=0.2, modulus_bits=16)
    found = attacked(params, colluders=[0, 3, 9], dropped=[1, 5, 7])
    nodes = found.view.nodes
    alone = np.bincount(nodes.slice_number)[nodes.slice_number] == 1
    assert set(read_values(found)) == set(
        zip(nodes.user[alone].tolist(), nodes.slice_number[alone].tolist(), strict=True)
    )
    score = found.truth.score_values(found.findings)
    assert 0 < score.count == score.correct < np.count_nonzero(found.truth.sizes == 1)
    assert found.findings.wrong_values == 0


def test_the_bound_on_wrong_readings_counts_every_test() -> None:
    found = attacked(parameters(clients=14, dim=300, pattern="pairwise", alpha=0.3), dropped=[1, 5, 7])
    assert 0 < found.findings.wrong_values < LARGEST_CHANCE * len(found.view.nodes)


@pytest.mark.parametrize("pattern", PUBLIC)
def test_public_patterns_hide_every_value_among_the_honest_survivors_of_its_committee(pattern) -> None:
    params = parameters(clients=12, dim=50, pattern=pattern, alpha=0.5 if pattern == "committee" else None)
    found = attacked(params, colluders=[4], dropped=[7])
    nodes = found.view.nodes
    assert found.truth.sizes.tolist() == np.bincount(nodes.slice_number)[nodes.slice_number].tolist()
    assert found.truth.sizes.min() > 1
    assert not read_values(found)


def test_a_coordinate_that_several_committees_send_is_hidden_in_each_apart() -> None:
    params = parameters(clients=12, dim=60, alpha=0.5, committee_size=3, min_survivors=1)
    assert (params.committees, params.served) == (4, 2)
    lone, *others = committee_of(params)
    found = attacked(params, dropped=others)
    nodes = found.view.nodes
    assert found.truth.sizes[nodes.user == lone].tolist() == [1, 1]
    assert set(found.truth.sizes[nodes.user != lone].tolist()) == {3}
    assert np.bincount(nodes.slice_number)[nodes.slice_number[nodes.user == lone]].tolist() == [4, 4], (
        "others sent the same slices"
    )
    assert set(found.findings.user.tolist()) == {lone}


def test_a_user_is_read_in_later_rounds_too_in_the_slices_that_its_committee_sends_then() -> None:
    params = parameters(clients=12, dim=60, alpha=0.25, min_survivors=1)
    lone, *others = committee_of(params)
    run = attacked_run(params, colluders=others)
    for number in range(1, 6):
        found = next_round(run, seed=number)
        (sent,) = params.slices.of(0, number)
        steps = steps_of(number, 60)(lone)
        expected = {(lone, coordinate): steps[coordinate] for coordinate in range(*params.slices.bounds(sent))}
        assert read_values(found) == expected


@pytest.mark.parametrize("modulus_bits", [8, 16, 32])
@pytest.mark.parametrize("how", ["dropped", "colluders"])
def test_a_committee_with_one_honest_survivor_is_read_exactly(how: str, modulus_bits: int) -> None:
    params = parameters(
        clients=12, dim=50, pattern="committee", alpha=1 / 4, min_survivors=1, modulus_bits=modulus_bits
    )
    lone, *others = committee_of(params)
    found = attacked(params, **{how: others})
    (sent,) = params.slices.of(0, 1)
    own = {coordinate: value for (user, coordinate), value in read_values(found).items() if user == lone}
    expected = np.round(found.truth.update_of(lone) * params.quantizer.scale).clip(
        -params.quantizer.limit, params.quantizer.limit
    )
    assert own == {coordinate: expected[coordinate] for coordinate in range(*params.slices.bounds(sent))}
    score = found.truth.score_values(found.findings)
    assert score == Score(score.count, score.count)


def test_a_committee_of_colluders_and_one_is_read_even_if_clients_demand_two_survivors() -> None:
    """`min_survivors` counts users, and can't tell colluders from honest ones: leave room for them."""
    params = parameters(clients=12, dim=50, pattern="committee", alpha=1 / 4, min_survivors=2)
    lone, *others = committee_of(params)
    assert lone in attacked(params, colluders=others).findings.user


def test_a_sparse_mask_graph_falls_apart_when_all_neighbours_collude() -> None:
    params = parameters(clients=10, dim=20, pattern="full", neighbours=2, threshold=3)
    neighbours = attacked(params).view.pods[0].epoch.partners(5).tolist()
    found = attacked(params, colluders=neighbours)
    assert set(found.findings.user.tolist()) == {5}
    assert found.truth.score_values(found.findings) == Score(20, 20)
    assert set(found.truth.sizes.tolist()) == {1, 7}


@pytest.mark.parametrize(("threshold", "exposed"), [(3, True), (4, False)])
def test_neighbours_who_hold_a_threshold_of_shares_open_a_user_whom_masks_still_hide(
    threshold: int, exposed: bool
) -> None:
    params = parameters(clients=12, dim=20, pattern="full", neighbours=4, threshold=threshold)
    *colluders, _honest = attacked(params).view.pods[0].epoch.partners(5).tolist()
    found = attacked(params, colluders=colluders)
    assert (5 in found.findings.user) == exposed
    (size,) = found.truth.sizes[found.view.nodes.user == 5]
    assert (size == 1) == exposed
    assert found.truth.score_values(found.findings) == Score(*2 * (len(found.findings.value),))


@pytest.mark.parametrize("pattern", PUBLIC)
def test_private_weights_are_seen_as_sums_only(pattern) -> None:
    params = parameters(
        clients=12, dim=50, pattern=pattern, alpha=0.5 if pattern == "committee" else 1, max_weight=1000
    )
    weights = np.random.default_rng(3).integers(1, 1001, 12).tolist()
    found = attacked(params, colluders=[4], dropped=[7], weights=weights)
    assert found.findings.weights == {}
    nodes, words = found.view.nodes, strip_known_masks(found.view).words[:, params.slices.length]
    true = np.array(weights)[nodes.user]
    assert not np.any(words == true)  # Equal by chance once in 2^32.
    for number in range(params.slices.count):
        here = nodes.slice_number == number
        assert words[here].sum() % params.word.modulus == true[here].sum()


@pytest.mark.parametrize("pattern", PUBLIC)
def test_the_weighted_mean_is_right_to_quantisation_error(pattern) -> None:
    params = parameters(
        clients=12, dim=50, pattern=pattern, alpha=0.5 if pattern == "committee" else 1, max_weight=1000
    )
    weights = np.random.default_rng(3).integers(1, 1001, 12)
    found = attacked(params, dropped=[7], weights=weights.tolist())
    total, weight, senders = np.zeros((3, params.dim))
    for user, numbers in found.view.nodes.slices_of.items():
        sends = np.zeros(params.slices.count)
        sends[numbers] = 1
        sends = params.slices.spread(sends)
        total += sends * weights[user] * found.truth.update_of(user)
        weight += sends * weights[user]
        senders += sends
    assert found.outcome is not None
    # Each contributor's weight/max_weight · update is rounded to a step of 1/scale.
    bound = senders * params.max_weight / params.quantizer.scale / weight
    assert np.all(np.abs(found.outcome.result.mean() - total / weight) <= bound + 1e-6)


def test_a_lone_survivor_gives_its_weight_away_with_its_values() -> None:
    params = parameters(clients=12, dim=50, pattern="committee", alpha=1 / 4, min_survivors=1, max_weight=9)
    lone, *others = committee_of(params)
    found = attacked(params, dropped=others, weights=[1 + user % 9 for user in range(12)])
    assert found.findings.weights[lone] == 1 + lone % 9
    assert found.truth.score_weights(found.findings).correct == len(found.findings.weights)


def test_a_value_that_fits_two_partners_is_claimed_for_neither() -> None:
    values = np.array([10**6, -(10**6) + 3, -(10**6) - 2, 10**7, -(10**7) + 1])
    pairs, sums, tried = small_pairs(np.arange(5), np.zeros(5, np.int64), values, 10, Word.of(32))
    assert pairs.tolist() == [[3, 4]]
    assert sums.tolist() == [1]
    assert tried == 10


def test_only_values_of_one_coordinate_are_paired() -> None:
    values = np.array([10**6, -(10**6), 10**7, -(10**7)])
    pairs, _, tried = small_pairs(np.arange(4), np.array([0, 1, 2, 2]), values, 10, Word.of(32))
    assert pairs.tolist() == [[2, 3]]
    assert tried == 1
