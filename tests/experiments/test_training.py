"""Training to a target with several seeds, under the paper's conditions."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import publish
from experiments.common import training
from experiments.common.data import NO_DATA, NOTES, UNKNOWN, describe_data
from experiments.common.pictures import compare
from experiments.common.summaries import Spread, crossing, one_more, paper_total, settings_of
from experiments.common.training import PAIRWISE, PAIRWISE_OBSERVED, SECAGG, SLICED, System, sliced_short
from experiments.common.work import Work
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import FederatedRun, Task


def run(system: System, seed: int, accuracy: list[float]) -> dict[str, Any]:
    """A run of 100 users with a model of 8,000 parameters that ends when it reaches 90 %."""
    reached = next((number for number, value in enumerate(accuracy, 1) if value >= 0.9), None)
    size = {"secagg": 32_000, "pairwise": 4_000, "sliced": 3_200}[system.aggregator]
    numbers = {
        "clients": 100,
        "seed": seed,
        "system": system.aggregator,
        "label": system.label,
        "lr": 0.01,
        "alpha": system.alpha,
        "modulus_bits": system.modulus_bits,
        "normalisation": system.normalisation,
        "dim": 8_000,
        "rounds": len(accuracy),
        "reached_target_at": reached,
        "accuracy": accuracy,
        "uploads": [70] * len(accuracy),
        "effective_dropout": 0.3,
        "total_upload_bytes": 70 * size * len(accuracy),
    }
    return numbers | {"anonymity": training.anonymity(numbers, 0.3)}


@pytest.fixture
def result() -> dict[str, Any]:
    runs = [
        run(SECAGG, 0, [0.5, 0.8, 1.0]),
        run(PAIRWISE, 0, [0.5, 0.7, 0.8, 0.9]),
        run(SECAGG, 1, [0.5, 0.9]),
        run(PAIRWISE, 1, [0.5, 0.9]),
        run(SLICED, 1, [0.5, 0.9]),
    ]
    return {"configuration": {"training": {"target": 0.9}}, "numbers": {"runs": runs}}


def row(result: dict[str, Any], part: str) -> Any:
    (found,) = [one for one in compare(result, 8.0) if part in one.what]
    return found


def test_only_the_papers_rule_and_alpha_count_as_published() -> None:
    systems = (
        SECAGG,
        PAIRWISE,
        PAIRWISE_OBSERVED,
        SLICED,
        sliced_short(25),
        sliced_short(100),
        System("pairwise", 0.05, 32, None, "expected"),
    )
    settings = settings_of([run(one, 0, [0.9]) for one in systems])
    assert [one.label for one in settings if one.published] == [PAIRWISE.label]
    assert len({one.key for one in systems}) == len(systems)


def test_runs_with_other_learning_rates_are_other_settings() -> None:
    """McMahan's network is trained with two: no run is compared with a SecAgg of the other rate."""
    slow = [run(SECAGG, 0, [0.5, 0.6, 0.7, 0.8, 0.9]), run(PAIRWISE, 0, [0.5, 0.7, 0.8, 0.9])]
    fast = [one | {"lr": 0.05} for one in (run(SECAGG, 0, [0.9]), run(PAIRWISE, 0, [0.5, 0.9]))]
    found = [one for one in settings_of([*slow, *fast]) if one.published]
    assert [one.rounds_until(0.9) for one in found] == [[4.0], [2.0]]
    assert [base["reached_target_at"] for one in found for _, base in one.pairs] == [5, 1]


def test_rounds_until_the_target_are_a_median_with_a_range_between_rounds(result: dict[str, Any]) -> None:
    assert crossing(result["numbers"]["runs"][0], 0.9) == pytest.approx(2.5)
    found = row(result, "SecAgg, learning rate 0.01: rounds")
    assert found.ours == "2.2 (2.0 to 2.5)"
    assert "2 of 2 seeds" in found.note


def test_ratios_are_taken_seed_by_seed_in_both_formats_apart(result: dict[str, Any]) -> None:
    (ours,) = [one for one in compare(result, 8.0) if one.what.startswith("N=100, pairwise") and "our mess" in one.what]
    papers = row(result, "paper's format")
    assert (ours.paper, papers.paper) == ("–", "8×")
    assert ours.ours == "7.0× (6.0 to 8.0)"
    share = paper_total(result["numbers"]["runs"][1]) / (280 * 8_000 * 4)
    assert share == pytest.approx(0.0952 + 1 / 32, abs=1e-4)
    expected = Spread.of([3 / 4 / share, 1 / share])
    assert expected is not None
    assert papers.ours == expected.text(1, "×")


