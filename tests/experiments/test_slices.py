"""The experiment on slices: how they are cut, how it trains and resumes, and that the page shows its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.slices import page, run
from experiments.slices.servers import STRATEGIES, make_server
from experiments.slices.training import Cell, Slices, fraction, make_gain, rounded, train

TINY = Cell("digits", 5, 0.2, rounds=3)


def one_run(alpha: float, accuracy: list[float], **other: Any) -> dict[str, Any]:
    """Return a run as the result file has it."""
    return {**page.PLAIN, "task": "digits", "users": 25, "alpha": alpha, "accuracy": accuracy, **other}


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(1.0, (1, 1)), (0.1, (1, 10)), (0.3, (3, 10)), (0.5, (1, 2)), (0.02, (1, 50)), (0.4, (2, 5))],
)
def test_alpha_is_a_fraction_of_small_integers(alpha: float, expected: tuple[int, int]) -> None:
    assert fraction(alpha) == expected


@pytest.mark.parametrize("cut", ["blocks", "strides", "stretches"])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_every_coordinate_is_sent_equally_often(cut: str, alpha: float) -> None:
    slices = Slices(1003, alpha, cut, seed=1)
    _, length = fraction(alpha)
    times = np.sum([slices.covered(number) for number in range(length)], axis=0)
    assert (times == fraction(alpha)[0]).all()
    assert slices.covered(0).mean() == pytest.approx(alpha, abs=0.02)


def test_blocks_send_as_many_of_each_block() -> None:
    covered = Slices(1000, 0.3, "blocks", seed=1).covered(4)
    assert (covered.reshape(-1, 10).sum(axis=1) == 3).all()


def test_a_run_follows_from_its_cell() -> None:
    assert train(TINY) == train(TINY)
    assert len(train(TINY).accuracy) == 3


def test_a_gain_of_one_over_the_coverage_with_everything_sent_is_plain_averaging() -> None:
    whole = Cell("digits", 5, 1.0, rounds=3)
    assert train(whole).accuracy == train(Cell("digits", 5, 1.0, "1/κ", rounds=3)).accuracy
    assert make_gain(0.1, "1/κ").value == pytest.approx(10)
    assert make_gain(0.1, 3).value == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_move_towards_the_step(strategy: str) -> None:
    server, model = make_server(strategy, 4), np.zeros(4, np.float32)
    for _ in range(3):
        model = server.advance(model, np.array([1, -1, 0.5, 0], np.float32))
    assert (np.sign(model) == [1, -1, 1, 0]).all()
    assert model.dtype == np.float32


def test_fedprox_stays_closer_to_the_model() -> None:
    assert train(Cell("digits", 5, 1.0, strategy="FedProx", rounds=2, epochs=5)) != train(
        Cell("digits", 5, 1.0, rounds=2, epochs=5)
    )


def test_rounding_adds_noise_without_bias() -> None:
    update, random = np.full(20000, 0.3, np.float32), np.random.default_rng(0)
    found, clipped = rounded(update, np.ones(20000, np.float32), 2, random)
    assert clipped == 0
    assert set(found.tolist()) == {0.0, 0.5}
    assert found.mean() == pytest.approx(0.3, abs=0.01)


def test_a_run_that_is_done_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SECTIONS", {"one": lambda: iter([TINY])})
    monkeypatch.setattr(run, "SEEDS", (0, 1))
    path = tmp_path / "slices.json"
    run.measure(["one"], path)
    first = path.read_bytes()
    result = json.loads(first)
    assert result["complete"]
    assert [one["seed"] for one in result["runs"]] == [0, 1]
    monkeypatch.setattr(run, "train", None)
    run.measure(["one"], path)
    assert path.read_bytes() == first


def test_all_sections_have_runs_that_differ() -> None:
    for section in run.SECTIONS:
        chosen = run.cells(section)
        assert chosen
        assert len({run.key(cell) for cell in chosen}) == len(chosen)


def test_the_default_is_the_smallest_alpha_within_half_a_point_in_every_task() -> None:
    early, late = [50.0] * 19, [90.0] * 21
    runs = [
        one_run(1.0, early + late),
        one_run(0.5, early + [89.9] * 21),
        one_run(0.2, [10.0] * 19 + [89.6] * 21),
        one_run(0.1, early + [89.9] * 11 + [89.0] * 10),
    ]
    assert page.default_alpha(runs) == 0.2
    other = [one_run(1.0, early + late, task="MNIST"), one_run(0.2, early + [89.0] * 21, task="MNIST")]
    assert page.default_alpha(runs + other) == 1.0, "0.5 was not measured on MNIST"
    other.append(one_run(0.5, early + late, task="MNIST"))
    assert page.default_alpha(runs + other) == 0.5
    worst = page.worst_deficit(runs + other, 0.2)
    assert worst is not None
    assert worst[0] == pytest.approx(1.0)
    assert worst[1]["task"] == "MNIST"


def test_rounds_are_counted_until_the_target() -> None:
    values = np.concatenate([np.full(10, 50.0), np.full(10, 90.0)])
    assert page.rounds_until(values, 90) == 11
    assert page.rounds_until(values, 91) is None


def test_the_page_shows_the_results() -> None:
    result: dict[str, Any] = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    assert result["complete"]
    text = page.DOCUMENT.read_text(encoding="utf-8")
    assert page.published(text, result) == text
    assert result["seeds"] == [0, 1, 2]
    assert not any(one["commit"].endswith("+") for one in result["runs"])
