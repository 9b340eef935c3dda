"""A server that chooses whom it declares dropped: what real clients let it read, and when they stop."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.audit.rounds import attacked_run, committee_of, next_round, parameters
from sparsesecagg.lab.audit.audit import AuditSettings, run_audit
from sparsesecagg.lab.audit.lying import LyingServer, Present, told_dropped, victims
from sparsesecagg.protocol import Parameters


def lied_to(params, colluders, *, rounds=1, last_round=0, dropped=()):
    """Run rounds with a lying server; return them and the run."""
    server = partial(LyingServer, colluders=colluders, last_round=last_round)
    run = attacked_run(params, colluders=colluders, make_server=server)
    return [next_round(run, dropped=dropped, seed=number) for number in range(rounds)], run


def sizes_in(found, users):
    """Return the sizes of the sums that some users are in."""
    return {pod.sizes[place] for user, (pod, place) in found.view.place_of.items() if user in users}


def test_the_server_leaves_as_many_honest_users_as_clients_demand_survivors() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=6)
    (found,), _ = lied_to(params, [])
    assert found.outcome is not None
    # Twenty users, eleven of which must answer: nine can be left out, four of each committee and one to spare.
    assert sorted(found.view.place_of) == list(found.outcome.result.survivors)
    assert sizes_in(found, range(20)) == {6}


def test_colluders_count_as_survivors_and_hide_nobody() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=6)
    members = committee_of(params)
    (found,), _ = lied_to(params, members[:3])
    assert sizes_in(found, members) == {3}
    assert found.truth.score_values(found.findings).count == 0
    (found,), _ = lied_to(params, members[:5])
    assert sizes_in(found, members) == {1}
    score = found.truth.score_values(found.findings)
    assert score.correct == score.count == 10


def test_a_curious_server_sees_all_of_them_together() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=6)
    members = committee_of(params)
    found = next_round(attacked_run(params, colluders=members[:5]))
    assert sizes_in(found, members) == {5}


def test_the_threshold_of_the_pod_limits_whom_it_can_leave_out() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=18, min_survivors=2)
    (found,), _ = lied_to(params, [])
    assert len(found.outcome.result.survivors) == 18
    assert {pod.sizes[place] for pod in found.view.pods for place in pod.sizes} == {8, 10}


def test_whoever_is_left_out_too_often_stops_for_good() -> None:
    """At θ = 0.05 four of ten users can't be left out for long, even if they take turns."""
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=6, dropout=0.05)
    found, run = lied_to(params, [], rounds=26)
    assert found[0].outcome is not None
    assert run.stopped > 0


def test_the_server_spreads_its_victims() -> None:
    committees = {0: Present(list(range(6)), 0, 4)}
    excluded: Counter[int] = Counter()
    for _ in range(6):
        chosen = victims(committees, 10, excluded)
        assert len(chosen) == 2
        excluded.update(chosen)
    assert set(excluded.values()) == {2}


def test_different_survivors_for_different_holders_leave_fewer_honest_users_than_one_set() -> None:
    """The bound of the plan without CONFIRM, s − c_m − ⌊(P − t)(m − s)/(t − c_P)⌋, is attained."""
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=6)
    (same,), _ = lied_to(params, [])
    (split,), _ = lied_to(params, [], last_round=1)
    assert split.outcome is None, "the server itself opens nothing: the attacker puts the answers together"
    assert min(sizes_in(same, range(20))) == 6
    assert min(sizes_in(split, range(20))) == 6 - (20 - 11) * (10 - 6) // 11 == 3
    told = [frozenset(survivors) for survivors in split.view.pods[0].told.values()]
    assert len(set(told)) > 1


def test_a_threshold_that_is_too_low_for_the_colluders_opens_both_secrets_of_everybody() -> None:
    """2t ≤ P + c_P: some holders are told that a user dropped, the others that it survived."""
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=11, min_survivors=5)
    members = committee_of(params)
    colluders = [*members[:4], *committee_of(params, 1)[:3]]
    (found,), _ = lied_to(params, colluders, last_round=1)
    assert set(found.findings.user.tolist()) >= set(members[4:])
    assert found.truth.score_values(found.findings).correct == len(found.findings.value)
    (found,), _ = lied_to(params.replace(threshold=14), colluders, last_round=1)
    assert len(found.findings.value) <= 10, "the last one of a committee at most"


def test_confirm_makes_it_one_set_again() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=14, min_survivors=8, confirm=True)
    (found,), _ = lied_to(params, [], last_round=1)
    assert found.outcome is not None
    told = {frozenset(survivors) for survivors in found.view.pods[0].told.values()}
    assert len(told) == 1
    assert min(sizes_in(found, range(20))) == 8


def test_after_different_sets_everybody_stops() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=14, min_survivors=8)
    (first, second), run = lied_to(params, [], rounds=2, last_round=1)
    assert len(first.view.place_of) > 0
    assert second.outcome is None
    assert run.stopped >= 20 - 14 + 1
    assert not second.view.place_of


def test_a_split_with_colluders_attains_the_bound_as_well() -> None:
    params = parameters(clients=20, dim=20, alpha=0.5, threshold=13, min_survivors=7)
    members, others = committee_of(params), committee_of(params, 1)
    colluders = [members[0], others[0], others[1]]
    (split,), _ = lied_to(params, colluders, last_round=1)
    # s − c_m − ⌊(P − t)(m − s)/(t − c_P)⌋; the committee with two colluders is attacked first.
    assert min(sizes_in(split, others)) == 7 - 2 - (20 - 13) * (10 - 7) // (13 - 3) == 3


@given(
    honest=st.integers(1, 12),
    colluders=st.integers(0, 4),
    least=st.integers(1, 10),
    others=st.integers(0, 20),
    data=st.data(),
)
def test_told_sets_keep_what_clients_demand(honest, colluders, least, others, data) -> None:
    committee = Present(list(range(honest)), colluders, least)
    if honest + colluders < least:
        return
    holders = list(range(honest + others))
    spare = data.draw(st.integers(0, honest + others))
    votes = data.draw(st.integers(1, max(1, len(holders))))
    told = told_dropped({0: committee}, holders, spare=spare, votes=votes)
    against = Counter(place for lie in told.values() for place in lie)
    assert set(told) == set(holders)
    for holder, lie in told.items():
        assert holder not in lie
        assert len(lie) <= spare
        assert honest + colluders - len(lie) >= least
    assert all(count >= votes for count in against.values()), "no vote is wasted on members that stay"
    if len(against) == honest:
        both = all(len(holders) - against[place] >= votes for place in range(honest))
        assert both, "somebody stays, or both secrets of all open: otherwise there is nothing to read"


@pytest.mark.parametrize("pattern", ["committee", "full", "pairwise"])
def test_a_lying_server_reads_no_less_than_a_curious_one(pattern: str) -> None:
    options: dict[str, Any] = (
        {"alpha": 0.4} if pattern == "committee" else {"alpha": 0.3} if pattern == "pairwise" else {}
    )
    params = Parameters.create(clients=20, dim=40, pattern=pattern, dropout=0.1, min_survivors=3, **options)
    curious, lying = (run_audit(AuditSettings(params, 0.3, 3, server=server)) for server in ("curious", "lying"))
    assert lying.mean_component < curious.mean_component
    assert lying.revealed_fraction >= curious.revealed_fraction
    assert lying.tally.read.correct == lying.tally.read.count
    assert np.isclose(lying.revealed_fraction, lying.unmasked_fraction)
