"""Canaries: how much privacy noise keeps at least, measured in the real protocol, beside what is proven.

In every round each user, a canary, sends a known vector as long as the clip, orthogonal to the others', or zeros, by
the toss of a coin. Just as many users stay as the threshold asks for, which leaves the least noise. The attacker
projects the opened sum onto each canary and says "there" above one half. From its errors, each at most so many (Clopper
and Pearson), follow two lower bounds on ε: ln((1 − δ − misses) / false alarms), whatever the noise is, and ε(δ) of
Gaussian noise with that trade-off of errors (arXiv 2302.07956), sharper, as Skellam noise is nearly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, exp, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.planning.noise import FAILURE_LOG2, MEANING, DifferentialPrivacy, with_noise
from sparsesecagg.privacy.accountant import least
from sparsesecagg.privacy.anonymity import log_binomial_below
from sparsesecagg.protocol import Parameters, Policy, RoundOptions, Stage
from sparsesecagg.simulate import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run

CONFIDENCE = 0.95
_USERS, _STAYING, _DIM = 5, 4, 512
_FEWEST = 40


@dataclass(frozen=True)
class CanarySettings:
    """(ε, δ) that one round promises, and how often that is put to the test."""

    epsilon: float
    delta: float = 1e-5
    canaries: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what can't be measured."""
        limits = f"above 2^{FAILURE_LOG2:g} and below 1/{_USERS}, one over the users of the small run that is tested"
        require("delta", 2**FAILURE_LOG2 < self.delta < 1 / _USERS, f"must be {limits}, got {self.delta:g}")
        DifferentialPrivacy(self.epsilon, 1, self.delta).check(_USERS)
        require("canaries", self.canaries >= _FEWEST, f"must be at least {_FEWEST}, got {self.canaries}")

    def params(self, noise: bool) -> Parameters:
        """Return parameters of a small run, with the noise that keeps (ε, δ) in one round, or without any."""
        options = RoundOptions(threshold=_STAYING, dropout=0.1, colluding=0.0)
        if noise:
            options = with_noise(options, DifferentialPrivacy(self.epsilon, 1, self.delta), _USERS, _DIM)
        return Parameters.create(_USERS, _DIM, options)


def run_canaries(settings: CanarySettings, *, noise: bool = True) -> dict[str, float]:
    """Run real rounds in which half of the canaries, at random, are there; guess which, and say what ε is at least."""
    params = settings.params(noise)
    rounds = -(-settings.canaries // _STAYING)
    canaries = _orthogonal()
    there = np.random.default_rng([settings.seed, 25]).permutation(np.arange(rounds * _STAYING) % 2 == 0)
    policy = Policy(min_anonymity=1, colluding=0.0, server="semi-honest")
    run = InProcessRun(params, Cohort(policy=policy, entropy_of=entropy_of_run(settings.seed)))
    guesses = []
    for coins in there.reshape(rounds, _STAYING):
        sent = [*(canaries * coins[:, None]), np.zeros(_DIM)]
        result = run.round(sent, drops=dict.fromkeys(range(_STAYING, _USERS), Stage.UPLOAD)).result
        guesses.append(canaries @ result.sum() > 0.5)
    guessed = np.concatenate(guesses)
    misses, alarms = ~guessed[there], guessed[~there]
    lower, gaussian = lower_bounds([(int(errors.sum()), len(errors)) for errors in (misses, alarms)], settings.delta)
    return {
        "canaries": len(there),
        "noise_multiplier": params.noise_multiplier,
        "misses": float(misses.mean()),
        "false_alarms": float(alarms.mean()),
        "epsilon_lower": lower,
        "epsilon_lower_gaussian": gaussian,
    }


def lower_bounds(errors: Sequence[tuple[int, int]], delta: float) -> tuple[float, float]:
    """Return what ε is at least, whatever the noise is, and if errors trade off as under Gaussian noise.

    `errors` are misses and false alarms, each with its trials. Their highest rates together hold with the confidence.
    """
    miss, alarm = (highest_rate(*each, (1 - CONFIDENCE) / 2) for each in errors)
    signal = 0.0 if miss + alarm >= 1 else -NormalDist().inv_cdf(alarm) - NormalDist().inv_cdf(miss)
    return log(max(1.0, (1 - delta - miss) / alarm)), gaussian_epsilon(signal, delta)


def compare_noise(settings: CanarySettings) -> dict[str, Any]:
    """Return what is proven for the noise, and what canaries show with it and, as a control, without."""
    mechanism = settings.params(noise=True).mechanism
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "epsilon_proven": 0.0 if mechanism is None else mechanism.cost.epsilon(settings.delta),
        "confidence": CONFIDENCE,
        "neighbours": MEANING,
        "with_noise": run_canaries(settings),
        "without_noise": run_canaries(settings, noise=False),
    }


def dp_in_words(found: dict[str, Any]) -> str:
    """Return two sentences on what `compare_noise` found."""
    noisy, bare = found["with_noise"], found["without_noise"]
    return (
        f"Noise: {noisy['canaries']} canaries in a small run with epsilon {found['epsilon_proven']:.3g} proven for one "
        f"round at delta {found['delta']:g} ({found['neighbours']}) show at least "
        f"{noisy['epsilon_lower_gaussian']:.3g} if errors are as under Gaussian noise, {noisy['epsilon_lower']:.3g} "
        f"whatever the noise is, with {found['confidence']:.0%} confidence. Without noise they show "
        f"{bare['epsilon_lower_gaussian']:.3g} and {bare['epsilon_lower']:.3g}."
    )


def _orthogonal() -> NDArray[np.float64]:
    """Return a vector of norm one for each canary, all coordinates of one magnitude: rows of a Hadamard matrix."""
    places = np.arange(_DIM)
    return np.stack([(-1.0) ** (places >> bit & 1) for bit in range(_STAYING)]) / sqrt(_DIM)


def highest_rate(errors: int, trials: int, unsure: float) -> float:
    """Return the largest rate at which so few errors have a probability of `unsure` (Clopper and Pearson)."""
    if errors >= trials:
        return 1.0
    return least(lambda rate: exp(log_binomial_below(trials, rate, errors + 1)) < unsure, errors / trials)


def gaussian_epsilon(signal: float, delta: float) -> float:
    """Return the least ε of Gaussian noise under which a user moves the sum by `signal` standard deviations."""
    if signal <= 0:
        return 0.0

    def above(value: float) -> float:
        return erfc(value / sqrt(2)) / 2

    def excess(epsilon: float) -> float:
        return above(epsilon / signal - signal / 2) - exp(epsilon) * above(epsilon / signal + signal / 2)

    return least(lambda epsilon: excess(epsilon) <= delta)
