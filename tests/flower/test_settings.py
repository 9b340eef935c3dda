"""What `SecAgg` is told is checked when it is told."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, Silent, model, secagg, stage_of, training_app
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import SecAgg
from sparsesecagg.protocol import RoundOptions


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": "much"}, "alpha"),
        ({"pattern": "slized"}, "pattern"),
        ({"modulus_bits": 33}, "modulus_bits"),
        ({"max_weight": -1}, "max_weight"),
        ({"pattern": "pairwise", "max_weight": 10}, "max_weight"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"clip": 1e40}, "clip"),
        ({"threshold": 1}, "threshold"),
        ({"neighbours": 1}, "neighbours"),
        ({"group_size": 2}, "group_size"),
        ({"dropout": 0.9}, "dropout"),
    ],
    ids=str,
)
def test_an_option_that_can_not_work_is_refused_by_name_at_construction(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecAgg(FedAvg(), RoundOptions(**settings))
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"metrics": {"loss": 0.0}}, "metrics"),
        ({"metrics": {"loss": "ten"}}, "metrics"),
        ({"gain": 0.5}, "gain"),
        ({"gain": "much"}, "gain"),
        ({"gain": float("inf")}, "gain"),
        ({"gain": True}, "gain"),
        ({"options": {"alpha": 0.1}}, "options"),
        ({"options": {}}, "options"),
        ({"dp": 8}, "dp"),
        ({"roster": 5}, "roster"),
        ({"over": "groups", "groups": "3"}, "groups"),
        ({"over": "groups", "groups": None}, "groups"),
        ({"run_dir": __file__}, "run_dir"),
    ],
    ids=str,
)
def test_so_is_a_setting_of_the_strategy(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecAgg(FedAvg(), **settings)
    assert caught.value.option == option


def test_the_bits_of_steps_are_refused_where_they_can_not_work_or_come_too_late() -> None:
    strategy = SecAgg(FedAvg())
    with pytest.raises(InvalidInput, match="must be 2, 4 or 8, or 32 for whole models, got 5"):
        strategy.downlink_bits = 5
    assert strategy.downlink_bits == 4
    strategy.aggregate_train(1, [])
    with pytest.raises(InvalidInput, match="before the first round"):
        strategy.downlink_bits = 8


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 0.01},
        {"pattern": "full", "neighbours": 30},
        {"pattern": "pairwise", "alpha": 0.1},
        {"modulus_bits": 8},
        {"threshold": 40},
        {"alpha": 0.02, "group_size": 60},
    ],
    ids=str,
)
def test_an_option_that_works_for_some_cohort_is_taken(settings: dict[str, Any]) -> None:
    SecAgg(FedAvg(), RoundOptions(**settings))


def test_a_strategy_has_at_most_ten_parameters() -> None:
    assert len(signature(SecAgg).parameters) <= 10


def test_a_threshold_that_does_not_fit_the_cohort_stops_the_first_round() -> None:
    strategy = secagg(threshold=40)
    with pytest.raises(InvalidInput, match="threshold must be from 3 to 5"):
        strategy.start(
            grid=LocalGrid(training_app(lambda p, a, r: a), 5), initial_arrays=model(w=np.zeros(9, np.float32))
        )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pattern": "pairwise", "alpha": 0.5, "max_weight": 0}, "reveals many single values to the server"),
        ({"alpha": 0.3}, "10 nodes in one group, alpha 0.3 in words of 32 bits"),
        ({"max_weight": 0}, "all nodes weigh the same"),
        ({}, "every sum holds 6 honest nodes or more against a semi-honest server that 1 node helps"),
        ({"group_size": 5}, "10 nodes in 2 groups of 5 or more"),
    ],
    ids=str,
)
def test_what_the_options_come_to_is_said_once(settings: dict[str, Any], sentence: str, caplog: Any) -> None:
    grid = LocalGrid(
        training_app(lambda p, a, r: a), 10, node_config=lambda index: {"secagg-patterns": "sliced,pairwise"}
    )
    secagg(**settings).start(grid=grid, initial_arrays=model(w=np.zeros(90, np.float32)), num_rounds=2)
    assert caplog.text.count(sentence) == 1


def test_uploads_wait_as_long_as_each_start_is_told() -> None:
    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "UPLOAD":
            raise Silent

    strategy = secagg(threshold=3)
    for seconds in (1.5, 0.3):
        grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1, timeout=seconds)
    first, second = (record.by_stage("seconds")["UPLOAD"] for record in strategy.history)
    assert first >= 1.5 > second >= 0.3


def test_a_stage_waits_as_long_as_it_is_told_and_no_longer() -> None:
    import time

    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "SHARE_KEYS":
            raise Silent

    strategy = secagg(timeout=0.5, threshold=3)
    grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
    start = time.monotonic()
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1)
    assert 0.5 <= strategy.history[0].by_stage("seconds")["SHARE_KEYS"] < 2
    assert time.monotonic() - start < 20