def test_what_each_system_hides_stands_beside_its_bytes(result: dict[str, Any]) -> None:
    """A third of 100 users colluding: 67 honest ones, of whom 70 % stay; ours opens with 51 survivors or more."""
    hides = {one["system"]: one["anonymity"] for one in result["numbers"]["runs"]}
    assert hides["pairwise"]["honest_contributors"] == pytest.approx(0.0952 * 46.9, abs=0.01)
    assert hides["pairwise"]["revealed_fraction"] == pytest.approx(0.521, abs=0.001)
    assert hides["sliced"]["honest_contributors"] == pytest.approx(46.9)
    assert (hides["sliced"]["in_every_sum"], hides["sliced"]["revealed_fraction"]) == (18, 0)


def test_a_target_that_was_not_reached_is_said_to_be() -> None:
    one = run(SECAGG, 0, [0.5, 0.6])
    (setting,) = settings_of([one])
    assert setting.rounds_until(0.9) == []
    assert setting.pairs == []


def test_runs_until_another_accuracy_are_another_setting() -> None:
    """Rounds are counted to a run's own target, and compared with those of SecAgg to the same one."""
    further = replace(SECAGG, target=0.95)
    runs = [
        run(further, 0, [0.5, 0.7, 0.9, 0.92]) | {"target": 0.95, "reached_target_at": None},
        run(SECAGG, 0, [0.5, 0.9]) | {"target": 0.9},
        run(PAIRWISE, 0, [0.5, 0.8, 0.9]) | {"target": 0.9},
    ]
    result = {"configuration": {"training": {"target": 0.95}}, "numbers": {"runs": runs}}
    first, _, published = settings_of(runs)
    assert (first.label, first.pairs) == ("SecAgg, until 95%", [])
    assert published.bases == (runs[1],)
    assert row(result, "SecAgg, learning rate 0.01: rounds until 90%").ours == "2.0"
    assert row(result, "SecAgg, until 95%").ours == "not reached in 4 (92.0%)"


@pytest.mark.parametrize("name", ["fig3", "fig5", "fig6"])
def test_conditions_are_the_papers(name: str) -> None:
    """Learning rate 0.01, dropouts at UPLOAD only, a majority as threshold, whole models down."""
    from experiments.common.experiment import load

    setting = load(name).configurations["default"].training
    for cohort in setting.cohorts:
        for system in cohort.systems:
            options = setting.options(cohort, system, 0)
            assert (options.lr, options.epochs, options.batch, options.momentum) == (0.01, 5, 28, 0.5)
            assert (options.options.dropout, options.drop_at, options.keys_arrive) == (0.3, "UPLOAD", True)
            assert options.options.threshold == cohort.clients // 2 + 1
            assert options.downlink == "model"


def test_figures_5_and_6_train_five_seeds_of_four_cohorts_one_seed_at_25_and_100_first() -> None:
    from experiments.fig5 import SCALES as FIG5
    from experiments.fig6 import SCALES as FIG6

    for scales in (FIG5, FIG6):
        order = training.in_order(scales["default"].training, 0)
        runs = [(cohort.clients, seed, system.label) for cohort, system, seed in order]
        assert len(set(runs)) == len(runs), "each once"
        assert {(clients, seed) for clients, seed, _ in runs} == {(n, s) for n in (25, 50, 75, 100) for s in range(5)}
        assert [run[:2] for run in runs[:6:3]] == [(25, 0), (100, 0)]
        assert {clients for clients, *_ in runs[:30]} == {25, 100}


def test_ours_has_words_of_8_bits_and_9_where_more_users_are_added_up() -> None:
    assert [sliced_short(clients).modulus_bits for clients in (25, 50, 75, 100)] == [8, 8, 9, 9]


def test_data_is_named_with_its_hash_and_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_data((), None) == NO_DATA
    found = describe_data(("digits",), None)
    assert found["note"] == NOTES[found["sha256"]]
    monkeypatch.setattr("experiments.common.data.NOTES", {})
    assert describe_data(("digits",), None)["note"] == UNKNOWN


def test_results_from_a_tree_with_changes_are_not_published() -> None:
    with pytest.raises(InvalidInput, match="clean"):
        publish.require_repeatable("fig5", {"commit": "abc1234+"})
    with pytest.raises(InvalidInput, match="clean"):
        publish.require_repeatable("defaults", {"bytes": {"commit": "abc1234"}, "ranges": {"commit": None}})
    publish.require_repeatable("fig5", {"commit": "abc1234", "runs": [{"commit": "def5678, abc1234"}]})


