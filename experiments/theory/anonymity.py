"""Theorem 2: how many honest users meet at a coordinate."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean
from typing import Any

from experiments.theory.checks import check
from experiments.theory.config import ERROR_RATE, Anonymity
from experiments.theory.formulas import anonymity_limit
from experiments.theory.sampling import Drawing, sample, variance_of_a_round
from sparsesecagg.privacy.anonymity import colluder_count


def measure(config: Anonymity, clients: int, seed: int) -> dict[str, Any]:
    """Draw rounds and return their mean T with its expectation and error, and how T is missed."""
    drawing = Drawing(clients, config.dim, config.alpha)
    rounds = sample(drawing, (config.dropout,), config.colluding, config.rounds, (seed, clients))[f"{config.dropout:g}"]
    share = colluder_count(clients, config.colluding) / clients
    return {
        "clients": clients,
        "measured": fmean(one["contributors"] for one in rounds),
        "expected": drawing.promised(config.dropout, config.colluding),
        "theorem": anonymity_limit(config.alpha, clients, config.dropout, share),
        "standard_error": math.sqrt(variance_of_a_round(drawing, config.dropout, config.colluding) / len(rounds)),
        "below": fmean(one["below"] for one in rounds),
        "at_most_half": fmean(one["thin"] for one in rounds),
        "revealed_fraction": sum(one["revealed"] for one in rounds) / max(1, sum(one["values"] for one in rounds)),
    }


def checks(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hold every mean against its expectation."""
    limit = -NormalDist().inv_cdf(ERROR_RATE / 2)
    found = []
    for point in points:
        z = (point["measured"] - point["expected"]) / point["standard_error"]
        found.append(
            check(
                "Theorem 2",
                f"N = {point['clients']}: honest survivors per coordinate, T",
                point["measured"],
                expected=point["expected"],
                holds=abs(z) <= limit,
                error_rate=ERROR_RATE,
                note=f"z = {z:+.2f}; the theorem's limit for large N is {point['theorem']:.3f}; {point['below']:.0%} "
                f"of the coordinates have fewer than T, {point['at_most_half']:.1%} have T/2 or fewer",
            )
        )
    return found
