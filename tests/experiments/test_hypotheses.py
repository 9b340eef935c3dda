"""Hypotheses about the paper's savings: what each averages and counts, and that their training resumes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.common.work import Work
from experiments.hypotheses.config import BY_EVERYBODY, HYPOTHESES, LONG_STEPS, MODELS, SECAGG, SPARSE, Config, Figure
from experiments.hypotheses.plot import needed_speedup, predicted
from experiments.hypotheses.run import averaged, draw_pattern, rounds_to, run, table
from sparsesecagg.lab.audit.theory import selection_probability

CLIENTS, DIM, DROPOUT = 40, 500, 0.3


def mean_step(rule: Any, rounds: int = 200) -> float:
    """The mean step over many rounds in which every update is 1 and the model is 0."""
    random, steps = np.random.default_rng(0), []
    for _ in range(rounds):
        alive = np.flatnonzero(random.random(CLIENTS) >= DROPOUT)
        updates, model = np.ones((len(alive), DIM), np.float32), np.zeros(DIM, np.float32)
        steps.append(averaged(rule, model, updates, alive, CLIENTS, DROPOUT, random).mean())
    return float(np.mean(steps))


def test_the_pattern_has_the_published_law() -> None:
    sends = draw_pattern(0.1, 30, 40_000, np.random.default_rng(1))
    assert sends.mean() == pytest.approx(selection_probability(0.1, 30), rel=0.01)
    assert (sends.sum(axis=0) != 1).all(), "nobody sends a coordinate alone: masks are shared by two"


def test_steps_are_as_long_as_each_hypothesis_says() -> None:
    """Mean of the survivors and the paper's rule: 1. By N: 0.7. Scaled twice: 1/0.7."""
    assert mean_step(SECAGG) == pytest.approx(1)
    assert mean_step(SPARSE) == pytest.approx(1, abs=0.03)
    assert mean_step(BY_EVERYBODY) == pytest.approx(0.7, abs=0.02)
    assert mean_step(LONG_STEPS) == pytest.approx(1 / 0.7, abs=0.04)


def test_adding_up_models_and_dividing_by_n_shrinks_the_model() -> None:
    alive, model = np.arange(20), np.ones(3, np.float32)
    updates = np.zeros((20, 3), np.float32)
    moved = averaged(MODELS, model, updates, alive, CLIENTS, DROPOUT, np.random.default_rng(0))
    assert moved.tolist() == [0.5] * 3


def test_a_round_saves_what_the_papers_format_saves() -> None:
    per_round = {one.name: one.per_round(100) for one in HYPOTHESES}
    assert per_round["as stated"] == pytest.approx(7.91, abs=0.01)
    assert per_round["H3"] == pytest.approx(17.88, abs=0.05)
    assert per_round["H6"] == pytest.approx(12.7, abs=0.05)


def test_a_target_is_held_when_the_mean_of_some_rounds_reaches_it() -> None:
    noisy = {"accuracy": [0.5, 0.9, 0.6, 0.85, 0.9, 0.95, 0.9], "target": 0.9}
    assert rounds_to(noisy, first_crossing=True, window=3) == 2
    assert rounds_to(noisy, first_crossing=False, window=3) == 4
    assert rounds_to({"accuracy": [0.5], "target": 0.9}, False, 3) is None


def test_the_table_multiplies_rounds_and_savings() -> None:
    def of(rule: str, rounds: int) -> dict[str, Any]:
        about = {"figure": "fig5", "clients": 100, "seed": 0, "rule": rule, "target": 0.9}
        return about | {"accuracy": [0.0] * (rounds - 1) + [0.95] * 3}

    result = {"numbers": {"table": table([of("secagg", 6), of("sparse", 3), of("sparse-0.025", 6)], 3)}}
    assert predicted(result, "as stated", "fig5") == pytest.approx(2 * 7.91, abs=0.02)
    assert predicted(result, "H3", "fig5") == pytest.approx(17.88, abs=0.05)
    assert needed_speedup(result, "as stated", "fig5") == pytest.approx(0.9)
    assert predicted(result, "H1", "fig5") is None, "not trained"


@pytest.mark.slow
def test_training_resumes_after_the_last_round(tmp_path: Path) -> None:
    config = Config((Figure("fig5", "digits", "iid", 0.99, "softmax", None, (5,)),), rounds=2)
    whole = run(config, 0, Work(tmp_path / "whole", {})).numbers
    assert {len(one["accuracy"]) for one in whole["runs"]} == {2}
    short = Config(config.figures, rounds=1)
    run(short, 0, Work(tmp_path / "cut", {}))
    assert run(config, 0, Work(tmp_path / "cut", {})).numbers == whole
    # On another machine only the result file is there.
    fresh = Work(tmp_path / "fresh", {})
    for one in whole["runs"]:
        one["commit"] = "abc1234"
    fresh.earlier = {"configuration": json.loads(json.dumps(dataclasses.asdict(config))), "numbers": whole}
    assert run(config, 0, fresh).numbers == whole
    assert not (tmp_path / "fresh" / "runs").exists()


def test_a_rule_that_does_not_learn_is_given_up_after_some_times_secaggs_rounds(tmp_path: Path) -> None:
    config = Config((Figure("fig5", "digits", "iid", 0.7, "softmax", None, (5,)),), rounds=60, beyond=1, patience=2)
    rounds = {one["rule"]: len(one["accuracy"]) for one in run(config, 0, Work(tmp_path, {})).numbers["runs"]}
    assert max(rounds.values()) <= 2 * rounds["secagg"] < 60
