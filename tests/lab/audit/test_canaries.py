"""Canaries: noise hides what it has to, and the same attack reads everything without it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cli.commands import run, run_json
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit.canaries import (
    CanarySettings,
    compare_noise,
    dp_in_words,
    gaussian_epsilon,
    highest_rate,
    lower_bounds,
    run_canaries,
)

SETTINGS = CanarySettings(8.0, canaries=240, seed=3)


def test_what_canaries_show_is_below_what_is_proven_and_ten_times_more_without_noise() -> None:
    weak, strong = (compare_noise(replace(SETTINGS, epsilon=epsilon)) for epsilon in (2.0, 8.0))
    for found in (weak, strong):
        noisy = found["with_noise"]
        assert 0 <= noisy["epsilon_lower"] <= noisy["epsilon_lower_gaussian"] <= found["epsilon_proven"]
        assert found["epsilon_proven"] <= found["epsilon"]
    least, most, none = (
        each["epsilon_lower_gaussian"] for each in (weak["with_noise"], strong["with_noise"], strong["without_noise"])
    )
    assert most > least
    assert most > 2, "the attack works"
    assert strong["without_noise"]["misses"] == strong["without_noise"]["false_alarms"] == 0
    assert none > 10 * least


def test_the_attacker_errs_as_often_as_gaussian_noise_of_that_size_makes_it() -> None:
    """The noise that is left is that of H users and no more: four of five stay, and the threshold is four."""
    report = run_canaries(SETTINGS)
    mechanism = SETTINGS.params(noise=True).mechanism
    assert mechanism is not None
    deviation = math.sqrt(mechanism.variance) / mechanism.scale
    expected = math.erfc(0.5 / deviation / math.sqrt(2)) / 2
    found = (report["misses"] + report["false_alarms"]) / 2
    assert abs(found - expected) < 4 * math.sqrt(expected / SETTINGS.canaries)


@pytest.mark.parametrize(("errors", "trials", "highest"), [(0, 100, 0.0362), (5, 100, 0.1128), (50, 100, 0.6017)])
def test_rates_are_those_of_clopper_and_pearson(errors: int, trials: int, highest: float) -> None:
    assert highest_rate(errors, trials, 0.025) == pytest.approx(highest, abs=1e-4)
    assert highest_rate(trials, trials, 0.025) == 1


def test_rates_hold_with_their_confidence() -> None:
    found = np.random.default_rng(1).binomial(200, 0.1, 2000).tolist()
    highest = {errors: highest_rate(errors, 200, 0.05) for errors in set(found)}
    assert np.mean([highest[errors] < 0.1 for errors in found]) < 0.065


@pytest.mark.parametrize(("signal", "epsilon"), [(1.0, 4.3772), (0.25, 0.9271), (5.0, 32.6)])
def test_epsilon_of_gaussian_noise_solves_its_equation(signal: float, epsilon: float) -> None:
    found = gaussian_epsilon(signal, 1e-5)
    above = lambda x: math.erfc(x / math.sqrt(2)) / 2  # noqa: E731
    delta = above(found / signal - signal / 2) - math.exp(found) * above(found / signal + signal / 2)
    assert delta == pytest.approx(1e-5)
    assert found == pytest.approx(epsilon, rel=0.02)
    assert gaussian_epsilon(0.0, 1e-5) == 0


def test_an_attacker_who_guesses_shows_nothing() -> None:
    assert lower_bounds([(50, 100), (50, 100)], 1e-5) == (0, 0)


def test_both_figures_are_told_with_their_meaning() -> None:
    found = compare_noise(replace(SETTINGS, canaries=40))
    assert found["with_noise"]["canaries"] == found["without_noise"]["canaries"] == 40
    assert "user level, zero-out neighbours, no amplification" in dp_in_words(found)


@pytest.mark.parametrize(
    ("option", "change"),
    [
        ("epsilon", {"epsilon": 0.0}),
        ("delta", {"delta": 0.5}),
        ("canaries", {"canaries": 3}),
    ],
)
def test_what_cannot_be_measured_is_refused(option: str, change: dict[str, float]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        replace(SETTINGS, **change)  # type: ignore[arg-type]
    assert refusal.value.option == option


AUDIT = "audit --clients 5 --dim 100 --rounds 1 --dropout 0 --json"


def test_the_command_puts_noise_to_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    dp = run_json(capsys, *AUDIT.split(), *"--dp-epsilon 8 --canaries 40".split())["dp"]
    assert dp["with_noise"]["epsilon_lower_gaussian"] <= dp["epsilon_proven"] <= dp["epsilon"] == 8
    assert dp["without_noise"]["false_alarms"] == 0
    assert "dp" not in run_json(capsys, *AUDIT.split())


@pytest.mark.parametrize(
    "given", ["--dp-epsilon 0", "--dp-delta 0.5 --dp-epsilon 1", "--canaries 3 --dp-epsilon 1", "--canaries 9"], ids=str
)
def test_the_command_names_the_bad_option(capsys: pytest.CaptureFixture[str], given: str) -> None:
    code, out, err = run(capsys, *AUDIT.split(), *given.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"sparsesecagg: {given.split(maxsplit=1)[0]} must be ")
    assert err.count("\n") == 1
