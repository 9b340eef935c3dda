"""The planner keeps what it promises, costs as little as possible, and says what would be feasible."""

import math
import time
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.audit.sampling import assert_not_exceeded
from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import Server, Structure, availability, failure_log2
from sparsesecagg.privacy.tails import log_binomial_below
from sparsesecagg.planning.candidates import FAILED_POD, THIN_COMMITTEE, make_groups, worst_failure_log2
from sparsesecagg.planning.message_sizes import default_levels, largest_sum, message_bytes, shortest_word
from sparsesecagg.planning.nearest import is_feasible
from sparsesecagg.planning.plan import Goal
from sparsesecagg.planning.planner import WORTH_AN_EXCHANGE, plan_each, plan_round

MODEL = 1_663_370


def goals(most: int) -> st.SearchStrategy[Goal]:
    return st.integers(3, most).flatmap(
        lambda n: st.builds(
            Goal,
            clients=st.just(n),
            dim=st.integers(1, 10**6),
            dropout=st.floats(0.0, 0.4),
            colluding=st.floats(0.0, 0.4),
            min_anonymity=st.integers(1, max(1, n // 3)),
            failure_log2=st.floats(-60, -2),
            clip=st.floats(0.01, 100),
            levels=st.one_of(st.none(), st.integers(1, 64)),
            server=st.sampled_from(["lying", "curious"]),
            confirm=st.sampled_from([None, True, False]),
            excluded=st.sampled_from([None, 0.0]),
        )
    )


def planned(goal: Goal) -> Any:
    """Return the plan. Which of its figures are there depends on the goal, and each test knows."""
    return plan_round(goal)


def missed(size: int, dropout: float, needed: int) -> float:
    return math.exp(log_binomial_below(size, availability(dropout), needed))


def test_a_thousand_users_and_a_lying_server_take_a_hundredth_of_secagg() -> None:
    plan = planned(Goal(1000, MODEL, dropout=0.1, colluding=0.1, min_anonymity=5))
    assert plan.feasible
    assert plan.privacy_failure_log2 <= -40
    assert (plan.committee_size, plan.min_survivors) == (38, 29)
    assert (plan.pod_size, plan.threshold) == (76, 58)
    assert (plan.committees, plan.pods, plan.confirm, plan.exchanges) == (26, 13, True, 3)
    assert plan.upload_bytes <= 70_000
    assert plan.all_bytes_sent <= 80_000
    assert plan.all_bytes_received <= 10_000
    assert plan.compression_vs_secagg > 100


def test_eight_levels_for_a_thousand_users_still_fit_the_older_limits() -> None:
    plan = planned(Goal(1000, MODEL, dropout=0.1, colluding=0.1, min_anonymity=5, levels=8))
    assert plan.modulus_bits == 10
    assert plan.upload_bytes <= 98_000
    assert plan.all_bytes_sent <= 106_000


def test_a_third_colluding_and_thirty_percent_dropouts_do_not_go_with_a_lying_server() -> None:
    goal = Goal(1000, 1000, dropout=0.3, colluding=1 / 3, min_anonymity=5)
    plan = planned(goal)
    assert not plan.feasible
    assert "64% of the rounds" in plan.reason
    assert "a server that lies: no number of users makes that possible" in plan.reason
    assert plan.nearest.clients is None
    assert plan.nearest.server == "curious"
    assert planned(replace(goal, server="curious")).feasible
    assert plan.alpha is None
    assert plan.upload_bytes is None
    with pytest.raises(InvalidInput, match="min_anonymity"):
        plan.round_options()


@settings(max_examples=120, deadline=None)
@given(goals(400))
def test_every_plan_keeps_its_promises(goal) -> None:
    plan = planned(goal)
    assume(plan.feasible)
    groups = plan.groups
    assert plan.privacy_failure_log2 <= goal.failure_log2
    for population in {goal.clients, goal.population}:
        found = failure_log2(
            groups,
            anonymity=goal.min_anonymity,
            colluders=goal.colluders,
            population=population,
            server=goal.server,
            confirm=plan.confirm,
            dropout=goal.dropout,
        )
        assert found <= plan.privacy_failure_log2 + 1e-9
    assert groups.clients == goal.clients
    assert plan.committees <= goal.dim
    assert plan.alpha == 1 / plan.committees
    assert 2 * plan.threshold > plan.pod_size
    assert plan.min_survivors >= max(2, goal.min_anonymity)
    for members, holders in groups.kinds:
        assert missed(members, goal.dropout, groups.survivors_of(members)) <= THIN_COMMITTEE * (1 + 1e-9)
        assert missed(holders, goal.dropout, groups.threshold_of(holders)) <= FAILED_POD * (1 + 1e-9)
    assert plan.abort_probability <= THIN_COMMITTEE + FAILED_POD
    largest = max(size for size, _ in groups.kinds)
    steps = (goal.levels or default_levels(plan.committee_size)) * max(1, goal.clip)
    assert largest_sum(plan.modulus_bits) >= largest * steps
    assert plan.modulus_bits == 4 or largest_sum(plan.modulus_bits - 1) < largest * steps
    assert plan.quantisation_levels == largest_sum(plan.modulus_bits) // largest
    assert plan.confirm == goal.confirm or goal.confirm is None
    assert not (plan.confirm and goal.server == "curious" and goal.confirm is None)


@pytest.mark.parametrize(
    ("clients", "dropout", "colluding", "server"),
    [(60, 0.1, 0.1, "lying"), (140, 0.1, 0.2, "lying"), (250, 0.05, 0.1, "lying"), (120, 0.2, 0.2, "curious")],
)
@pytest.mark.parametrize("dim", [3_000, 3_000_000])
def test_no_other_groups_are_cheaper(clients: int, dropout: float, colluding: float, server: Server, dim: int) -> None:
    """Against every number of pods and of committees per pod."""
    for confirm in (False, True) if server == "lying" else (False,):
        goal = Goal(clients, dim, dropout, colluding, 5, failure_log2=-20, server=server, confirm=confirm, levels=4)
        plan = planned(goal)
        costs = {}
        for each, pods in product(range(1, clients // 5), repeat=2):
            if each * pods <= clients // 5:
                groups = make_groups(goal, (each * pods, pods))
                if groups and worst_failure_log2(goal, groups, confirm=confirm) <= -20:
                    costs[each, pods] = bytes_of(goal, groups, confirm)
        assert costs
        assert plan.all_bytes_sent + plan.all_bytes_received <= 1.02 * min(costs.values())


def bytes_of(goal: Goal, groups: Structure, confirm: bool) -> int:
    members = max(size for size, _ in groups.kinds)
    return message_bytes(
        dim=goal.dim,
        committees=groups.committees,
        served=1,
        modulus_bits=shortest_word(members, goal.levels or default_levels(members), goal.clip),
        committee_size=members,
        pod_size=groups.largest_pod,
        pod_committees=len(groups.sizes[0]),
        confirm=confirm,
        dropout=goal.dropout,
    ).total


@pytest.mark.parametrize("clients", [50, 100, 300, 1000])
@pytest.mark.parametrize("confirm", [True, False])
def test_a_plan_also_holds_for_every_number_of_users_that_may_be_left(clients: int, confirm: bool) -> None:
    """Users that are excluded may all be honest; groups are drawn anew among the others."""
    goal = Goal(clients, MODEL, 0.1, 0.1, 5, confirm=confirm)
    plan = planned(goal)
    assert goal.population == 0.8 * clients
    for left in range(goal.population, clients + 1, max(1, clients // 100)):
        found = failure_log2(plan.groups.among(left), anonymity=5, colluders=goal.colluders, confirm=confirm)
        assert found <= plan.privacy_failure_log2 + 1e-9


def test_confirm_is_planned_only_where_it_saves_a_tenth() -> None:
    chosen = set()
    for clients, colluding in product((50, 100, 300, 1000), (0.05, 0.1, 0.2)):
        goal = Goal(clients, MODEL, 0.1, colluding, 5)
        plan, with_it, without = (planned(replace(goal, confirm=confirm)) for confirm in (None, True, False))
        if without.feasible:
            bytes_with, bytes_without = (p.all_bytes_sent + p.all_bytes_received for p in (with_it, without))
            assert plan.confirm == (bytes_without > WORTH_AN_EXCHANGE * bytes_with)
            chosen.add(plan.confirm)
    assert chosen == {True, False}


def test_a_curious_server_takes_smaller_groups_than_a_lying_one() -> None:
    lying, curious = (planned(Goal(1000, MODEL, 0.1, 0.1, 5, server=server)) for server in ("lying", "curious"))
    assert curious.committee_size < lying.committee_size
    assert curious.pod_size < lying.pod_size
    assert curious.all_bytes_sent < lying.all_bytes_sent


@settings(max_examples=60, deadline=None)
@given(goals(150))
def test_what_is_called_nearest_is_feasible_and_a_higher_anonymity_is_not(goal) -> None:
    goal = replace(goal, clip=1.0)
    plan = planned(goal)
    assume(not plan.feasible)
    nearest = plan.nearest
    assert plan.privacy_failure_log2 > goal.failure_log2
    for option in ("clients", "min_anonymity", "failure_log2", "dropout", "colluding", "server"):
        value = getattr(nearest, option)
        if value is not None:
            assert planned(replace(goal, **{option: value})).feasible
            assert value != getattr(goal, option)
    if nearest.min_anonymity is not None:
        assert not planned(replace(goal, min_anonymity=nearest.min_anonymity + 1)).feasible
    elif goal.min_anonymity > 1:
        assert not is_feasible(replace(goal, min_anonymity=1))


def test_more_users_are_named_where_they_help() -> None:
    plan = planned(Goal(20, 1000, dropout=0.1, colluding=0.2, min_anonymity=12))
    assert not plan.feasible
    assert 20 < plan.nearest.clients < 100
    assert planned(Goal(plan.nearest.clients, 1000, dropout=0.1, colluding=0.2, min_anonymity=12)).feasible


def test_more_anonymity_never_costs_less() -> None:
    plans: list[Any] = plan_each(
        Goal(500, 100_000, dropout=0.1, colluding=0.1, min_anonymity=1, confirm=True), range(1, 60, 3)
    )
    sizes = [plan.all_bytes_sent + plan.all_bytes_received for plan in plans]
    assert all(plan.feasible for plan in plans)
    assert all(later >= 0.98 * earlier for earlier, later in pairwise(sizes))
    assert 2 * sizes[0] < sizes[-1]


def test_a_wider_clip_takes_longer_words_for_the_same_step() -> None:
    narrow = planned(Goal(1000, 1000, dropout=0.1, colluding=0.1, min_anonymity=5, levels=8))
    wide = planned(Goal(1000, 1000, dropout=0.1, colluding=0.1, min_anonymity=5, levels=8, clip=50))
    assert wide.modulus_bits > narrow.modulus_bits
    assert wide.quantisation_levels >= 50 * 8


def test_committees_just_large_enough_for_fewer_levels_are_considered() -> None:
    plan = planned(Goal(1000, MODEL, 0.1, 0.1, min_anonymity=1))
    assert plan.committee_size >= 20
    assert plan.upload_bytes <= planned(Goal(1000, MODEL, 0.1, 0.1, min_anonymity=5)).upload_bytes


def test_messages_are_counted_by_stage() -> None:
    sizes = message_bytes(
        dim=1000,
        committees=10,
        served=2,
        modulus_bits=8,
        committee_size=12,
        pod_size=24,
        pod_committees=2,
        confirm=True,
        dropout=0.25,
    )
    # 100 values, one weight, and a count of up to 100 in two digits of four bits: 12 sums of 15 fit 8 bits.
    assert sizes.sent["UPLOAD"] == 2 * (100 + 1 + 2) + 8 * 23 + 50
    package = 64 + 48 * 23 + 50
    assert package * 1.25 <= sizes.sent["SHARE_KEYS"] < package * 1.25 + 1  # Who missed a round sends two.
    assert sizes.sent["CONFIRM"] == 8 * 23 + 50
    assert sizes.sent["UNMASK"] == 20 * 24 + 3 + 50
    assert sizes.received["UPLOAD"] == 32 * 2 + 64 * 12 + 48 * 23 + 3 + 110
    assert sizes.total == sum(sizes.sent.values()) + sum(sizes.received.values())


@pytest.mark.parametrize(("members", "levels", "bits"), [(36, 2, 8), (36, 8, 10), (7, 1, 4), (10, 12, 8), (39, 3, 8)])
def test_the_shortest_word_holds_the_sum_of_a_committee(members: int, levels: int, bits: int) -> None:
    assert shortest_word(members, levels, clip=1.0) == bits


def test_large_committees_get_few_levels() -> None:
    assert [default_levels(members) for members in (2, 9, 10, 19, 20, 1000)] == [8, 8, 4, 4, 2, 2]


@pytest.mark.parametrize(
    ("clients", "colluding", "anonymity"), [(60, 0.15, 3), (100, 0.2, 4), (45, 0.1, 4), (200, 0.25, 5)]
)
@pytest.mark.parametrize("server", ["lying", "curious"])
def test_planned_chances_are_never_below_the_sampled_frequency(
    clients: int, colluding: float, anonymity: int, server: Server
) -> None:
    """Plans for 2^−6 per run, with CONFIRM if the server lies. One draw of the sixteen is sampled."""
    goal = Goal(
        clients,
        10_000,
        0.1,
        colluding,
        anonymity,
        failure_log2=-6,
        server=server,
        excluded=0.0,
        confirm=server == "lying",
    )
    plan = planned(goal)
    groups, draws = plan.groups, 20_000
    rng = np.random.default_rng(clients)
    colludes = rng.permuted(np.tile(np.arange(clients) < goal.colluders, (draws, 1)), axis=1)
    members = np.array([size for pod in groups.sizes for size in pod])
    inside = np.add.reduceat(colludes, np.cumsum([0, *members[:-1]]), axis=1)
    needed = np.array([groups.survivors_of(size) for size in members])
    failed = (needed - inside < anonymity).any(axis=1)
    if server == "curious":  # Such a committee must also lose honest users, in one of a thousand rounds.
        honest = rng.binomial((members - inside)[:, :, None], goal.availability, (draws, len(members), 100))
        thin = (honest < anonymity) & (honest + inside[:, :, None] >= needed[:, None])
        failed &= thin.any(axis=(1, 2))
    assert_not_exceeded(2 ** (plan.privacy_failure_log2 - 4), int(failed.sum()), draws)
    taking_part = rng.binomial(members, goal.availability, (draws, len(members)))
    thin_rounds = (taking_part < needed).sum(axis=0).max()
    assert_not_exceeded(plan.abort_probability, int(thin_rounds), draws)


@pytest.mark.parametrize(("clients", "limit"), [(1000, 1.0), (10_000, 3.0)])
@pytest.mark.parametrize(("dropout", "colluding"), [(0.1, 0.1), (0.1, 0.3), (0.3, 1 / 3), (0.49, 0.49)])
def test_planning_is_quick(clients: int, limit: float, dropout: float, colluding) -> None:
    start = time.process_time()
    planned(Goal(clients, 10**9, dropout=dropout, colluding=colluding, min_anonymity=5))
    assert time.process_time() - start < limit


def test_round_options_name_the_groups_and_thresholds_of_the_smallest() -> None:
    options = planned(Goal(1000, MODEL, dropout=0.1, colluding=0.1, min_anonymity=5, clip=0.5)).round_options()
    assert options == {
        "clients": 1000,
        "dim": MODEL,
        "dropout": 0.1,
        "clip": 0.5,
        "pattern": "committee",
        "committees": 26,
        "pods": 13,
        "served": 1,
        "threshold": 58,
        "min_survivors": 29,
        "confirm": True,
        "modulus_bits": 8,
    }


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("clients", 2, "from 3 to 1048576, got 2"),
        ("clients", 10**9, "from 3 to"),
        ("dim", 0, "from 1"),
        ("dropout", 0.5, "below 0.5, got 0.5"),
        ("dropout", -0.1, "at least 0"),
        ("dropout", math.nan, "below 0.5"),
        ("colluding", 0.5, "below 0.5"),
        ("min_anonymity", 0, "from 1 to"),
        ("min_anonymity", 101, "from 1 to the 100 clients, got 101"),
        ("failure_log2", 0.0, "below 0"),
        ("failure_log2", 8.0, "below 0"),
        ("clip", 0.0, "positive"),
        ("clip", math.inf, "finite"),
        ("levels", 0, "at least 1"),
        ("server", "evil", "one of lying, curious, got 'evil'"),
        ("excluded", 0.5, "below 0.5"),
    ],
)
def test_contradictory_goals_are_refused_with_the_option_and_its_range(option: str, value, says: str) -> None:
    goal: dict[str, Any] = {"clients": 100, "dim": 10, "dropout": 0.1, "colluding": 0.1, "min_anonymity": 5}
    with pytest.raises(InvalidInput, match=says) as caught:
        Goal(**goal | {option: value})
    assert caught.value.option == option


@pytest.mark.parametrize(("change", "option"), [({"clip": 1e10}, "clip"), ({"levels": 10**9}, "levels")])
def test_a_resolution_beyond_every_word_names_the_largest_that_fits(change, option: str) -> None:
    goal = Goal(100, 10, dropout=0.1, colluding=0.1, min_anonymity=5, **change)
    with pytest.raises(InvalidInput) as caught:
        planned(goal)
    assert caught.value.option == option
    most = int(caught.value.problem.split("at most ")[1].split()[0])
    members = int(caught.value.problem.split("sum of ")[1].split()[0])
    levels = goal.levels or default_levels(members)
    changed: dict[str, Any] = {"clip": goal.clip, "levels": levels} | {option: most}
    assert shortest_word(members, **changed) == 32
    with pytest.raises(InvalidInput):
        shortest_word(members, **changed | {option: most + 1})
