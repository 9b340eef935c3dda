"""The README's tables: what is published is what was measured, and small settings can be measured again."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from experiments.alphas import run as alphas
from experiments.sizes import run as sizes
from sparsesecagg.lab.learning import Task, TrainingConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def result(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_bytes_are_those_of_the_results() -> None:
    rounds = result("sizes")["rounds"]
    assert list(rounds) == list(sizes.SYSTEMS)
    assert all(found["exact"] for found in rounds.values())
    assert sizes.published(README, rounds) == README


def test_the_accuracies_are_those_of_the_results() -> None:
    assert alphas.published(README, result("alphas")) == README


def test_a_small_alpha_costs_more_early_than_late() -> None:
    """As the README says."""
    runs = result("alphas")

    def mean(alpha: float, when: str) -> float:
        return fmean(run[when] for run in alphas.found(runs, "digits, shards", alpha))

    early, late = (mean(1.0, when) - mean(0.1, when) for when in ("accuracy_at_a_quarter", "accuracy"))
    assert early > late
    assert late < 1


def test_a_run_is_measured_as_the_table_needs_it() -> None:
    pytest.importorskip("sklearn")
    small = {**alphas.COMMON, "clients": 10, "pod_size": 10, "rounds": 4, "model": "softmax"}
    config = TrainingConfig.create(**small, dataset="digits", alpha=0.5)
    found = alphas.train(config, Task.prepare(config))
    assert found["contributors"] < 6
    assert 0 < found["accuracy_at_a_quarter"] <= 100
    assert found["sent_bytes"] > found["upload_bytes"]