TWO_SEEDS = training.Training(
    "digits",
    (training.CohortRuns(10, 2, (SECAGG, System("sliced", 0.5, 16)), (), None),),
    target=None,
    rounds=1,
    model="softmax",
    dropout=0.1,
)


def trained(work: Work, setting: training.Training = TWO_SEEDS) -> dict[str, Any]:
    """What the result file would hold."""
    work.commit = "abc1234"
    found = training.train_all(setting, 7, work)
    configuration = {"training": dataclasses.asdict(setting)}
    return {"configuration": configuration, "numbers": found.numbers, "timings": found.timings}


@pytest.mark.slow
def test_every_seed_trains_every_system_and_every_run_is_saved(tmp_path: Path) -> None:
    work, saved = Work(tmp_path / "work", {}), []
    work.save = lambda found: saved.append((len(found.numbers["runs"]), found.complete))
    runs = trained(work)["numbers"]["runs"]
    assert [(one["seed"], one["system"]) for one in runs] == [
        (7, "secagg"),
        (7, "sliced"),
        (8, "secagg"),
        (8, "sliced"),
    ]
    assert runs[0]["accuracy"] != runs[2]["accuracy"]
    assert saved == [(number, False) for number in (1, 2, 3, 4)]


@pytest.mark.slow
def test_runs_of_the_result_file_are_not_trained_again(tmp_path: Path) -> None:
    """Not on a fresh machine either: only what is missing is trained, and what is kept names the commit it is from."""
    first = trained(Work(tmp_path / "one", {}))
    work = Work(tmp_path / "two", {})
    work.earlier = first
    assert trained(work)["numbers"] == first["numbers"]
    assert not (tmp_path / "two" / "runs").exists(), "nothing was trained"

    first["numbers"]["runs"][1]["commit"] = "old4321"
    for place in (0, 2):  # From a tree with changes: nobody can repeat these.
        first["numbers"]["runs"][place]["commit"] = "abc1234+"
    again = trained(work)
    assert [one["commit"] for one in again["numbers"]["runs"]] == ["abc1234", "old4321", "abc1234", "abc1234"]
    assert len(list((tmp_path / "two" / "runs").iterdir())) == 2


@pytest.mark.slow
def test_what_is_saved_first_holds_all_that_was_finished_before(tmp_path: Path) -> None:
    """Also runs that come later in the order: training may end at any time."""
    work, saved = Work(tmp_path / "two", {}), []
    work.earlier = trained(Work(tmp_path / "one", {}))
    work.earlier["numbers"]["runs"][0]["commit"] = "abc1234+"
    work.save = lambda found: saved.append(len(found.numbers["runs"]))
    trained(work)
    assert saved == [4]


@pytest.mark.slow
def test_runs_of_another_training_are_not_taken(tmp_path: Path) -> None:
    first = trained(Work(tmp_path / "one", {}))
    until = replace(TWO_SEEDS, cohorts=(replace(TWO_SEEDS.cohorts[0], target=0.9),))
    for number, other in enumerate((replace(TWO_SEEDS, dropout=0.2), replace(TWO_SEEDS, rounds=2), until)):
        work = Work(tmp_path / f"other{number}", {})
        work.earlier = first
        trained(work, other)
        assert len(list((tmp_path / f"other{number}" / "runs").iterdir())) == 4


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


@pytest.mark.slow
def test_the_published_pattern_trains_with_unequal_weights_on_a_dirichlet_partition(tmp_path: Path) -> None:
    """β_i by number of samples, applied by the user before it rounds and masks: as good as the weighted mean itself."""
    accuracy = {}
    for aggregator in ("plain", "pairwise"):
        config = TrainingConfig.create(
            "digits",
            clients=20,
            partition="dirichlet",
            concentration=0.5,
            weights="examples",
            aggregator=aggregator,
            alpha=0.5,
            dropout=0.1,
            keys_arrive=True,
            rounds=12,
            downlink="model",
        )
        task = Task.prepare(config)
        assert max(task.partition.sizes) > 3 * min(task.partition.sizes), "weights are unequal"
        run = FederatedRun.create(config, task, tmp_path / aggregator)
        with task.pool(config, 1) as pool:
            *_, last = run.rounds(pool)
        accuracy[aggregator] = last.accuracy or 0.0
    assert accuracy["plain"] > 0.8
    assert accuracy["pairwise"] > accuracy["plain"] - 0.05
