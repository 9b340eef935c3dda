"""Lemmas 1 and 2 on repeated real rounds: the mean is unbiased, and its variance is as computed.

Users hold the same number at every coordinate, so that a round gives one estimate of the same mean per coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common.rounds import cohort, majority, parameters
from experiments.common.summaries import t_limit
from experiments.theory.checks import check, t_statistic
from experiments.theory.config import ERROR_RATE, InARun, Lemmas
from experiments.theory.formulas import pairwise_moments, sampling_variance
from sparsesecagg.errors import ThresholdNotMet
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.models import Layer
from sparsesecagg.lab.learning.secure import WEIGHT_SCALE, SecureAggregator
from sparsesecagg.protocol import RoundOptions, Stage
from sparsesecagg.simulate import run_round
from sparsesecagg.simulate.simulation import draw_dropouts

WAYS = {"keys arrive": (True, False), "keys are missing too": (False, False), "unequal β": (True, True)}
"""Of dropping out in a run: whether keys of dropped users arrive, and whether users have weights."""


def held(config: Lemmas) -> Any:
    """Return what each user holds: a mean well away from zero."""
    return np.linspace(0.2, 0.8, config.clients)


def measure(config: Lemmas, seed: int) -> dict[str, Any]:
    """Run the rounds and return, per round and per coordinate, what the checks need."""
    values, estimates, failed = held(config), [], 0
    options = RoundOptions(
        pattern="pairwise", alpha=config.alpha, threshold=majority(config.clients), dropout=config.dropout
    )
    for number in range(config.rounds):
        dropped = np.flatnonzero(np.random.default_rng([seed, number]).random(config.clients) < config.dropout)
        try:
            outcome = run_round(
                parameters(config.clients, config.dim, options, seed, number),
                lambda user: np.full(config.dim, values[user]),
                cohort(seed, number),
                drops=dict.fromkeys(dropped.tolist(), Stage.UPLOAD),
            )
        except ThresholdNotMet:
            failed += 1
            continue
        estimates.append(outcome.result.mean("expected").astype(np.float64))
    found = np.array(estimates)
    moments = pairwise_moments(config.alpha, config.clients, config.dropout)
    return {
        "rounds": len(found),
        "failed": failed,
        "means": found.mean(axis=1).tolist(),
        "coordinate_t": [t_statistic(found[:, place].tolist(), values.mean()) for place in range(config.dim)],
        "squares": ((found - values.mean()) ** 2).mean(axis=1).tolist(),
        "expected_variance": sampling_variance(moments, values / config.clients),
    }


def measure_run(config: InARun, way: str, seed: int) -> dict[str, Any]:
    """Drive the aggregator of training through one run in which every update is 1; return each round's mean estimate.

    Unequal β: user i has i + 1 samples, so that the mean is weighted, and is still 1. Most of an estimate's error is in
    how many survived, so it is also returned as a multiple of what these survivors have sent on average.
    """
    keys_arrive, weighted = WAYS[way]
    options = RoundOptions(
        pattern="pairwise",
        alpha=config.alpha,
        threshold=majority(config.clients),
        dropout=config.dropout,
        max_weight=WEIGHT_SCALE if weighted else 0,
    )
    training = TrainingConfig.create(
        aggregator="pairwise", clients=config.clients, normalisation="expected", keys_arrive=keys_arrive, seed=seed
    )
    aggregator = SecureAggregator(training, options, [Layer("all", 0, config.dim)], 2.0)
    weights = [1 + user for user in range(config.clients)] if weighted else None
    update, means, given = np.ones(config.dim, np.float32), [], []
    for number in range(1, config.rounds + 1):
        rng = np.random.default_rng([seed, number])
        drops = draw_dropouts(config.clients, config.dropout, [Stage.UPLOAD], rng, first_round=number == 1)
        users = aggregator.taking_part(config.clients, drops)
        # A digest of its own for each round, as the model changes.
        found = aggregator.aggregate(
            dict.fromkeys(users, update), weights, drops, number, number.to_bytes(32, "little")
        )
        if found.step is not None and number >= config.first:
            means.append(float(found.step.mean()))
            sent, missing = found.uploads or 0, found.dropped[Stage.UPLOAD.name]
            share = sent / (sent + missing) if weights is None else sum(weights[one] for one in users) / sum(weights)
            given.append(means[-1] * (1 - config.dropout) / share)
    return {"way": way, "means": means, "given_survivors": given}


def run_checks(config: InARun, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Test that the mean over the rounds of a run is 1, also beside how many survived, where chance is smaller."""
    found = []
    for point in points:
        for name, beside in (("means", ""), ("given_survivors", ", for those who survived")):
            t, rounds = t_statistic(point[name], 1.0), len(point[name])
            found.append(
                check(
                    "Lemma 1",
                    f"N = {config.clients}, α = {config.alpha:g}, θ = {config.dropout:g}, one run, {point['way']}: "
                    f"mean of the aggregate in {rounds} rounds from the {config.first}rd on{beside}",
                    float(np.mean(point[name])),
                    expected=1.0,
                    holds=abs(t) <= t_limit(rounds, ERROR_RATE),
                    error_rate=ERROR_RATE,
                    note=f"t = {t:+.2f}",
                )
            )
    return found


def checks(config: Lemmas, point: dict[str, Any]) -> list[dict[str, Any]]:
    """Test bias, bias of each coordinate, and variance."""
    mean, rounds = float(held(config).mean()), point["rounds"]
    t = t_statistic(point["means"], mean)
    worst, limit = max(abs(one) for one in point["coordinate_t"]), t_limit(rounds, ERROR_RATE, config.dim)
    spread = t_statistic(point["squares"], point["expected_variance"])
    return [
        check(
            "Lemma 1",
            f"mean of the aggregate over {rounds} rounds",
            float(np.mean(point["means"])),
            expected=mean,
            holds=abs(t) <= t_limit(rounds, ERROR_RATE),
            error_rate=ERROR_RATE,
            note=f"t = {t:+.2f}; {point['failed']} rounds without a sum",
        ),
        check(
            "Lemma 1",
            f"largest |t| of {config.dim} coordinates' means",
            worst,
            bound=limit,
            holds=worst <= limit,
            error_rate=ERROR_RATE,
        ),
        check(
            "Lemma 2",
            "variance of a coordinate, before the lemma's inequalities",
            float(np.mean(point["squares"])),
            expected=point["expected_variance"],
            holds=abs(spread) <= t_limit(rounds, ERROR_RATE),
            error_rate=ERROR_RATE,
            note=f"t = {spread:+.2f}",
        ),
    ]
