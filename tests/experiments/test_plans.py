"""The tables of docs/planning.md are what the planner says."""

from __future__ import annotations

import json

import pytest

from experiments.plans import run


def test_the_committed_results_are_what_the_planner_says_now() -> None:
    committed = json.loads(run.RESULTS.read_text(encoding="utf-8"))["numbers"]
    found = json.loads(json.dumps(run.compute()))
    for row, now in zip(committed["plans"], found["plans"], strict=True):
        for figure in ("privacy_failure_log2", "abort_probability"):
            # Logarithms may differ in their last digits from one maths library to the next.
            assert (row.pop(figure) or 0) == pytest.approx(now.pop(figure) or 0, rel=1e-6)
    assert found == committed


def test_the_page_shows_the_committed_results() -> None:
    numbers = json.loads(run.RESULTS.read_text(encoding="utf-8"))["numbers"]
    page = run.PAGE.read_text(encoding="utf-8")
    assert run.publish(page, numbers) == page
    assert "| 1,000 | 0.1 | 0.1 | malicious | 39 | 10 | 100, 82 | 1.1% | 0.04 | 9 |" in page


def test_stricter_thresholds_are_those_of_the_design() -> None:
    """But for ten users, who have 7 there, and for 13 groups, which it counts as groups of 76."""
    found = {
        (row["clients"], row["groups"]): (row["stricter_threshold"], row["stricter_anonymity"])
        for row in map(run.thresholds, *zip(*run.STRICTER, strict=True))
    }
    design = {(25, 1): (18, 13), (50, 1): (39, 31), (100, 1): (81, 66), (300, 3): (81, 47), (1000, 10): (81, 37)}
    assert found == {**design, (10_000, 100): (81, 33), (10, 1): (6, 2), (1000, 13): (61, 21)}
