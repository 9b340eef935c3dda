"""Canaries: how much privacy noise keeps at least, measured in the real protocol, beside what is proven.

In every round each user, a canary, sends a known vector as long as the clip, or zeros, by the toss of a coin. These
vectors are orthogonal, so that none hides another. Just as many users stay as the threshold asks for, which leaves the
least noise. The attacker projects the opened sum onto each canary and says "there" above one half. From its errors,
each at most so many (Clopper and Pearson), follow two lower bounds on ε, which hold with that confidence:

    ln((1 − δ − misses) / false alarms), whatever the noise is;
    ε(δ) of Gaussian noise with that trade-off of errors (arXiv 2302.07956), sharper, as Skellam noise is nearly that.

User level, zero-out neighbours, no amplification. Without noise both are as large as the number of canaries allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import erfc, exp, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.planning.noise import MEANING, DifferentialPrivacy, with_noise
from sparsesecagg.privacy.accountant import least
from sparsesecagg.privacy.anonymity import log_binomial_below
from sparsesecagg.protocol import Parameters, Policy, RoundOptions, Stage
from sparsesecagg.simulate import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run

_USERS, _STAYING, _DIM = 5, 4, 512
_FEWEST = 40


@dataclass(frozen=True)
class CanarySettings:
    """(ε, δ) that one round promises, and how often that is put to the test."""

    epsilon: float
    delta: float = 1e-5
    canaries: int = 2000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what can't be measured."""
        DifferentialPrivacy(self.epsilon, 1, self.delta).check(_USERS)
        require("canaries", self.canaries >= _FEWEST, f"must be at least {_FEWEST}, got {self.canaries}")
        require("confidence", 0 < self.confidence < 1, f"must be in (0, 1), got {self.confidence}")

    @property
    def proven(self) -> float:
        """What the accountant proves for the noise that is added: ε or hardly less."""
        mechanism = self.params(noise=True).mechanism
        return 0.0 if mechanism is None else mechanism.cost.epsilon(self.delta)

    def params(self, noise: bool) -> Parameters:
        """Return parameters of a small run, with the noise that keeps (ε, δ) in one round, or without any."""
        options = RoundOptions(threshold=_STAYING, dropout=0.1, colluding=0.0)
        if noise:
            options = with_noise(options, DifferentialPrivacy(self.epsilon, 1, self.delta), _USERS, _DIM)
        return Parameters.create(_USERS, _DIM, options)


@dataclass(frozen=True)
class CanaryReport:
    """How often the attacker was wrong, and what ε is at least."""

    settings: CanarySettings
    with_canary: int
    misses: int
    without: int
    false_alarms: int
    noise_multiplier: float

    @cached_property
    def most_errors(self) -> tuple[float, float]:
        """The largest rates of misses and false alarms; together they hold with the confidence."""
        seen = ((self.misses, self.with_canary), (self.false_alarms, self.without))
        misses, alarms = (highest_rate(*each, (1 - self.settings.confidence) / 2) for each in seen)
        return misses, alarms

    @property
    def epsilon_lower(self) -> float:
        """Whatever the noise is."""
        misses, alarms = self.most_errors
        return log(max(1.0, (1 - self.settings.delta - misses) / alarms))

    @property
    def epsilon_lower_gaussian(self) -> float:
        """If errors trade off as under Gaussian noise."""
        misses, alarms = self.most_errors
        if misses + alarms >= 1:
            return 0.0
        normal = NormalDist()
        return gaussian_epsilon(-normal.inv_cdf(alarms) - normal.inv_cdf(misses), self.settings.delta)

    def as_json(self) -> dict[str, float]:
        """Return the figures."""
        return {
            "canaries": self.with_canary + self.without,
            "noise_multiplier": self.noise_multiplier,
            "misses": self.misses / self.with_canary,
            "false_alarms": self.false_alarms / self.without,
            "epsilon_lower": self.epsilon_lower,
            "epsilon_lower_gaussian": self.epsilon_lower_gaussian,
        }


def run_canaries(settings: CanarySettings, *, noise: bool = True) -> CanaryReport:
    """Run real rounds in which half of the canaries, at random, are there, and guess which."""
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
    return CanaryReport(
        settings,
        with_canary=int(there.sum()),
        misses=int((there & ~guessed).sum()),
        without=int((~there).sum()),
        false_alarms=int((~there & guessed).sum()),
        noise_multiplier=params.noise_multiplier,
    )


def compare_noise(settings: CanarySettings) -> dict[str, Any]:
    """Return what is proven and what canaries show, with noise and, as a control, without."""
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "epsilon_proven": settings.proven,
        "confidence": settings.confidence,
        "neighbours": MEANING,
        "with_noise": run_canaries(settings).as_json(),
        "without_noise": run_canaries(settings, noise=False).as_json(),
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
