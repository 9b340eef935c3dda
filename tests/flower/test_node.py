"""What a node brings: demands from its own configuration and nowhere else, the proof of who it is, its weight."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from flower.enrolment import Enrolled, enrol_users
from flower.local_grid import LocalGrid, model, secagg, training_app, values
from sparsesecagg.crypto.identity import Roster, RunSecret, run_key
from sparsesecagg.crypto.secrets import PrivateKey
from sparsesecagg.errors import InvalidInput, InvalidKey
from sparsesecagg.flower import RefusedByAll, SecAgg, UnprovenNode, secagg_mod
from sparsesecagg.flower.node import Challenge, Claim, Owner, prove, rounded
from sparsesecagg.protocol import Policy


def context(node: dict[str, Any] | None = None, run: dict[str, Any] | None = None) -> Context:
    return Context(run_id=1, node_id=2, node_config=node or {}, state=RecordDict(), run_config=run or {})


def test_without_configuration_the_defaults_of_the_package_hold() -> None:
    owner = Owner(context({"partition-id": 3}, {"learning-rate": 0.1}))
    assert owner.policy == Policy()
    assert owner.enrolment is None
    assert owner.evaluates
    assert owner.weight_key == "num-examples"
    assert owner.allows_metric("loss")


def test_every_demand_can_be_made_by_the_node() -> None:
    demands = {
        "secagg-min-clients": 20,
        "secagg-min-anonymity": 5,
        "secagg-colluding": 0.1,
        "secagg-failure-log2": -30,
        "secagg-server": "malicious",
        "secagg-max-dim": 1_000_000,
        "secagg-max-clients": 1_000,
        "secagg-patterns": "sliced, full",
    }
    assert Owner(context(demands)).policy == Policy(
        min_clients=20,
        min_anonymity=5,
        colluding=0.1,
        failure_log2=-30.0,
        server="malicious",
        max_dim=1_000_000,
        max_clients=1_000,
        patterns=frozenset({"sliced", "full"}),
    )


def test_the_owner_names_the_weight_and_the_metrics() -> None:
    owner = Owner(context({"secagg-weight-key": "rows", "secagg-metrics": "loss, eval_acc"}))
    assert owner.weight_key == "rows"
    assert [owner.allows_metric(name) for name in ("loss", "eval_acc", "rows")] == [True, True, False]


def test_a_roster_changes_the_defaults(tmp_path: Path) -> None:
    """A malicious server and a tenth colluding (`Policy`), no evaluation, no metrics, unless the owner writes less."""
    config = enrol_users(tmp_path, 4).node_config(1)
    owner = Owner(context(config))
    assert owner.policy == Policy(authenticated=True)
    assert owner.enrolment is not None
    assert not owner.evaluates
    assert not owner.allows_metric("loss")
    allowing = Owner(context({**config, "secagg-evaluate": True, "secagg-metrics": "loss", "secagg-colluding": 0.0}))
    assert allowing.evaluates
    assert allowing.allows_metric("loss")
    assert allowing.policy.colluding == 0.0


def test_what_the_run_is_configured_with_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from whoever submits the run: neither a policy nor the place of any file is theirs to choose."""
    monkeypatch.delenv("SPARSESECAGG_LEDGER")
    demands = {"secagg-min-clients": 9, "secagg-patterns": "full", "secagg-evaluate": False}
    run = {
        "secagg-min-clients": 3,
        "secagg-patterns": "pairwise",
        "secagg-authenticated": False,
        "secagg-ledger": "/elsewhere",
        "secagg-roster": "/etc/passwd",
        "secagg-evaluate": True,
        "secagg-weight-key": "age",
    }
    with_run, without = Owner(context(demands, run)), Owner(context(demands))
    assert with_run.policy == without.policy
    assert with_run.folder == without.folder
    assert with_run.enrolment is None
    assert with_run.weight_key == "num-examples"
    assert not with_run.evaluates


