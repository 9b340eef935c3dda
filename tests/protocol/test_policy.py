"""A client's own policy: a run that keeps less is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.rounds import grouped, identities, lenient, small
from sparsesecagg.errors import InvalidInput, PolicyViolation
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, RoundOptions
from sparsesecagg.protocol.policy import kept_by


def with_identity(params: Parameters, policy: Policy | None = None, group_size: int | None = None) -> Client:
    identity = identities(params.clients, group_size)[0]
    return Client(0, params, policy, identity=identity, ledger=MemoryLedger())


def test_policy_by_default() -> None:
    policy = Policy()
    assert (policy.min_clients, policy.min_anonymity, policy.failure_log2) == (3, 2, -40.0)
    assert (policy.colluding, policy.server, policy.authenticated) == (None, None, False)
    assert policy.patterns == {"full", "sliced"}, "pairwise by opt-in only"
    assert (policy.max_dim, policy.max_clients) == (1 << 30, 1 << 17)


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        (lenient(min_clients=5), lenient(min_clients=6)),
        (lenient(max_clients=5), lenient(max_clients=4)),
        (lenient(max_dim=40), lenient(max_dim=39)),
        (lenient(patterns=frozenset({"sliced"})), lenient(patterns=frozenset({"full", "pairwise"}))),
        (lenient(authenticated=False), lenient(authenticated=True)),
        (lenient(server="semi-honest"), lenient(server="malicious")),
        (lenient(min_anonymity=3), lenient(min_anonymity=4)),
        (lenient(min_anonymity=2, colluding=0.2), lenient(min_anonymity=3, colluding=0.2)),
    ],
    ids=["cohort", "large cohort", "model", "pattern", "roster", "malicious", "anonymity", "collusion"],
)
def test_a_policy_accepts_exactly_what_it_demands(passes: Policy, fails: Policy) -> None:
    """Five users, three of whom open a sum."""
    Client(0, small(), passes)
    with pytest.raises(PolicyViolation):
        Client(0, small(), fails)


class TestMaliciousServer:
    """With a roster users expect a malicious server and a tenth of them colluding, unless their owner says less."""

    @pytest.mark.parametrize(
        ("clients", "threshold", "kept"), [(10, 8, 7), (10, 7, 5), (10, 6, 2), (5, 4, 3), (5, 5, 4), (7, 5, 3)]
    )
    def test_what_a_threshold_keeps(self, clients: int, threshold: int, kept: int) -> None:
        params = small(clients=clients, threshold=threshold, roster=True)
        assert kept_by(params, "malicious", 0.1).anonymity == kept
        with_identity(params, Policy(min_anonymity=kept))
        with pytest.raises(PolicyViolation, match=f"keeps {kept} honest users in every sum .* against a malicious"):
            with_identity(params, Policy(min_anonymity=kept + 1))

    @pytest.mark.parametrize(("clients", "threshold"), [(5, 3), (7, 4), (15, 8)])
    def test_a_threshold_with_2t_up_to_p_plus_c_keeps_nobody(self, clients: int, threshold: int) -> None:
        """One user can be read, whatever `min_anonymity` is: the default policy names the threshold."""
        params = small(clients=clients, threshold=threshold, roster=True)
        with pytest.raises(
            PolicyViolation, match=rf"keeps 0 honest users .*threshold {threshold}\), the policy demands 1"
        ):
            with_identity(params, Policy(min_anonymity=1))
        with_identity(params.replace(threshold=threshold + 1))

    def test_a_server_can_not_talk_its_users_into_fewer_colluders(self) -> None:
        """What the parameters say about collusion is not the users' word."""
        params = small(clients=15, threshold=8, roster=True, colluding=0.0)
        with pytest.raises(PolicyViolation, match=r"with 0\.1 colluding"):
            with_identity(params)
        with_identity(params, Policy(colluding=0.0))

    def test_an_owner_may_expect_a_semi_honest_server(self) -> None:
        params = small(clients=15, threshold=8, roster=True)
        with_identity(params, Policy(server="semi-honest"))
        with pytest.raises(PolicyViolation, match="against a semi-honest server"):
            with_identity(params, Policy(server="semi-honest", min_anonymity=8))

    def test_a_run_with_a_roster_is_what_an_owner_demands_who_demands_one(self) -> None:
        with_identity(small(threshold=5, roster=True), Policy(authenticated=True, server="semi-honest"))
        with pytest.raises(PolicyViolation, match="not authenticated"):
            Client(0, small(threshold=5), Policy(authenticated=True, server="semi-honest"))

    def test_without_a_roster_nothing_is_kept_from_a_malicious_server(self) -> None:
        with pytest.raises(PolicyViolation, match="not authenticated, the policy demands a roster"):
            Client(0, small(threshold=5), Policy(server="malicious"))

    def test_the_largest_group_decides(self) -> None:
        """Groups of five and six with one threshold: the larger one keeps less."""
        params = small(clients=11, group_size=6, threshold=5)
        assert params.sizes == (5, 6)
        assert kept_by(params, "malicious", 0.0).anonymity == 5 == kept_by(params, "semi-honest", 0.0).anonymity
        assert kept_by(small(clients=6, threshold=4), "malicious", 0.0).anonymity == 3
        assert kept_by(small(clients=5, threshold=4), "malicious", 0.0).anonymity == 4

    def test_several_groups_leave_collusion_to_chance(self) -> None:
        """Two groups of six: both of two colluders may be in one."""
        promise = kept_by(grouped(threshold=6), "malicious", 0.15)
        assert (promise.colluders, promise.anonymity) == (2, 4)

    def test_a_sparse_graph_keeps_nothing_from_who_has_helpers(self) -> None:
        """Colluders and dropouts together may cut it, down to a single user."""
        params = small(clients=40, neighbours=20)
        assert kept_by(params, "malicious", 0.0).anonymity == 0
        assert kept_by(params, "semi-honest", 0.0).anonymity == 21
        assert kept_by(params, "semi-honest", 0.05).anonymity == 0


