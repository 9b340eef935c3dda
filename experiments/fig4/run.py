"""Draw patterns, attack rounds, and put theory beside both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import NormalDist, fmean, stdev
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.work import Work
from experiments.fig4.config import ERROR_RATE, Config
from experiments.fig4.sampling import promised, sample, variance_of_a_round
from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.lab.audit.audit import AuditSettings, run_audit
from sparsesecagg.lab.audit.theory import (
    anonymity_limit,
    committee_revealed_fraction,
    pairwise_revealed_fraction,
    pairwise_singled_out_fraction,
)
from sparsesecagg.protocol import Parameters

PATTERNS = ("pairwise", "committee")


def run(config: Config, seed: int, work: Work) -> Findings:
    """Measure all points of both halves."""
    points = [
        params
        for clients in config.cohorts
        for alpha in config.alphas
        for pattern in PATTERNS
        if (params := parameters(config, pattern, clients, alpha, config.dim))
    ]
    attacked = [
        params
        for clients in config.audit_cohorts
        for alpha in config.audit_alphas
        for pattern in PATTERNS
        if (params := parameters(config, pattern, clients, alpha, config.audit_dim))
    ]
    total = len(points) + len(attacked)
    contributors: list[dict[str, Any]] = []
    revealed: list[dict[str, Any]] = []
    for number, params in enumerate(points):
        work.report(_name(params), number, total)
        counts = work.cell(f"sample-{_key(params)}", partial(_sample, config, params, [seed, number]))
        if params.clients == max(config.cohorts):
            contributors += [_contributors(config, params, dropout, counts) for dropout in config.dropouts]
        revealed.append(_revealed(config, params, counts[f"{config.dropout:g}"]))
    audits = []
    for number, params in enumerate(attacked, len(points)):
        work.report(f"{_name(params)}: attack", number, total)
        audits.append(work.cell(f"audit-{_key(params)}", partial(_audit, config, params, seed)))
    work.report("done", total, total)
    return Findings(
        {"contributors": contributors, "test": _test(contributors), "revealed": revealed, "audits": audits}, {}
    )


def parameters(config: Config, pattern: str, clients: int, alpha: float, dim: int) -> Parameters | None:
    """Return a point's parameters; None where α leaves committees that are too small."""
    try:
        return Parameters.create(clients=clients, dim=dim, pattern=pattern, alpha=alpha, dropout=config.dropout)
    except InvalidInput as refused:
        if refused.option != "alpha":
            raise
        return None


def _name(params: Parameters) -> str:
    return f"{params.pattern}, N={params.clients}, α={params.alpha:.3g}"


def _key(params: Parameters) -> str:
    return f"{params.pattern}-{params.clients}-{params.alpha:.3g}"


