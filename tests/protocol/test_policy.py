"""A client's own policy: a run that keeps less is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import Run, grouped, identities, lenient, small, with_roster
from sparsesecagg.errors import InvalidInput, PolicyViolation
from sparsesecagg.field import WORD_BITS
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy


def test_policy_by_default() -> None:
    policy = Policy()
    assert (policy.min_clients, policy.min_survivors, policy.min_anonymity) == (3, 2, 2)
    assert (policy.colluding, policy.failure_log2, policy.server) == (0.0, -40.0, "curious")
    assert not policy.authenticated
    assert policy.patterns == {"full", "committee"}, "pairwise by opt-in only"
    assert policy.modulus_bits == set(WORD_BITS) == set(range(4, 33))
    assert policy.max_exposure == float("inf")
    assert (policy.max_dim, policy.max_clients) == (1 << 30, 1 << 17)


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        (lenient(min_clients=5), lenient(min_clients=6)),
        (lenient(max_clients=5), lenient(max_clients=4)),
        (lenient(max_dim=40), lenient(max_dim=39)),
        (lenient(patterns=frozenset({"full"})), lenient(patterns=frozenset({"committee", "pairwise"}))),
        (lenient(modulus_bits=frozenset({32})), lenient(modulus_bits=frozenset(range(4, 32)))),
        (lenient(authenticated=False), lenient(authenticated=True)),
        (lenient(server="curious"), lenient(server="lying")),
        (lenient(min_anonymity=3), lenient(min_anonymity=4)),
    ],
    ids=["cohort", "large cohort", "model", "pattern", "modulus", "roster", "lying", "anonymity"],
)
def test_a_policy_accepts_exactly_what_it_demands(passes: Policy, fails: Policy) -> None:
    """Five users, three of whom restore a secret and must survive."""
    params = small(min_survivors=3, dropout=0.3)
    Client(0, params, passes)
    with pytest.raises(PolicyViolation):
        Client(0, params, fails)


def test_the_default_policy_refuses_to_open_single_users() -> None:
    with pytest.raises(PolicyViolation, match=r"keeps an anonymity of 1 .* the policy demands 2"):
        Client(0, small(min_survivors=1, dropout=0.3))
    Client(0, small(min_survivors=2, dropout=0.3))
    Client(0, small(min_survivors=1))  # Where nobody drops out, all five are in the sum.
    Client(0, Parameters.create(clients=10, dim=4))


@pytest.mark.parametrize(
    ("demands", "sentence"),
    [
        ({"min_clients": 9, "max_clients": 8}, "min_clients must be at most max_clients, which is 8, got 9"),
        ({"min_anonymity": 95, "max_clients": 100, "colluding": 0.1}, "min_anonymity must be at most 90, the honest"),
        ({"colluding": 1.0}, "colluding must be in"),
        ({"patterns": frozenset()}, "patterns must allow at least one"),
    ],
)
def test_a_policy_that_no_run_can_keep_is_refused_at_once_with_what_could_be(demands: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Policy(**demands)


def test_a_policy_that_no_run_of_a_cohort_can_keep_says_what_that_cohort_could() -> None:
    with pytest.raises(PolicyViolation, match=r"the policy demands 6, and no run of 5 users could keep more than 5$"):
        Client(0, small(), Policy(min_anonymity=6))
    with pytest.raises(PolicyViolation, match=r"the policy demands 5$"):
        Client(0, small(min_survivors=3, dropout=0.3), Policy(min_anonymity=5))


def test_pairwise_only_by_name() -> None:
    params = small(pattern="pairwise")
    with pytest.raises(PolicyViolation, match="pairwise"):
        Client(0, params)
    Client(0, params, Policy(patterns=frozenset({"pairwise"})))


def test_colluders_count_against_the_anonymity() -> None:
    """Sixteen users in committees of four, two of whom must survive: one colluder leaves one honest user."""
    params = grouped(dropout=0.3)
    Client(0, params, Policy(min_anonymity=2))
    with pytest.raises(PolicyViolation, match=r"with 0\.1 colluding"):
        Client(0, params, Policy(min_anonymity=2, colluding=0.1))


def test_parameters_that_make_no_sense_are_refused_by_the_client_itself() -> None:
    lowered = msgspec.structs.replace(small(), threshold=2)
    with pytest.raises(InvalidInput, match="threshold"):
        Client(0, lowered)


def test_a_policy_that_demands_a_roster_accepts_one() -> None:
    Client(0, with_roster(small), lenient(authenticated=True), identity=identities(5)[0], ledger=MemoryLedger())


@pytest.mark.parametrize("user", [-1, 5])
def test_a_user_outside_the_cohort_has_no_client(user: int) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 4"):
        Client(user, small())
    Client(4, small(min_survivors=2))


@pytest.mark.parametrize(("served", "weight"), [(4, 6), (2, 12), (1, 24)])
def test_the_exposure_is_alpha_times_the_weight(served: int, weight: int) -> None:
    params = grouped(served=served, max_weight=100)
    for limit, refusal in ((6.0, False), (5.99, True)):
        run = Run(params, policy=lenient(max_exposure=limit)).begin()
        before = run.clients[0].save()
        if refusal:
            with pytest.raises(PolicyViolation, match="weight") as problem:
                run.clients[0].upload(run.inbox[0], run.updates[0], weight=weight)
            assert str(weight) not in str(problem.value), "the weight is private"
            assert run.clients[0].save() == before
        else:
            run.clients[0].upload(run.inbox[0], run.updates[0], weight=weight)


def test_a_client_with_an_identity_does_not_start_without_a_ledger() -> None:
    with pytest.raises(InvalidInput, match="ledger must be given"):
        Client(0, with_roster(small), lenient(), identity=identities(5)[0])
    Client(0, small(min_survivors=2))