def test_the_ledger_lies_where_the_node_says_or_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of a simulation has one of its own, and all share the models."""
    own = Owner(context({"partition-id": 3, "secagg-ledger": "/a/{partition-id}"}))
    assert (own.folder, own.models) == (Path("/a/3"), Path("/a/3/models"))
    monkeypatch.setenv("SPARSESECAGG_LEDGER", "/b")
    shared = Owner(context({"partition-id": 3}))
    assert (shared.folder, shared.models) == (Path("/b/node-3"), Path("/b/models"))
    monkeypatch.delenv("SPARSESECAGG_LEDGER")
    assert Owner(context()).folder == Path.home() / ".sparsesecagg" / "ledger"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("secagg-min-clients", "many"),
        ("secagg-min-clients", 0),
        ("secagg-min-clients", True),
        ("secagg-colluding", 1.0),
        ("secagg-failure-log2", 0),
        ("secagg-server", "honest"),
        ("secagg-patterns", "slized"),
        ("secagg-patterns", ""),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{key} must"):
        Owner(context({key: value}))


def test_a_misspelt_demand_of_a_node_does_not_pass_unnoticed() -> None:
    with pytest.raises(InvalidInput, match=r"secagg-min-cohort .* secagg-min-clients"):
        Owner(context({"secagg-min-cohort": 20}))


class TestInARound:
    def run(self, demand: dict[str, Any], **settings: Any) -> SecAgg:
        app = training_app(lambda p, a, r: a, weight=lambda p: 40, metrics=lambda p: {"rows": 7})
        grid = LocalGrid(app, 6, node_config=lambda index: demand)
        self.strategy = secagg(**settings)
        self.strategy.start(grid=grid, initial_arrays=model(w=np.zeros(40, np.float32)), num_rounds=1)
        return self.strategy

    @pytest.mark.parametrize(
        ("demand", "settings", "stage", "reason"),
        [
            ({"secagg-min-clients": 10}, {}, "ADVERTISE_KEYS", "the cohort has 6 users, the policy allows 10"),
            ({"secagg-min-anonymity": 6}, {}, "ADVERTISE_KEYS", "the policy demands 6"),
            ({"secagg-patterns": "sliced"}, {"pattern": "full"}, "ADVERTISE_KEYS", "'full' is not allowed"),
            ({}, {"pattern": "pairwise", "max_weight": 0}, "ADVERTISE_KEYS", "'pairwise' is not allowed"),
            ({"secagg-server": "malicious"}, {}, "ADVERTISE_KEYS", "the policy demands a roster"),
            ({"secagg-max-dim": 39}, {}, "ADVERTISE_KEYS", "40 coordinates, the policy allows 39"),
            ({"secagg-min-clients": "x"}, {}, "ADVERTISE_KEYS", "secagg-min-clients must be"),
            ({"secagg-metrics": "acc"}, {"metrics": {"loss": 1.0}}, "UPLOAD", "the metric 'loss' stays on this node"),
        ],
    )
    def test_a_demand_that_is_not_met_ends_the_run_with_the_clients_reason(
        self, demand: dict[str, Any], settings: dict[str, Any], stage: str, reason: str
    ) -> None:
        """Also a run of one round, though no other would fail alike: nobody should miss why nothing was learnt."""
        with pytest.raises(RefusedByAll, match=reason):
            self.run(demand, **settings)
        record = self.strategy.history[0]
        assert record.failed_at == stage
        assert reason in str(record.failure)

    def test_a_demand_that_is_met_costs_nothing(self) -> None:
        assert self.run({"secagg-min-clients": 6, "secagg-min-anonymity": 4}).history[0].failure is None

    def test_the_server_has_no_say_in_what_weighs(self) -> None:
        """The wrapped strategy names a key; nodes weigh by their owners'."""
        app = training_app(
            lambda p, a, r: {"w": a["w"] + np.float32(0.1 * p)}, metrics=lambda p: {"rows": 8 ** (p == 4)}
        )
        for node_config, expected in (({}, 0.2), ({"secagg-weight-key": "rows"}, (0.4 * 8 + 0.6) / 12)):
            grid = LocalGrid(app, 5, node_config=lambda _, config=node_config: config)  # type: ignore[misc]
            strategy = secagg(FedAvg(fraction_evaluate=0.0, weighted_by_key="rows"))
            result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1)
            np.testing.assert_allclose(values(result.arrays)["w"], expected, rtol=0.1)

    @pytest.mark.parametrize("allowed", [True, False])
    def test_the_owner_of_a_node_may_forbid_evaluation(self, allowed: bool) -> None:
        """Its replies are not masked; the mod must wrap the evaluate function too."""
        grid = self.evaluating(lambda index: {"secagg-evaluate": allowed})
        assert [reply.has_error() for _, reply in grid.replied] == [not allowed] * 4
        if not allowed:
            assert "its owner has not set secagg-evaluate to true" in str(grid.replied[0][1].error.reason)

    def test_with_a_roster_evaluation_takes_the_owners_leave(self, tmp_path: Path) -> None:
        users = enrol_users(tmp_path, 4)
        leave = lambda index: {"secagg-evaluate": True} if index == 3 else {}  # noqa: E731
        grid = self.evaluating(lambda index: {**users.node_config(index), **leave(index)})
        assert {node: reply.has_error() for node, reply in grid.replied} == {
            100: True,
            101: True,
            102: True,
            103: False,
        }

    def evaluating(self, node_config: Any) -> LocalGrid:
        app = ClientApp()

        @app.evaluate(mods=[secagg_mod])
        def evaluate(message: Message, context: Context) -> Message:
            metrics = MetricRecord({"num-examples": 1, "accuracy": 0.25})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        grid = LocalGrid(app, 4, node_config=node_config)
        FedAvg(fraction_train=0.0).start(grid=grid, initial_arrays=model(w=np.zeros(4, np.float32)), num_rounds=1)
        return grid