class TestRoster:
    def test_parameters_cut_otherwise_than_the_roster_says_are_refused(self) -> None:
        """Another cut of the same draw is another draw, and there are many to choose from."""
        roster = identities(12, 6)[0].roster
        params = Parameters.create(12, 40, RoundOptions(alpha=0.25, threshold=4), roster=roster)
        assert params.groups == 2
        with_identity(params, lenient(), 6)
        forged = params.replace(groups=3, slices=3)
        with pytest.raises(PolicyViolation, match="the roster makes 2 groups of 12 users, the run has 3"):
            with_identity(forged, lenient(), 6)

    def test_one_group_draws_nothing_and_is_allowed(self) -> None:
        params = small(clients=12, roster=True, group_size=6, alpha=0.25, threshold=5)
        with_identity(params.replace(groups=1, slices=1, threshold=10), lenient(), 6)


def test_the_default_policy_refuses_to_open_single_users() -> None:
    with pytest.raises(PolicyViolation, match=r"keeps 1 honest users .* the policy demands 2"):
        Client(0, small(), Policy(colluding=0.4))
    Client(0, small())
    Client(0, Parameters.create(10, 4))


@pytest.mark.parametrize(
    ("demands", "sentence"),
    [
        ({"min_clients": 9, "max_clients": 8}, "min_clients must be from 0 to max_clients, which is 8, got 9"),
        ({"min_anonymity": 95, "max_clients": 100, "colluding": 0.1}, "min_anonymity must be from 0 to 90, the honest"),
        ({"colluding": 1.0}, "colluding must be in"),
        ({"server": "lying"}, "server must be one of malicious, semi-honest, got 'lying'"),
        ({"min_anonymity": -5}, "min_anonymity must be from 0 to .*, got -5"),
        ({"min_anonymity": "5"}, "min_anonymity must be a whole number, got '5'"),
        ({"min_clients": -1}, "min_clients must be from 0 to .*, got -1"),
        ({"max_dim": 0}, "max_dim must be at least 1, got 0"),
        ({"authenticated": "no"}, "authenticated must be true or false, got 'no'"),
        ({"max_epsilon": "8"}, "max_epsilon must be a number, got '8'"),
        ({"clip_norm": 0.0}, "clip_norm must be above 0, got 0.0"),
        ({"patterns": frozenset()}, r"patterns must be a set of some of sliced, full, pairwise, got frozenset\(\)"),
        ({"patterns": "pairwise"}, "patterns must be a set of some of sliced, full, pairwise, got 'pairwise'"),
        ({"patterns": {"slized"}}, "patterns must be a set of some of sliced, full, pairwise, got {'slized'}"),
        ({"delta": 2.0**-40}, r"delta must be from 2\^-33\.4, 100 times .*, to 1"),
        ({"delta": 1.0}, r"delta must be from 2\^-33\.4, .* to 1, got 1.0"),
    ],
)
def test_a_policy_that_no_run_can_keep_is_refused_at_once_with_what_could_be(demands: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Policy(**demands)


def test_a_policy_may_allow_one_size_of_cohort_only() -> None:
    Client(0, small(), lenient(min_clients=5, max_clients=5))


def test_a_policy_may_demand_that_all_are_honest() -> None:
    Policy(min_anonymity=100, max_clients=100)
    Policy(min_anonymity=90, max_clients=100, colluding=0.1)
    with pytest.raises(InvalidInput, match="min_anonymity must be from 0 to 100"):
        Policy(min_anonymity=101, max_clients=100)


def test_pairwise_only_by_name() -> None:
    params = small(pattern="pairwise")
    with pytest.raises(PolicyViolation, match="pairwise"):
        Client(0, params)
    Client(0, params, Policy(patterns=frozenset({"pairwise"})))


def test_parameters_that_make_no_sense_are_refused_by_the_client_itself() -> None:
    lowered = msgspec.structs.replace(small(), threshold=2)
    with pytest.raises(InvalidInput, match="threshold"):
        Client(0, lowered)


@pytest.mark.parametrize("user", [-1, 5])
def test_a_user_outside_the_cohort_has_no_client(user: int) -> None:
    with pytest.raises(InvalidInput, match="from 0 to 4"):
        Client(user, small())
    Client(4, small())