def _sample(config: Config, params: Parameters, seed: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    dropouts = config.dropouts if params.clients == max(config.cohorts) else (config.dropout,)
    return sample(params, dropouts, config.colluding, config.rounds, seed)


def _contributors(config: Config, params: Parameters, dropout: float, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the mean T of the sampled rounds with what it should be."""
    rounds = counts[f"{dropout:g}"]
    measured = fmean(one["contributors"] for one in rounds)
    expected = promised(params, dropout, config.colluding)
    error = math.sqrt(variance_of_a_round(params, dropout, config.colluding) / len(rounds))
    share = colluder_count(params.clients, config.colluding) / params.clients
    return {
        "pattern": params.pattern,
        "clients": params.clients,
        "alpha": _asked(config, params),
        "alpha_effective": params.selection_probability,
        "dropout": dropout,
        "measured": measured,
        "fewest": min(one["fewest"] for one in rounds),
        "expected": expected,
        # The theorem's own words, the limit for large N; it is about the published pattern only.
        "theorem_2": anonymity_limit(params.alpha, params.clients, dropout, share)
        if params.pattern == "pairwise"
        else None,
        "standard_error": error,
        # Without dropouts every committee pattern has exactly its mean.
        "z": (measured - expected) / error if error > 0 else 0.0,
        "rounds": len(rounds),
    }


def _asked(config: Config, params: Parameters) -> float:
    """Return the α of the configuration; the parameters hold it rounded to 2^−32."""
    return min({*config.alphas, *config.audit_alphas}, key=lambda alpha: abs(alpha - params.alpha))


def _test(contributors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Test all points at once: with this error rate none of the z exceeds the limit, if theory is right."""
    random = [one for one in contributors if one["standard_error"] > 0]
    fixed = [one for one in contributors if one["standard_error"] == 0]
    limit = -NormalDist().inv_cdf(ERROR_RATE / (2 * len(random)))
    worst = max(abs(one["z"]) for one in random)
    return {
        "what": "T as sampled against p(1−θ)(N−A), all points together",
        "error_rate": ERROR_RATE,
        "points": len(contributors),
        "largest_z": worst,
        "limit": limit,
        "root_mean_square_z": math.sqrt(fmean(one["z"] ** 2 for one in random)),
        "holds": worst <= limit and all(abs(one["measured"] - one["expected"]) < 1e-9 for one in fixed),
    }


def _revealed(config: Config, params: Parameters, rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares singled out and revealed over all rounds, with the extremes of single rounds, and theory's."""
    setting = (params.alpha, params.clients, config.dropout, config.colluding)
    if params.pattern == "pairwise":
        theory = {
            "singled_out": pairwise_singled_out_fraction(*setting),
            "revealed": pairwise_revealed_fraction(*setting),
        }
    else:
        groups = (params.clients, params.committees, config.dropout, config.colluding)
        theory = {
            # As the paper counts: whoever is alone, whether or not clients would open such a sum.
            "singled_out": committee_revealed_fraction(*groups),
            "revealed": committee_revealed_fraction(*groups, params.min_survivors),
        }
    return {
        "pattern": params.pattern,
        "clients": params.clients,
        "alpha": _asked(config, params),
        "alpha_effective": params.selection_probability,
        "singled_out": share_of_rounds(rounds, "singled_out", "values", theory["singled_out"]),
        "revealed": share_of_rounds(rounds, "revealed", "opened", theory["revealed"]),
    }


def share_of_rounds(
    rounds: Sequence[Mapping[str, Any]], name: str, among: str, expected: float | None = None
) -> dict[str, Any]:
    """Return a share of values over all rounds; its error is that of a ratio of two means over rounds."""
    values = fmean(one[among] for one in rounds)
    mean = fmean(one[name] for one in rounds) / values
    error = stdev(one[name] - mean * one[among] for one in rounds) / math.sqrt(len(rounds)) / values
    shares = [one[name] / max(1, one[among]) for one in rounds]
    return {"mean": mean, "min": min(shares), "max": max(shares), "standard_error": error, "theory": expected}


def _audit(config: Config, params: Parameters, seed: int) -> dict[str, Any]:
    """Attack whole rounds, one by one for the extremes; each is of a run of its own, with its own groups."""
    rounds = [
        run_audit(AuditSettings(params, config.colluding, 1, seed + number)) for number in range(config.audit_rounds)
    ]
    values = max(1, sum(one.tally.values for one in rounds))
    shares = [one.revealed_fraction for one in rounds]
    return {
        "pattern": params.pattern,
        "clients": params.clients,
        "alpha": _asked(config, params),
        "alpha_effective": params.selection_probability,
        "revealed": {
            "mean": sum(one.tally.read.count for one in rounds) / values,
            "min": min(shares),
            "max": max(shares),
        },
        "singled_out": sum(one.tally.singled_out for one in rounds) / values,
        "read_correctly": sum(one.tally.read.correct for one in rounds),
        "read": sum(one.tally.read.count for one in rounds),
        "values": values,
        "rounds": len(rounds),
        "refused_rounds": sum(one.tally.unopened for one in rounds),
        "values_not_opened": sum(one.tally.closed for one in rounds),
    }