CLAIM = Claim(bytes(range(32)), node=104, user=2, keys=b"public keys")


@pytest.fixture
def users(tmp_path: Path) -> Enrolled:
    return enrol_users(tmp_path, 4)


def key_of(users: Enrolled, user: int) -> PrivateKey:
    return run_key(RunSecret(users.run_key(user).read_bytes()), "test")


class TestProofs:
    def test_the_owner_of_the_run_key_can_prove_its_claim(self, users: Enrolled) -> None:
        challenge = Challenge()
        challenge.verify(CLAIM, Roster.load(users.roster), prove(CLAIM, key_of(users, 2), challenge.public))

    @pytest.mark.parametrize(
        "changes",
        [
            {"run": bytes(32)},
            {"node": 105},
            {"keys": b"other keys"},
            {"user": 3},
        ],
        ids=["run", "node", "keys", "user"],
    )
    def test_a_proof_of_one_claim_is_none_of_another(self, users: Enrolled, changes: dict[str, Any]) -> None:
        challenge, other = Challenge(), dataclasses.replace(CLAIM, **changes)
        proof = prove(other, key_of(users, 2), challenge.public)
        with pytest.raises(UnprovenNode, match="does not prove to be user 2"):
            challenge.verify(CLAIM, Roster.load(users.roster), proof)

    def test_it_is_none_for_another_challenge_or_with_another_key(self, users: Enrolled) -> None:
        roster, challenge = Roster.load(users.roster), Challenge()
        for proof in (
            prove(CLAIM, key_of(users, 2), Challenge().public),
            prove(CLAIM, key_of(users, 1), challenge.public),
            b"",
        ):
            with pytest.raises(UnprovenNode):
                challenge.verify(CLAIM, roster, proof)

    @pytest.mark.parametrize("user", [-1, 4])
    def test_nobody_is_a_user_whom_the_roster_does_not_have(self, users: Enrolled, user: int) -> None:
        """Not even under a number that a list would count from its end."""
        challenge, claim = Challenge(), dataclasses.replace(CLAIM, user=user)
        proof = prove(claim, key_of(users, 3), challenge.public)
        with pytest.raises(UnprovenNode, match=f"the roster has no user {user}"):
            challenge.verify(claim, Roster.load(users.roster), proof)

    def test_a_challenge_that_would_make_the_proof_public_is_refused(self, users: Enrolled) -> None:
        with pytest.raises(InvalidKey, match="low-order"):
            prove(CLAIM, key_of(users, 2), bytes(32))


WEIGHTS = st.integers(0, 1 << 20)
LIMITS = st.integers(1, 1 << 20)
COINS = st.integers(0, (1 << 64) - 1)


@given(WEIGHTS, LIMITS, COINS)
def test_a_rounded_weight_is_a_power_of_two_or_the_limit_and_within_a_factor_of_two(
    weight: int, limit: int, own: int
) -> None:
    point = rounded(weight, limit, own)
    assert 1 <= point <= limit
    assert point == limit or point & (point - 1) == 0
    if 1 <= weight <= limit:
        assert weight / 2 < point < 2 * weight or point == weight


@given(WEIGHTS.filter(bool), LIMITS)
def test_the_mean_over_all_coins_is_the_weight(weight: int, limit: int) -> None:
    """Exactly: of 2^64 coins so many go up as make it right. Bisect for the first that does not."""
    low, high = 0, 1 << 64
    top = rounded(weight, limit, 0)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rounded(weight, limit, middle) == top else (low, middle)
    bottom = rounded(weight, limit, (1 << 64) - 1)
    mean = (top * low + bottom * ((1 << 64) - low)) / (1 << 64)
    assert mean == pytest.approx(min(weight, limit), rel=1e-12)


def test_rounds_and_runs_of_a_federation_have_the_same_rounded_weights() -> None:
    """Fresh rounding would average out, and a server could start as many runs as it likes."""
    app = training_app(lambda p, a, r: a, weight=lambda p: 11 + 7 * p)
    totals: list[Any] = []
    for _ in range(2):
        seen: list[Any] = []

        def note(contents: Any, key: str, seen: list[Any] = seen) -> Any:
            return seen.append(contents[0]["metrics"][key])

        inner = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=note)
        strategy = secagg(inner, max_weight=1 << 16)
        strategy.start(grid=LocalGrid(app, 6), initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=2)
        totals += seen
    assert len(totals) == 4
    assert len(set(totals)) == 1


def test_uniform_weights_weigh_all_alike() -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(p)}, weight=lambda p: 4**p)
    strategy = secagg(max_weight=0, clip=4.0)
    initial = model(w=np.zeros(8, np.float32))
    result = strategy.start(grid=LocalGrid(app, 4), initial_arrays=initial, num_rounds=1)
    np.testing.assert_allclose(values(result.arrays)["w"], 1.5, atol=1e-5)
