"""Differential privacy in Flower: nodes add the noise and keep their own budgets, the server counts and stops."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAvg
from flwr.supercore import privacy_accounting

from flower.local_grid import LocalGrid, content_of, model, stage_of, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import DifferentialPrivacy, RoundOptions, SecAgg, secagg_mod
from sparsesecagg.flower.errors import RefusedByAll
from sparsesecagg.flower.node import Owner
from sparsesecagg.protocol import Policy
from sparsesecagg.protocol.sqlite_ledger import SqliteLedger

DIM, NODES = 400, 10
DP = DifferentialPrivacy(epsilon=2.0, rounds=3, clip=1.0)


def towards_one(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + np.float32(1 / np.sqrt(DIM))}


def strategy(dp: DifferentialPrivacy | None = DP, **settings: Any) -> SecAgg:
    # FedAvg evaluates on the nodes by default; dp has to switch that off.
    settings = {"options": RoundOptions(alpha=0.5), "timeout": 0.3, **settings}
    secagg = SecAgg(FedAvg(), dp=dp, **settings)
    secagg.downlink_bits = 32
    return secagg


def grid(app: ClientApp | None = None, **node_config: Any) -> LocalGrid:
    config = {name.replace("_", "-"): value for name, value in node_config.items()}
    return LocalGrid(app or training_app(towards_one), NODES, node_config=lambda index: config)


def start(secagg: SecAgg, nodes: LocalGrid, rounds: int) -> Any:
    return secagg.start(nodes, model(w=np.zeros(DIM, np.float32)), num_rounds=rounds)


class Killed(BaseException):
    """The end of a process."""


def test_uploads_of_a_first_round_that_nobody_opened_are_counted_after_a_restart(tmp_path: Path) -> None:
    """The server dies in round 1 twice, so that of three rounds only one is left."""
    nodes = grid()

    def end(node: int, reply: Message) -> list[Message]:
        if stage_of(reply) == "UPLOAD" and node == 100 + NODES - 1:
            raise Killed
        return [reply]

    for number in (1, 2):
        nodes.after = end
        secagg = strategy(run_dir=tmp_path)
        with pytest.raises(Killed):
            start(secagg, nodes, 3)
        spent = secagg.privacy_spent()
        assert spent is not None
        assert spent.num_releases == number
    nodes.after = None
    with pytest.raises(PrivacyBudgetExhausted):
        start(strategy(run_dir=tmp_path), nodes, 3)
    assert len([node for node, message in nodes.sent if node == 100 and stage_of(message) == "UPLOAD"]) == 3


@pytest.mark.parametrize("rho", ["null", "-1.0", "1e999", '"x"'])
def test_a_damaged_count_is_refused(tmp_path: Path, rho: str) -> None:
    (tmp_path / "privacy.json").write_text(f'{{"num_releases": 1, "rho": {rho}, "xi": 0.0}}')
    (tmp_path / "run.state").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"run_dir must hold the privacy\.json of the run that it resumes"):
        start(strategy(run_dir=tmp_path), grid(), 1)


def test_rounds_have_the_planned_noise_and_the_cost_is_told_in_flowers_words(tmp_path: Path) -> None:
    secagg = strategy(run_dir=tmp_path, gain=1)
    result = start(secagg, grid(), 3)
    spent = secagg.privacy_spent()
    assert spent is not None
    assert set(vars(spent)) == set(privacy_accounting.PrivacySpent.__dataclass_fields__)
    assert (spent.num_releases, spent.delta, spent.accounting_method) == (3, 1e-5, "rdp")
    assert 1.98 < spent.epsilon <= 2
    assert [record.epsilon for record in secagg.history] == sorted(record.epsilon or 0 for record in secagg.history)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["epsilon"] == result.train_metrics_clientapp[3]["secagg-epsilon"] == spent.epsilon
    # Each half of the model was moved once or twice by 1/√d, with noise of deviation z·C√α·√(n/H)/n per coordinate.
    params = secagg._run.params if secagg._run else None
    assert params is not None and params.mechanism is not None
    mechanism = params.mechanism
    each = np.sqrt(10 / params.threshold * mechanism.variance) / mechanism.scale / 10
    moved = values(result.arrays)["w"] - 1.5 / np.sqrt(DIM)
    assert 0.8 < moved.std() / (each * np.sqrt(1.5)) < 1.25
    assert not result.evaluate_metrics_clientapp, "federated evaluation would tell what noise hides"


def test_the_run_ends_before_the_round_that_would_exceed() -> None:
    secagg, nodes = strategy(), grid()
    with pytest.raises(PrivacyBudgetExhausted, match=r"3 rounds have spent epsilon 2 at delta 1e-05 .*above 2"):
        start(secagg, nodes, 5)
    assert secagg.privacy_spent().num_releases == 3  # type: ignore[union-attr]
    assert max(content_of(message)["secagg"]["round"] for _, message in nodes.sent) == 3
    assert np.abs(values(secagg.arrays)["w"]).max() > 0, "the model of the rounds so far is still there"


def test_a_server_that_is_started_again_counts_on(tmp_path: Path) -> None:
    first = strategy(run_dir=tmp_path)
    first.start(grid(), model(w=np.zeros(DIM, np.float32)), num_rounds=0)
    nodes = grid()

    def crash(number: int, arrays: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strategy(run_dir=tmp_path).start(nodes, model(w=np.zeros(DIM, np.float32)), num_rounds=3, evaluate_fn=crash)
    again = strategy(run_dir=tmp_path)
    with pytest.raises(PrivacyBudgetExhausted, match="3 rounds have spent"):
        start(again, nodes, 4)
    (tmp_path / "privacy.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"run_dir must hold the privacy.json"):
        start(strategy(run_dir=tmp_path), nodes, 4)


class TestNode:
    """`secagg-max-epsilon`, `secagg-delta`, `secagg-clip`: whatever the server says."""

    def test_the_owner_states_a_budget(self) -> None:
        nodes = grid(secagg_max_epsilon=2, secagg_delta=1e-6, secagg_clip=0.5)
        assert Owner(nodes.contexts[100]).policy == Policy(max_epsilon=2.0, delta=1e-6, clip_norm=0.5)
        assert not Owner(nodes.contexts[100]).evaluates

    @pytest.mark.parametrize(
        ("config", "problem"),
        [
            ({"secagg_max_epsilon": 0}, "secagg-max-epsilon must be above 0 and at most 25, got 0"),
            ({"secagg_max_epsilon": float("nan")}, "secagg-max-epsilon must be above 0 and at most 25, got nan"),
            ({"secagg_clip": 1.0}, "secagg-clip must be given together with secagg-max-epsilon"),
            ({"secagg_delta": 1e-5}, "secagg-delta must be given together with secagg-max-epsilon"),
            ({"secagg_max_epsilon": 1, "secagg_delta": 1.5}, r"secagg-delta must be in \(0, 1\), got 1.5"),
            ({"secagg_max_epsilon": 1, "secagg_evaluate": True}, "must not be given with secagg-evaluate"),
            ({"secagg_max_epsilon": 1, "secagg_metrics": "loss"}, "must not be given with .* secagg-metrics"),
        ],
    )
    def test_a_budget_that_could_not_hold_is_refused(self, config: dict[str, Any], problem: str) -> None:
        with pytest.raises(InvalidInput, match=problem):
            Owner(grid(**config).contexts[100])

    @pytest.mark.parametrize(
        ("config", "dp", "reason"),
        [
            ({"secagg_max_epsilon": 2}, None, "the run adds no noise"),
            ({"secagg_max_epsilon": 2, "secagg_clip": 0.5}, DP, "clips to a norm of 1, the policy allows 0.5"),
            ({"secagg_max_epsilon": 2, "secagg_delta": 0.2}, DP, "delta must be below one over them"),
            ({"secagg_max_epsilon": 2, "secagg_min_anonymity": 9}, DP, "the policy demands 9"),
        ],
    )
    def test_a_run_with_less_noise_a_larger_clip_or_fewer_honest_users_is_refused(
        self, config: dict[str, Any], dp: DifferentialPrivacy | None, reason: str
    ) -> None:
        nodes = grid(**config)
        secagg = strategy(dp)
        with pytest.raises(RefusedByAll):
            start(secagg, nodes, 2)
        assert secagg.history[0].failure
        assert any(reason in refusal for refusal in secagg.history[0].refusals.values())
        assert not _uploads(nodes)

    def test_nodes_answer_until_their_budget_and_no_further_whatever_is_copied_or_started_again(self) -> None:
        """The server would go on for 30 rounds; its noise is for ε = 6, of which the nodes allow 2."""
        generous = DifferentialPrivacy(epsilon=6.0, rounds=30)
        nodes = grid(secagg_max_epsilon=2)
        before = copy.deepcopy(nodes.contexts)
        with pytest.raises(PrivacyBudgetExhausted, match=r"10 nodes have spent their own .*, 2 is allowed"):
            start(secagg := strategy(generous), nodes, 30)
        answered = secagg.privacy_spent().num_releases - 1  # type: ignore[union-attr]
        assert 2 <= answered < 10
        assert _uploads(nodes) == answered * NODES
        # A run of its own, as after a restart, and contexts as they were before the first one.
        for contexts in (nodes.contexts, before):
            fresh = grid(secagg_max_epsilon=2)
            fresh.contexts = contexts
            with pytest.raises(PrivacyBudgetExhausted, match="own privacy budgets"):
                start(strategy(generous), fresh, 3)
            assert not _uploads(fresh)
        # Control: nodes with a ledger of another's name, and so with a budget of their own, do answer.
        others = LocalGrid(
            training_app(towards_one),
            NODES,
            node_config=lambda index: {"partition-id": 50 + index, "secagg-max-epsilon": 2},
        )
        start(secagg := strategy(generous), others, 1)
        assert secagg.history[0].failure is None

    def test_what_an_upload_cost_is_what_the_ledger_says(self, ledger: Path) -> None:
        start(secagg := strategy(), grid(secagg_max_epsilon=2), 2)
        assert secagg._run is not None
        params = secagg._run.params
        assert params.mechanism is not None
        for index in range(NODES):
            with SqliteLedger(ledger / f"node-{index}", params.run, index) as file:
                assert file.spent() == params.mechanism.cost.times(2)

    def test_a_server_that_scales_updates_is_refused(self) -> None:
        """Or it could widen the clip that the owner allows: what counts is the norm after scaling."""

        def widen(node: int, message: Message) -> None:
            if stage_of(message) == "UPLOAD":
                content_of(message)["secagg"]["scales"] = [1000.0]

        nodes = grid(secagg_max_epsilon=2, secagg_clip=1.0)
        nodes.before = widen
        secagg = strategy()
        with pytest.raises(RefusedByAll):
            start(secagg, nodes, 2)
        assert all("without scales and metrics" in reason for reason in secagg.history[0].refusals.values())

    def test_evaluation_is_refused(self) -> None:
        app = ClientApp()

        @app.evaluate(mods=[secagg_mod])
        def evaluate(message: Message, context: Any) -> Message:
            return Message(RecordDict(), reply_to=message)

        nodes = grid(app, secagg_max_epsilon=2)
        replies = list(nodes.send_and_receive([Message(RecordDict(), 100, "evaluate")]))
        assert "does not evaluate" in str(replies[0].error.reason)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dp": DifferentialPrivacy(0.0, 3)}, "epsilon must be above 0 and at most 25, got 0"),
        ({"dp": DifferentialPrivacy(float("nan"), 3)}, "epsilon must be above 0 and at most 25, got nan"),
        ({"dp": DifferentialPrivacy(1.0, 0)}, "rounds must be at least 1, got 0"),
        ({"dp": DifferentialPrivacy(1.0, 3, delta=0.5)}, "delta must be above .* and below 1/3"),
        ({"dp": DifferentialPrivacy(1.0, 3, clip=0.0)}, "clip must be above 0 and at most 1e30, got 0"),
        ({"options": RoundOptions(max_weight=10)}, "max_weight must be 0 with noise"),
        ({"options": RoundOptions(modulus_bits=8)}, "modulus_bits must be [0-9]+ or more for the noise"),
        ({"options": RoundOptions(neighbours=4)}, "pattern must open one sum per group with noise"),
        ({"options": RoundOptions(clip=0.1)}, "clip must not be given with dp"),
        ({"options": RoundOptions(clip_norm=0.1, noise_multiplier=1.0)}, "clip_norm must not be given here: use dp"),
        ({"metrics": {"loss": 1.0}}, "metrics must not be given with dp"),
    ],
)
def test_what_noise_can_not_go_with_is_refused_in_a_sentence(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        strategy(**settings)


def test_an_update_that_is_not_a_number_is_noise_like_any_other() -> None:
    def broken(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + np.float32(np.nan if partition == 3 else 0.0)}

    result = start(strategy(), grid(training_app(broken)), 1)
    assert np.isfinite(values(result.arrays)["w"]).all()


def _uploads(nodes: LocalGrid) -> int:
    """Return how many nodes have sent words of theirs."""
    contents = [content_of(reply) for _, reply in nodes.replied if reply.has_content()]
    controls = [content["secagg"] for content in contents if "secagg" in content]
    return sum(control["stage"] == "UPLOAD" and "payload" in control for control in controls)
