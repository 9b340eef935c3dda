"""Our four systems, one round in steady state each: real messages, real clients, one server.

The set-up of a run (sealing keys, groups, the packages of the first two rounds) happens once and is reported apart.
A round then deals one package ahead of time, which counts: SHARE_KEYS, UPLOAD and UNMASK are what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.cohort import ANY_RUN, CLIP, Cohort
from sparsesecagg.simulate import InProcessRun, run_round
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.protocol import Parameters, Stage

OURS = ("secagg", "secagg_plus", "pairwise", "committee")
PUBLISHED_BITS = 32
_SMALL = 64
"""Coordinates per committee of the round that warms up: keys, shares and tags are those of the real one."""


@dataclass(frozen=True)
class Measurement:
    """What one round of one system cost."""

    client_seconds: dict[str, float]
    """By stage: mean per client that took part, and their total."""
    server_seconds: dict[str, float]
    sent_bytes: float
    """Mean per client over all stages."""
    received_bytes: float
    """The same, without the model itself."""
    exact: bool
    """The aggregate is what the system promises: see the function that measured it."""
    settings: dict[str, Any]
    setup: dict[str, float] = field(default_factory=dict)
    """Once per run, per client: seconds, bytes sent and received. Empty where every round sets up anew."""


def parameters(system: str, cohort: Cohort) -> Parameters:
    """Return the run of a system with a cohort."""
    pattern, degree, bits = {
        "secagg": ("full", None, PUBLISHED_BITS),
        "secagg_plus": ("full", cohort.plus_degree(), PUBLISHED_BITS),
        "pairwise": ("pairwise", None, cohort.modulus_bits),
        "committee": ("committee", None, cohort.modulus_bits),
    }[system]
    Word.of(bits)  # Refuses a size that there is no word of.
    for wide_enough in (width for width in WORD_BITS if width >= bits):
        try:
            return Parameters.create(
                clients=cohort.clients,
                dim=cohort.dim,
                pattern=pattern,
                alpha=None if pattern == "full" else cohort.alpha,
                dropout=cohort.dropout,
                modulus_bits=wide_enough,
                neighbours=degree,
                clip=CLIP,
            )
        except InvalidInput as problem:
            # `pairwise` may have N contributors at a coordinate, too many for some words that suit a committee.
            if problem.option != "modulus_bits" or pattern != "pairwise" or wide_enough == max(WORD_BITS):
                raise
    raise AssertionError("the longest word holds every cohort")


def measure(system: str, cohort: Cohort) -> Measurement:
    """Run one round of one of our systems."""
    return measure_round(parameters(system, cohort), cohort)


def measure_planned(cohort: Cohort, plan: dict[str, Any]) -> Measurement:
    """Run one round of the committee pattern with a planner's settings."""
    params = Parameters.create(
        clients=cohort.clients, dim=cohort.dim, dropout=cohort.dropout, clip=CLIP, pattern="committee", **plan
    )
    return measure_round(params, cohort)


def measure_round(params: Parameters, cohort: Cohort) -> Measurement:
    """Run one round; `exact` says that the sum equals the plain sum of the survivors' quantised values."""
    _ = cohort.noise, cohort.dropped  # Made now, so that nobody's stage pays for them.
    drops = dict.fromkeys(cohort.dropped, Stage.UPLOAD)
    small = params.replace(dim=min(params.dim, _SMALL * params.committees))
    run_round(small, lambda user: cohort.update(user)[: small.dim], drops=drops, policy=ANY_RUN)
    run = InProcessRun(params, policy=ANY_RUN)
    outcome = run.round(cohort.update, drops=drops)
    result = outcome.result
    return Measurement(
        client_seconds=dict(outcome.client_seconds),
        server_seconds=dict(outcome.server_seconds),
        sent_bytes=result.mean_bytes(result.sent_bytes)["total"],
        received_bytes=result.mean_bytes(result.received_bytes)["total"],
        exact=outcome.exact,
        settings={
            "modulus_bits": params.modulus_bits,
            "neighbours": params.holders - 1,
            "threshold": params.threshold,
            "alpha_effective": float(np.round(params.selection_probability, 6)),
            "committees": params.committees,
            "committees_opened": result.committees_opened,
            "pods": params.pods,
        },
        setup=setup_costs(run),
    )


def setup_costs(run: InProcessRun) -> dict[str, float]:
    """Return what the set-up of a run cost a client, once: its keys, the groups, and the first two packages."""
    stages = (Stage.ADVERTISE_KEYS, Stage.DRAW, Stage.SHARE_KEYS)
    return {
        "client_seconds": run.setup_clock.client_means(stages)["total"],
        "server_seconds": run.setup_clock.server_totals(stages)["total"],
        "sent_bytes": _mean_total(run.setup_sent, run.params.clients),
        "received_bytes": _mean_total(run.setup_received, run.params.clients),
    }


def _mean_total(sizes: dict[str, dict[int, int]], clients: int) -> float:
    return sum(sum(by_user.values()) for by_user in sizes.values()) / clients
