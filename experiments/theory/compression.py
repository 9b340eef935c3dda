"""Theorem 1: nobody sends much more than αd values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from experiments.theory.checks import check, exceeds
from experiments.theory.config import ERROR_RATE, Compression
from experiments.theory.formulas import oversize_probability
from experiments.theory.sampling import Drawing
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.patterns.gaps import bernoulli_positions

_AT_ONCE = 50
"""Draws per call of the pattern's sampler, which is fastest with many seeds."""


def sent_counts(config: Compression, dim: int, seed: int) -> list[int]:
    """Draw one user's coordinates again and again with the protocol's sampler; return how many they were."""
    peers, rng = config.clients - 1, np.random.default_rng([seed, dim])
    probability = Drawing(config.clients, dim, config.alpha).edge_probability
    counts: list[int] = []
    while len(counts) < config.draws:
        draws = min(_AT_ONCE, config.draws - len(counts))
        shared = bernoulli_positions([PatternSeed(rng.bytes(32)) for _ in range(draws * peers)], dim, probability)
        counts += [
            len(np.unique(np.concatenate(shared[start : start + peers]))) for start in range(0, len(shared), peers)
        ]
    return counts


def exceedance(config: Compression, dim: int, counts: list[int]) -> list[dict[str, Any]]:
    """Return how often the share sent exceeds p + ε, beside both of the theorem's bounds."""
    p, sent = Drawing(config.clients, dim, config.alpha).probability, np.array(counts)
    points = []
    for deviations in config.deviations:
        epsilon = deviations * math.sqrt(p * (1 - p) / dim)
        points.append(
            {
                "dim": dim,
                "epsilon": epsilon,
                "exceeded": int(np.count_nonzero(sent > (p + epsilon) * dim)),
                "exceeded_alpha": int(np.count_nonzero(sent > (config.alpha + epsilon) * dim)),
                "draws": len(counts),
                "mean_share": float(sent.mean() / dim),
                "kl": oversize_probability(config.alpha, config.clients, dim, epsilon),
                "hoeffding": oversize_probability(config.alpha, config.clients, dim, epsilon, "hoeffding"),
            }
        )
    return points


def checks(config: Compression, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hold every frequency against the sharper bound, and the mean share against α."""
    found = []
    for dim in config.dims:
        here = [point for point in points if point["dim"] == dim]
        rate = ERROR_RATE / len(here)
        worst = max(here, key=lambda point: point["exceeded"] / point["draws"] / point["kl"])
        found.append(
            check(
                "Theorem 1",
                f"d = {dim:,}: frequency of sending more than (p + ε)d values, for {len(here)} ε; nearest to its bound",
                worst["exceeded"] / worst["draws"],
                bound=worst["kl"],
                holds=not any(exceeds(point["exceeded"], point["draws"], point["kl"], rate) for point in here),
                error_rate=ERROR_RATE,
                note=f"at ε = {worst['epsilon']:.4f}, where Hoeffding's e^(−2ε²d) is {worst['hoeffding']:.2f}; "
                "the bound is e^(−D(p+ε‖p)d)",
            )
        )
    return found
