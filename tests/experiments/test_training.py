"""Training to a target with several seeds: what the comparison with the paper says of given runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments import publish
from experiments.common import training
from experiments.common.data import NO_DATA, NOTES, UNKNOWN, describe_data
from experiments.common.pictures import compare_training
from experiments.common.summaries import Seconds, Spread, crossing, one_more, paper_total, settings_of, training_for
from experiments.common.training import PAIRWISE, PAIRWISE_OBSERVED, SECAGG, SECAGG_UNSCALED, System, committee_of_ten
from sparsesecagg.errors import InvalidInput

PAPER = {"upload": "8×", "clock": "1.5× (N=100)"}


def run(system: System, seed: int, accuracy: list[float], **changes: Any) -> dict[str, Any]:
    """A run of 100 users with a model of 8,000 parameters that ends when it reaches 90 %."""
    reached = next((number for number, value in enumerate(accuracy, 1) if value >= 0.9), None)
    size = {"secagg": 32_000, "pairwise": 4_000, "committee": 1_000}[system.aggregator]
    return {
        "clients": 100,
        "seed": seed,
        "system": system.aggregator,
        "label": system.label,
        "lr": 0.01,
        "alpha": system.alpha,
        "normalisation": system.normalisation,
        "dim": 8_000,
        "rounds": len(accuracy),
        "reached_target_at": reached,
        "accuracy": accuracy,
        "uploads": [70] * len(accuracy),
        "total_upload_bytes": 70 * size * len(accuracy),
        "transfer_seconds": 2.0 * len(accuracy),
        "latency_seconds": 0.5 * len(accuracy),
        "latency_ms": 20.0,
        "bandwidth_mbit": 100.0,
        "anonymity": {"honest_contributors": 4.5, "revealed_fraction": {"none collude": 0.1, "a third colludes": 0.5}},
        **changes,
    }


@pytest.fixture
def result() -> dict[str, Any]:
    runs = [
        run(SECAGG, 0, [0.5, 0.8, 1.0]),
        run(PAIRWISE, 0, [0.5, 0.7, 0.8, 0.9]),
        run(SECAGG_UNSCALED, 0, [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        run(SECAGG, 1, [0.5, 0.9]),
        run(PAIRWISE, 1, [0.5, 0.9]),
        run(SECAGG_UNSCALED, 1, [0.5, 0.6, 0.8, 0.9]),
    ]
    seconds = {"training_seconds_per_round": 1.0, "client_seconds_per_round": 0.1, "server_seconds_per_round": 0.1}
    return {
        "configuration": {"training": {"target": 0.9}},
        "numbers": {"runs": runs},
        "timings": {"runs": [{"clients": 100, **seconds} for _ in runs]},
    }


def row(result: dict[str, Any], part: str) -> Any:
    (found,) = [one for one in compare_training(result, PAPER) if part in one.what]
    return found


def test_the_published_pattern_is_averaged_by_the_papers_rule_and_ours_is_a_labelled_ablation() -> None:
    assert PAIRWISE.normalisation == "expected"
    assert "ablation" not in PAIRWISE.label
    assert "(ablation)" in PAIRWISE_OBSERVED.label
    assert len({one.key for one in (SECAGG, SECAGG_UNSCALED, PAIRWISE, PAIRWISE_OBSERVED, committee_of_ten(50))}) == 5


def test_rounds_until_the_target_are_a_median_with_a_range_between_rounds(result: dict[str, Any]) -> None:
    assert crossing(result["numbers"]["runs"][0], 0.9) == pytest.approx(2.5)
    assert row(result, "N=100, SecAgg: rounds").ours == "2.2 (2.0 to 2.5)"
    assert "2 of 2 seeds" in row(result, "N=100, SecAgg: rounds").note


def test_ratios_are_taken_seed_by_seed_in_both_formats_apart(result: dict[str, Any]) -> None:
    ours, papers = (
        row(result, "our messages"),
        row(result, "32 bits, the paper's format: total upload less than SecAgg"),
    )
    assert (ours.paper, papers.paper) == ("–", "8×")
    assert ours.ours == "7.0× (6.0 to 8.0)"
    share = paper_total(result["numbers"]["runs"][1]) / (280 * 8_000 * 4)
    assert share == pytest.approx(0.0953 + 1 / 32, abs=1e-3)
    assert papers.ours == Spread.of([3 / 4 / share, 1 / share]).text(1, "×")  # type: ignore[union-attr]


def test_the_hypothesis_about_secagg_has_a_row_of_its_own(result: dict[str, Any]) -> None:
    share = paper_total(result["numbers"]["runs"][1]) / (280 * 8_000 * 4)
    found = row(result, "that of SecAgg without 1/(1−θ)")
    assert found.ours == Spread.of([6 / 4 / share, 4 / 2 / share]).text(1, "×")  # type: ignore[union-attr]
    assert "hypothesis" in found.note


def test_seconds_are_named_one_by_one_with_the_latency(result: dict[str, Any]) -> None:
    note = row(result, "wall-clock").note
    assert "training 4 s" in note
    assert "latency 2.0 s" in note
    assert "20 ms each way" in note


def test_the_training_time_at_which_a_claim_would_hold_is_found() -> None:
    mine, base = Seconds(4, 4.0, 1.0, 1.0, 0.0), Seconds(4, 4.0, 1.0, 7.0, 0.0)
    needed = training_for(1.5, mine, base)
    assert needed is not None
    assert (8 + 4 * needed) / (2 + 4 * needed) == pytest.approx(1.5)
    assert training_for(5.0, mine, base) is None


def test_a_target_that_was_not_reached_is_said_to_be() -> None:
    one = run(SECAGG, 0, [0.5, 0.6])
    (setting,) = settings_of([one])
    assert setting.crossings(0.9) is None
    assert setting.pairs == []


def test_figures_5_and_6_ask_for_five_seeds_of_four_cohorts() -> None:
    from experiments.fig5 import SCALES as FIG5
    from experiments.fig6 import SCALES as FIG6

    for scales in (FIG5, FIG6):
        cohorts = scales["default"].training.cohorts
        assert [(one.clients, one.seeds) for one in cohorts] == [(25, 5), (50, 5), (75, 5), (100, 5)]


def test_data_is_named_with_its_hash_and_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_data((), None) == NO_DATA
    found = describe_data(("digits",), None)
    assert found["note"] == NOTES[found["sha256"]]
    monkeypatch.setattr("experiments.common.data.NOTES", {})
    assert describe_data(("digits",), None)["note"] == UNKNOWN


def test_results_from_a_tree_with_changes_are_not_published() -> None:
    with pytest.raises(InvalidInput, match="clean"):
        publish.require_repeatable({"name": "fig5", "seeds": [0], "commit": "abc1234+"})
    publish.require_repeatable({"name": "fig5", "seeds": [0], "commit": "abc1234"})


def test_every_seed_trains_every_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from experiments.common.work import Work

    cohort = training.CohortRuns(10, (SECAGG, System("committee", 0.5, 8, committee_size=5)), seeds=2)
    found = training.train_all(
        training.Training("digits", (cohort,), target=None, rounds=1, dropout=0.1), 7, Work(tmp_path / "work", {})
    )
    assert [(one["seed"], one["system"]) for one in found.numbers["runs"]] == [
        (7, "secagg"),
        (7, "committee"),
        (8, "secagg"),
        (8, "committee"),
    ]
    assert found.numbers["runs"][0]["accuracy"] != found.numbers["runs"][2]["accuracy"]


def test_one_more_seed_is_expected_within_students_interval() -> None:
    assert one_more([6.0, 7.0]) is None, "two say nothing about a third"
    assert one_more([6.0, 7.0, 8.0, 9.0, 10.0]) == pytest.approx((8 - 4.809, 8 + 4.809), abs=0.001)
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(400):
        *seeds, further = rng.normal(10, 2, 6)
        low, high = one_more(seeds) or (0.0, 0.0)
        outside += not low <= further <= high
    assert 5 <= outside <= 40, "one in twenty"
