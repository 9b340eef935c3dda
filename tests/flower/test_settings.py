"""What `SecAgg` is told is checked when it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, Silent, model, stage_of, training_app
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import SecAgg


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": "much"}, "alpha"),
        ({"pattern": "comittee"}, "pattern"),
        ({"modulus_bits": 33, "max_weight": 0}, "modulus_bits"),
        ({"modulus_bits": 16}, "max_weight"),
        ({"max_weight": -1}, "max_weight"),
        ({"pattern": "pairwise", "max_weight": 10}, "max_weight"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"min_survivors": 0}, "min_survivors"),
        ({"threshold": 1}, "threshold"),
        ({"neighbours": 1, "pattern": "full"}, "neighbours"),
        ({"neighbours": 10}, "neighbours"),
        ({"committee_size": 2}, "committee_size"),
        ({"committee_size": 5, "pod_size": 4}, "pod_size"),
        ({"min_updated": 1.5}, "min_updated"),
        ({"dropout": 0.9}, "dropout"),
        ({"timeout": 0}, "timeouts"),
        ({"timeout": float("inf")}, "timeouts"),
        ({"timeouts": {"LUNCH": 5.0}}, "timeouts"),
        ({"timeouts": {"UPLOAD": -5.0}}, "timeouts"),
        ({"metrics": {"loss": 0.0}}, "metrics"),
        ({"metrics": {"loss": "ten"}}, "metrics"),
    ],
    ids=str,
)
def test_a_setting_that_can_not_work_is_refused_by_name_at_construction(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SecAgg(FedAvg(), **settings)
    assert caught.value.option == option


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 0.01},
        {"alpha": 0.1, "min_survivors": 8},
        {"pattern": "full", "neighbours": 30},
        {"pattern": "pairwise", "alpha": 0.1},
        {"modulus_bits": 8, "max_weight": 0},
        {"threshold": 40},
        {"timeouts": {"UPLOAD": 5, "SHARE_KEYS": 1.5}},
        {"alpha": 0.02, "committee_size": 20, "pod_size": 60},
    ],
    ids=str,
)
def test_a_setting_that_works_for_some_cohort_is_taken(settings: dict[str, Any]) -> None:
    SecAgg(FedAvg(), **settings)


def test_a_threshold_that_does_not_fit_the_cohort_stops_the_first_round() -> None:
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), threshold=40)
    with pytest.raises(InvalidInput, match="threshold must be from 3 to 5"):
        strategy.start(
            grid=LocalGrid(training_app(lambda p, a, r: a), 5), initial_arrays=model(w=np.zeros(9, np.float32))
        )


def test_weights_far_below_the_limit_are_warned_of_when_short_words_suffer(caplog: Any) -> None:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.001)}, weight=lambda p: 4)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), modulus_bits=12, max_weight=30_000)
    strategy.start(grid=LocalGrid(app, 4), initial_arrays=model(w=np.zeros(90, np.float32)), num_rounds=1)
    assert "max_weight is 7500 times the mean weight" in caplog.text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pattern": "pairwise", "alpha": 0.5}, "reveals many single values to the server"),
        ({"alpha": 0.3}, "committees of 3 hide a user among few others: committee_size=8 makes them larger"),
        ({"alpha": 0.45}, "alpha is 0.5 instead of 0.45"),
        ({"alpha": 0.7}, "alpha 0.7 rounds to one committee that sends everything"),
        ({"alpha": 0.3}, "alpha 0.3 was asked for, 0.333 is used: 10 users in 1 pod(s) and 3 committee(s) of 3 to 4"),
    ],
    ids=str,
)
def test_settings_that_protect_little_are_commented_on_once(
    settings: dict[str, Any], sentence: str, caplog: Any
) -> None:
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), **settings)
    grid = LocalGrid(training_app(lambda p, a, r: a), 10)
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros(90, np.float32)), num_rounds=2)
    assert caplog.text.count(sentence) == 1


def test_uploads_wait_as_long_as_each_start_is_told() -> None:
    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "UPLOAD":
            raise Silent

    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), poll_seconds=0.02)
    for seconds in (1.5, 0.3):
        grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1, timeout=seconds)
        strategy._courier._outstanding.clear()  # Another grid, other nodes.
    first, second = (record.total("seconds")["UPLOAD"] for record in strategy.history)
    assert first >= 1.5 > second >= 0.3


def test_a_stage_waits_as_long_as_it_is_told_and_no_longer() -> None:
    import time

    def stuck(node: int, message: Any) -> None:
        if node == 101 and stage_of(message) == "SHARE_KEYS":
            raise Silent

    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), timeout=60, timeouts={"SHARE_KEYS": 0.5}, poll_seconds=0.02)
    grid = LocalGrid(training_app(lambda p, a, r: a), 5, before=stuck)
    start = time.monotonic()
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros(9, np.float32)), num_rounds=1)
    assert 0.5 <= strategy.history[0].total("seconds")["SHARE_KEYS"] < 2
    assert time.monotonic() - start < 20
