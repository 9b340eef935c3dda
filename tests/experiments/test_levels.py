"""The number of quantisation levels: the planner's rule and the sentences about it follow from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.levels import run as levels
from sparsesecagg.planning.message_sizes import default_levels


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(levels.RESULTS.read_text(encoding="utf-8"))
    return found


def test_the_default_costs_little_in_every_group_that_was_measured(result: dict[str, Any]) -> None:
    for members in levels.MEMBERS:
        enough = levels.enough(result["runs"], members)
        assert enough == result["enough"][str(members)]
        assert enough is not None
        lost = levels.losses(result["runs"], members, default_levels(members), beside=levels.LEVELS[-1])
        assert max(lost.values()) < 0.4


def test_the_results_were_measured_at_a_clean_commit_with_three_seeds(result: dict[str, Any]) -> None:
    assert not result["commit"].endswith("+")
    assert result["seeds"] == [0, 1, 2]
    assert all(len(one["accuracies"]) == 3 for one in result["runs"])


def test_the_page_shows_the_results(result: dict[str, Any]) -> None:
    page = Path(levels.DOCUMENT).read_text(encoding="utf-8")
    assert levels.published(page, result) == page


def test_few_levels_add_noise_without_bias() -> None:
    updates = np.full((4000, 3), (0.1, -0.3, 0.7), np.float32)
    total, clipped = levels.summed(updates, np.ones(3, np.float32), 1, np.random.default_rng(0))
    assert total / len(updates) == pytest.approx(updates[0], abs=0.03)
    assert not np.allclose(total / len(updates), updates[0], atol=1e-6)
    assert clipped == 0
    assert levels.summed(updates, np.full(3, 0.5, np.float32), 1, np.random.default_rng(0))[1] == pytest.approx(1 / 3)
    assert levels.summed(updates, np.ones(3, np.float32), None, np.random.default_rng(0))[0] == pytest.approx(
        updates.sum(axis=0), rel=1e-4
    )


def test_every_coordinate_takes_its_turn() -> None:
    turns = levels.slice_turns(1003, np.random.default_rng(0))
    assert np.array_equal(np.sort(turns[:1000].reshape(-1, 10), axis=1), np.tile(np.arange(10), (100, 1)))
