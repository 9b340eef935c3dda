"""Lemmas 1 and 2 on repeated real rounds: the mean is unbiased, and its variance is as computed.

Users hold the same number at every coordinate, so that a round gives one estimate of the same mean per coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common.rounds import ANY_RUN, entropy_of_round
from experiments.common.summaries import t_limit
from experiments.theory.checks import check, t_statistic
from experiments.theory.config import ERROR_RATE, Lemmas
from sparsesecagg.simulate import run_round
from sparsesecagg.errors import ThresholdNotMet
from experiments.theory.formulas import SelectionMoments, pairwise_moments, sampling_variance, sliced_moments
from sparsesecagg.protocol import Parameters, Stage

PATTERNS = ("pairwise", "committee")


def held(config: Lemmas) -> Any:
    """Return what each user holds: a mean well away from zero, where the patterns differ most."""
    return np.linspace(0.2, 0.8, config.clients)


def moments(params: Parameters) -> SelectionMoments:
    """Return how users take part at a coordinate."""
    if params.pattern == "pairwise":
        return pairwise_moments(params.alpha, params.clients, params.dropout)
    return committee_moments(params.clients, params.committees, params.served, params.dropout)


def measure(config: Lemmas, pattern: str, seed: int) -> dict[str, Any]:
    """Run the rounds and return, per round and per coordinate, what the checks need."""
    values, estimates, failed = held(config), [], 0
    for number in range(config.rounds):
        params = Parameters.create(
            clients=config.clients,
            dim=config.dim,
            pattern=pattern,
            alpha=config.alpha,
            dropout=config.dropout,
            min_survivors=1,  # Refusing thin committees would choose among the rounds.
        )
        dropped = np.flatnonzero(np.random.default_rng([seed, number]).random(config.clients) < config.dropout)
        try:
            outcome = run_round(
                params,
                lambda user: np.full(config.dim, values[user]),
                drops=dict.fromkeys(dropped.tolist(), Stage.UPLOAD),
                policy=ANY_RUN,
                entropy_of=entropy_of_round(seed, number),
            )
        except ThresholdNotMet:
            failed += 1
            continue
        estimates.append(outcome.result.mean("expected").astype(np.float64))
    found = np.array(estimates)
    return {
        "pattern": pattern,
        "rounds": len(found),
        "failed": failed,
        "means": found.mean(axis=1).tolist(),
        "coordinate_t": [t_statistic(found[:, place].tolist(), values.mean()) for place in range(config.dim)],
        "squares": ((found - values.mean()) ** 2).mean(axis=1).tolist(),
        "expected_variance": sampling_variance(moments(params), values / config.clients),
    }


def checks(config: Lemmas, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Test bias, bias of each coordinate, and variance."""
    found = []
    mean = float(held(config).mean())
    for point in points:
        rounds, pattern = point["rounds"], point["pattern"]
        t = t_statistic(point["means"], mean)
        found.append(
            check(
                "Lemma 1",
                f"{pattern}: mean of the aggregate over {rounds} rounds",
                float(np.mean(point["means"])),
                expected=mean,
                holds=abs(t) <= t_limit(rounds, ERROR_RATE),
                error_rate=ERROR_RATE,
                note=f"t = {t:+.2f}; {point['failed']} rounds without a sum",
            )
        )
        worst, limit = max(abs(one) for one in point["coordinate_t"]), t_limit(rounds, ERROR_RATE, config.dim)
        found.append(
            check(
                "Lemma 1",
                f"{pattern}: largest |t| of {config.dim} coordinates' means",
                worst,
                bound=limit,
                holds=worst <= limit,
                error_rate=ERROR_RATE,
            )
        )
        t = t_statistic(point["squares"], point["expected_variance"])
        found.append(
            check(
                "Lemma 2",
                f"{pattern}: variance of a coordinate, before the lemma's inequalities",
                float(np.mean(point["squares"])),
                expected=point["expected_variance"],
                holds=abs(t) <= t_limit(rounds, ERROR_RATE),
                error_rate=ERROR_RATE,
                note=f"t = {t:+.2f}",
            )
        )
    return found
