"""The number of quantisation levels: the planner's rule and the sentences about it follow from the results."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from experiments.levels import run as levels
from sparsesecagg.planning.message_sizes import default_levels


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(levels.RESULTS.read_text(encoding="utf-8"))
    return found


def test_the_default_is_enough_for_every_committee_that_was_measured(result: dict[str, Any]) -> None:
    for members in levels.MEMBERS:
        enough = levels.enough(result["runs"], members)
        assert enough == result["enough"][str(members)]
        assert enough is not None
        assert default_levels(members) >= enough


def test_words_of_six_bits_train_as_well_as_words_of_sixteen(result: dict[str, Any]) -> None:
    for task in levels.TASKS:
        short, long = (
            fmean(next(one["accuracies"] for one in result["words"] if (one["task"], one["bits"]) == (task, bits)))
            for bits in (levels.SHORT, levels.LONG)
        )
        assert short >= long - levels.ENOUGH, task


def test_the_results_were_measured_at_a_clean_commit_with_three_seeds(result: dict[str, Any]) -> None:
    assert not result["commit"].endswith("+")
    assert result["seeds"] == [0, 1, 2]
    assert all(len(one["accuracies"]) == 3 for one in result["runs"] + result["words"])


def test_the_page_shows_the_results(result: dict[str, Any]) -> None:
    page = Path(levels.DOCUMENT).read_text(encoding="utf-8")
    assert levels.published(page, result) == page


def test_few_levels_add_noise_without_bias() -> None:
    updates = np.full((4000, 3), (0.1, -0.3, 0.7), np.float32)
    coarse = levels.summed(updates, np.ones(3, np.float32), 1, np.random.default_rng(0)) / len(updates)
    assert coarse == pytest.approx(updates[0], abs=0.03)
    assert not np.allclose(coarse, updates[0], atol=1e-6)
    assert levels.summed(updates, np.ones(3, np.float32), None, np.random.default_rng(0)) == pytest.approx(
        updates.sum(axis=0), rel=1e-4
    )
