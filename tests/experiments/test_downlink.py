"""docs/downlink.md shows the committed results, and its example runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.downlink.rules import RULES
from experiments.downlink.run import TASKS, accuracies, published, seconds, sizes
from experiments.downlink.training import Task
from sparsesecagg.downlink import STEP_BITS
from sparsesecagg.lab.learning.models import LocalTraining

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "downlink.md").read_text(encoding="utf-8")
RESULT = json.loads((ROOT / "results" / "downlink.json").read_text(encoding="utf-8"))


def test_the_tables_show_the_committed_results() -> None:
    assert published(DOCUMENT, RESULT) == DOCUMENT
    assert list(RESULT["accuracy"]) == list(TASKS)
    assert list(RESULT["rules"]["rules"]) == list(RULES)


def test_the_bytes_are_still_those_of_the_result_file() -> None:
    """Up to the version of zlib."""
    assert sizes(165_000) == pytest.approx(RESULT["sizes"]["165000"], rel=0.002)


def test_the_measured_accuracy_is_at_most_a_fraction_of_a_point_below_whole_models() -> None:
    for found in RESULT["accuracy"].values():
        for bits in STEP_BITS:
            assert np.mean(found["whole"]) - np.mean(found[str(bits)]) < 0.3


def test_the_example_runs() -> None:
    code = DOCUMENT.split("```python\n")[1].split("```")[0]
    model = np.ones(5000, np.float32)
    exec(compile(code, "downlink.md", "exec"), {"model": model, "mean_update": model / 10})  # noqa: S102


def test_a_small_experiment_measures_every_width_and_every_rule() -> None:
    task = Task("digits", "iid", 4, 2, 50, 8, 2, LocalTraining(epochs=1, batch=10, lr=0.1))
    assert list(accuracies(task)) == ["whole", "8", "4", "2"]
    for make in RULES.values():
        rule = make()
        advance = rule.begin(np.zeros(600, np.float32), seed=0)
        moved = advance(np.random.default_rng(0).normal(0, 1, 600).astype(np.float32))
        assert moved.any()
        assert 0 < rule.kept[0] < 1
    assert set(seconds(1000, 4)) == {"encode", "apply"}
