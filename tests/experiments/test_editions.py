"""The comparison of the editions: what is published is what was measured, and it keeps what is asked of it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from experiments.editions.measure import SEEDS, STRETCHES, train
from experiments.editions.run import accuracies, published
from experiments.editions.stretches import interleaved
from sparsesecagg.lab.learning import Task, TrainingConfig

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "results" / "editions.json").read_text(encoding="utf-8"))
SETTINGS = list(RESULT["configuration"]["settings"])


def mean(setting: str, edition: str, system: str) -> float:
    found = accuracies(RESULT, setting, edition, system)
    assert len(found) == len(SEEDS) >= 3
    return fmean(found)


def test_the_table_shows_the_committed_results() -> None:
    document = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert published(document, RESULT) == document


@pytest.mark.parametrize("setting", SETTINGS)
def test_committees_end_within_a_point_of_the_first_edition_and_of_secagg(setting: str) -> None:
    """Over three seeds."""
    ours = mean(setting, "second", "committee")
    for edition, system in (("first", "committee"), ("first", "secagg"), ("second", "secagg")):
        assert ours > mean(setting, edition, system) - 1


@pytest.mark.parametrize("setting", SETTINGS)
def test_steps_on_the_way_down_cost_less_than_a_third_of_a_point(setting: str) -> None:
    """Against whole models, over three seeds."""
    assert mean(setting, "second", "committee, steps") > mean(setting, "second", "committee") - 0.3


def test_interleaved_slices_hold_every_coordinate_once() -> None:
    """One stretch is the model's own order."""
    order = interleaved(103, 5, 4)
    assert sorted(order.tolist()) == list(range(103))
    assert np.array_equal(interleaved(103, 5, 1), np.arange(103))
    # The first slice holds four pieces that lie about a quarter of the model apart.
    assert order[:6].tolist() == [0, 1, 2, 3, 4, 5] and order[6] == 28


def test_rearranged_coordinates_give_the_same_kind_of_run() -> None:
    """The mean comes back in the model's own order: training works."""
    config = TrainingConfig.create("digits", clients=10, rounds=4, hidden=8, alpha=0.5, dropout=0.1, downlink="model")
    task = Task.prepare(config)
    plain, other = (train(config, task, stretches) for stretches in (1, STRETCHES))
    assert other["accuracy"] == pytest.approx(plain["accuracy"], abs=10) and other["best"] > 50
    assert other["upload_bytes"] == plain["upload_bytes"]
