"""Draw patterns, attack rounds, and put theory beside both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import NormalDist, fmean, stdev
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.rounds import majority
from experiments.common.work import Work
from experiments.fig4.config import ERROR_RATE, Config
from experiments.theory.formulas import anonymity_limit, pairwise_singled_out_fraction
from experiments.theory.sampling import Drawing, sample, variance_of_a_round
from sparsesecagg.lab.audit.audit import run_audit
from sparsesecagg.lab.audit.audit_report import AuditSettings
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.protocol import RoundOptions

ATTACKED = ("pairwise", "sliced")


def run(config: Config, seed: int, work: Work) -> Findings:
    """Measure all points of both halves."""
    points = [Drawing(clients, config.dim, alpha) for clients in config.cohorts for alpha in config.alphas]
    attacked = [
        (pattern, clients, alpha)
        for clients in config.audit_cohorts
        for alpha in config.audit_alphas
        for pattern in ATTACKED
    ]
    total = len(points) + len(attacked)
    contributors: list[dict[str, Any]] = []
    revealed: list[dict[str, Any]] = []
    for number, drawing in enumerate(points):
        work.report(f"N={drawing.clients}, α={drawing.alpha:g}", number, total)
        key = f"sample-{drawing.clients}-{drawing.alpha:g}"
        counts = work.cell(key, partial(_sample, config, drawing, [seed, number]))
        if drawing.clients == max(config.cohorts):
            contributors += [_contributors(config, drawing, dropout, counts) for dropout in config.dropouts]
        revealed.append(_revealed(config, drawing, counts[f"{config.dropout:g}"]))
    audits = []
    for number, (pattern, clients, alpha) in enumerate(attacked, len(points)):
        work.report(f"{pattern}, N={clients}, α={alpha:g}: attack", number, total)
        audits.append(
            work.cell(f"audit-{pattern}-{clients}-{alpha:g}", partial(_audit, config, pattern, clients, alpha, seed))
        )
    work.report("done", total, total)
    return Findings(
        {"contributors": contributors, "test": _test(contributors), "revealed": revealed, "audits": audits}, {}
    )


def _sample(config: Config, drawing: Drawing, seed: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    dropouts = config.dropouts if drawing.clients == max(config.cohorts) else (config.dropout,)
    return sample(drawing, dropouts, config.colluding, config.rounds, seed)


def _contributors(config: Config, drawing: Drawing, dropout: float, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the mean T of the sampled rounds with what it should be."""
    rounds = counts[f"{dropout:g}"]
    measured = fmean(one["contributors"] for one in rounds)
    expected = drawing.promised(dropout, config.colluding)
    error = math.sqrt(variance_of_a_round(drawing, dropout, config.colluding) / len(rounds))
    share = colluder_count(drawing.clients, config.colluding) / drawing.clients
    return {
        "clients": drawing.clients,
        "alpha": drawing.alpha,
        "dropout": dropout,
        "measured": measured,
        "expected": expected,
        # The theorem's own words, the limit for large N.
        "theorem_2": anonymity_limit(drawing.alpha, drawing.clients, dropout, share),
        "standard_error": error,
        "z": (measured - expected) / error,
        "rounds": len(rounds),
    }


def _test(contributors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Test all points at once: with this error rate none of the z exceeds the limit, if theory is right."""
    limit = -NormalDist().inv_cdf(ERROR_RATE / (2 * len(contributors)))
    worst = max(abs(one["z"]) for one in contributors)
    return {
        "what": "T as sampled against p(1−θ)(N−A), all points together",
        "error_rate": ERROR_RATE,
        "points": len(contributors),
        "largest_z": worst,
        "limit": limit,
        "root_mean_square_z": math.sqrt(fmean(one["z"] ** 2 for one in contributors)),
        "holds": worst <= limit,
    }


def _revealed(config: Config, drawing: Drawing, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares singled out and revealed over all rounds, with the extremes of single rounds, and theory's."""
    setting = (drawing.alpha, drawing.clients, config.dropout, config.colluding)
    return {
        "clients": drawing.clients,
        "alpha": drawing.alpha,
        "singled_out": share_of_rounds(rounds, "singled_out", pairwise_singled_out_fraction(*setting)),
        "revealed": share_of_rounds(rounds, "revealed", pairwise_revealed_fraction(*setting)),
    }


def share_of_rounds(rounds: Sequence[Mapping[str, Any]], name: str, expected: float) -> dict[str, Any]:
    """Return a share of values over all rounds; its error is that of a ratio of two means over rounds."""
    values = fmean(one["values"] for one in rounds)
    mean = fmean(one[name] for one in rounds) / values
    error = stdev(one[name] - mean * one["values"] for one in rounds) / math.sqrt(len(rounds)) / values
    shares = [one[name] / max(1, one["values"]) for one in rounds]
    return {"mean": mean, "min": min(shares), "max": max(shares), "standard_error": error, "theory": expected}


def _audit(config: Config, pattern: str, clients: int, alpha: float, seed: int) -> dict[str, Any]:
    """Attack whole rounds, one by one for the extremes; each is of a run of its own."""
    options = RoundOptions(pattern=pattern, alpha=alpha, threshold=majority(clients), dropout=config.dropout)
    rounds = [
        run_audit(AuditSettings(clients, config.audit_dim, options, config.colluding, 1, seed + number))
        for number in range(config.audit_rounds)
    ]
    values = sum(one.tally.values for one in rounds)
    shares = [one.revealed_fraction for one in rounds]
    return {
        "pattern": pattern,
        "clients": clients,
        "alpha": alpha,
        "revealed": {
            "mean": sum(one.tally.read.count for one in rounds) / values,
            "min": min(shares),
            "max": max(shares),
        },
        "singled_out": sum(one.tally.singled_out for one in rounds) / values,
        "fewest_in_a_sum": min(min(one.tally.by_size) for one in rounds),
        "read_correctly": sum(one.tally.read.correct for one in rounds),
        "read": sum(one.tally.read.count for one in rounds),
        "values": values,
        "rounds": len(rounds),
    }
