"""Theorem 2: how many honest users meet at a coordinate."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean
from typing import Any

from experiments.fig4.sampling import promised, sample, variance_of_a_round
from experiments.theory.checks import check
from experiments.theory.config import ERROR_RATE, Anonymity
from experiments.theory.formulas import anonymity_limit
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.protocol import Parameters

PATTERNS = ("pairwise", "committee")


def measure(config: Anonymity, pattern: str, clients: int, seed: int) -> dict[str, Any]:
    """Draw rounds and return their mean T with its expectation and error."""
    params = Parameters.create(
        clients=clients, dim=config.dim, pattern=pattern, alpha=config.alpha, dropout=config.dropout
    )
    rounds = sample(params, (config.dropout,), config.colluding, config.rounds, (seed, clients))[f"{config.dropout:g}"]
    share = colluder_count(clients, config.colluding) / clients
    return {
        "pattern": pattern,
        "clients": clients,
        "measured": fmean(one["contributors"] for one in rounds),
        "expected": promised(params, config.dropout, config.colluding),
        "theorem": anonymity_limit(config.alpha, clients, config.dropout, share) if pattern == "pairwise" else None,
        "standard_error": math.sqrt(variance_of_a_round(params, config.dropout, config.colluding) / len(rounds)),
        "at_most_half": fmean(one["thin"] for one in rounds),
        "revealed_fraction": sum(one["revealed"] for one in rounds) / max(1, sum(one["opened"] for one in rounds)),
    }


def checks(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hold every mean against its expectation."""
    limit = -NormalDist().inv_cdf(ERROR_RATE / 2)
    found = []
    for point in points:
        z = (point["measured"] - point["expected"]) / point["standard_error"]
        said = "" if point["theorem"] is None else f"the theorem's limit for large N is {point['theorem']:.3f}; "
        found.append(
            check(
                "Theorem 2",
                f"{point['pattern']}, N = {point['clients']}: honest survivors per coordinate, T",
                point["measured"],
                expected=point["expected"],
                holds=abs(z) <= limit,
                error_rate=ERROR_RATE,
                note=f"z = {z:+.2f}; {said}{point['at_most_half']:.2%} of coordinates have T/2 or fewer",
            )
        )
    return found
