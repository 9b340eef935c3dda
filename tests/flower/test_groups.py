"""`over="groups"`: strategies that compare replies get one per group, and a few malicious nodes can't spoil them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Bulyan, FedAvg, FedMedian, FedTrimmedAvg, Krum, MultiKrum

from flower.enrolment import enrol_users
from flower.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import RoundOptions, SecAgg

DIM, NODES, GROUPS = 60, 27, 9
INNER: dict[str, Any] = {"fraction_evaluate": 0.0}
RULES = [
    FedMedian(**INNER),
    FedTrimmedAvg(beta=0.3, **INNER),
    Krum(num_malicious_nodes=2, **INNER),
    MultiKrum(num_malicious_nodes=2, num_nodes_to_select=4, **INNER),
    Bulyan(num_malicious_nodes=1, **INNER),
]


def wrapped(inner: Any, **settings: Any) -> SecAgg:
    settings = {"over": "groups", "groups": GROUPS, **settings}
    options = RoundOptions(alpha=0.5, clip=600.0, modulus_bits=32)  # So wide that bad nodes need not lie about it.
    strategy = SecAgg(inner, options, gain=1, timeout=0.3, **settings)
    strategy.downlink_bits = 32
    return strategy


def trained(secagg: SecAgg, bad: int, rounds: int = 2) -> float:
    """Return where the model is after rounds in which honest nodes move it by 1 and the first `bad` ones by −500."""
    first = {"w": np.zeros(DIM, np.float32)}

    def shift(partition: int, arrays: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        step = -500.0 if partition < bad else 1.0 + 0.01 * partition / NODES
        return {"w": arrays["w"] + np.float32(step)}

    result = secagg.start(LocalGrid(training_app(shift), NODES), model(**first), num_rounds=rounds)
    assert all(record.failure is None for record in secagg.history)
    return float(np.median(values(result.arrays)["w"]))


@pytest.mark.parametrize("inner", RULES, ids=lambda rule: type(rule).__name__)
def test_rules_that_compare_replies_get_one_per_group_and_stand_two_bad_nodes(inner: Any) -> None:
    with pytest.raises(InvalidInput, match=f"can't be {type(inner).__name__}: it compares single .*over='groups'"):
        SecAgg(inner)
    assert 0.8 < trained(wrapped(inner), bad=2) < 1.2  # Each coordinate is sent in one of two rounds.


def test_a_node_that_leaves_costs_its_group_and_not_the_run() -> None:
    """Eight nodes can't be cut into groups of three, but nine hold keys, and two groups go on."""
    nodes = LocalGrid(training_app(lambda partition, arrays, number: {"w": arrays["w"] + np.float32(1)}), 9)

    def leave(node: int, message: Message) -> None:
        if secagg.history[-1].number == 2:
            nodes.online.discard(108)

    nodes.before = leave
    secagg = wrapped(FedMedian(**INNER), groups=3)
    secagg.start(nodes, model(w=np.zeros(DIM, np.float32)), num_rounds=4, timeout=0.3)
    assert [record.failure for record in secagg.history] == [None] * 4
    assert [record.survivors for record in secagg.history][2:] == [6, 6]


def test_the_mean_over_groups_is_spoilt_and_centred_clipping_is_not() -> None:
    assert trained(wrapped(FedAvg(**INNER)), bad=2) < 0
    assert 0.5 < trained(wrapped(FedAvg(**INNER), over="clipped-groups"), bad=2) < 1.2


def test_the_strategy_sees_a_reply_of_each_group_with_its_users() -> None:
    seen: list[tuple[int, float]] = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
            replies = list(replies)
            seen.extend((_weight(reply), len(replies)) for reply in replies)
            return super().aggregate_train(server_round, replies)

    trained(wrapped(Watching(**INNER)), bad=0, rounds=1)
    assert seen == [(3, GROUPS)] * GROUPS


def _weight(reply: Message) -> int:
    found = next(iter(reply.content.metric_records.values()))["num-examples"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"over": "committees"}, "over must be one of nodes, groups, clipped-groups, got 'committees'"),
        ({"over": "nodes"}, "groups must not be given with over='nodes'"),
        ({"groups": 2}, "groups must be 3 or more with over='groups', got 2"),
        ({"groups": None}, "groups must be 3 or more with over='groups', got None"),
    ],
)
def test_what_can_not_be_compared_is_refused_at_once(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        wrapped(FedAvg(), **settings)


def test_groups_that_do_not_fit_the_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="groups must cut 27 nodes evenly into groups of 3 or more, got 10"):
        trained(wrapped(FedAvg(**INNER), groups=10), bad=0)
    roster = enrol_users(tmp_path, 12).roster
    with pytest.raises(InvalidInput, match="groups must cut 12 nodes"):
        trained(wrapped(FedAvg(**INNER), groups=4, roster=roster), bad=0)


def test_nodes_that_join_may_change_how_many_coordinates_are_clipped() -> None:
    """More nodes, another α and other arrays sent whole: what was last clipped does not fit, and is forgotten."""
    nodes = LocalGrid(training_app(lambda partition, arrays, number: {k: a + 0.5 for k, a in arrays.items()}), 60)
    late = sorted(nodes.online)[45:]
    nodes.online -= set(late)

    def join(node: int, message: Message) -> None:
        if secagg.history[-1].number == 2:
            nodes.online.update(late)

    nodes.before = join
    secagg = SecAgg(FedAvg(**INNER), RoundOptions(alpha=0.3), over="clipped-groups", groups=3, timeout=1)
    sizes: dict[str, Any] = {"w": (50, 100), "b": 500, "c": 200}
    start = model(**{name: np.zeros(size, np.float32) for name, size in sizes.items()})
    secagg.start(nodes, start, num_rounds=3)
    assert [(record.failure, record.survivors) for record in secagg.history] == [(None, 45), (None, 45), (None, 60)]
