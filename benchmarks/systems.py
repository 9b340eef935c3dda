"""Our four systems, one round each through `run_round`: real messages, real clients, one server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.cohort import CLIP, Cohort
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import RoundParameters, Stage, run_round

OURS = ("secagg", "secagg_plus", "pairwise", "committee")
PUBLISHED_BITS = 32


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


def parameters(system: str, cohort: Cohort) -> RoundParameters:
    """Return the round that a system runs for a cohort."""
    pattern, degree, bits = {
        "secagg": ("full", None, PUBLISHED_BITS),
        "secagg_plus": ("full", cohort.plus_degree(), PUBLISHED_BITS),
        "pairwise": ("pairwise", None, cohort.modulus_bits),
        "committee": ("committee", None, cohort.modulus_bits),
    }[system]
    Word.of(bits)  # Refuses a size that there is no word of.
    for wide_enough in (width for width in WORD_BITS if width >= bits):
        try:
            return RoundParameters.create(
                clients=cohort.clients,
                dim=cohort.dim,
                pattern=pattern,
                alpha=cohort.alpha if pattern in _SPARSE else 1.0,
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


_SPARSE = frozenset(PATTERNS) - {"full"}


def measure(system: str, cohort: Cohort) -> Measurement:
    """Run one round of one of our systems."""
    return measure_round(parameters(system, cohort), cohort)


def measure_planned(cohort: Cohort, plan: dict[str, Any]) -> Measurement:
    """Run one round of the committee pattern with a planner's settings."""
    params = RoundParameters.create(
        clients=cohort.clients, dim=cohort.dim, dropout=cohort.dropout, clip=CLIP, pattern="committee", **plan
    )
    return measure_round(params, cohort)


def measure_round(params: RoundParameters, cohort: Cohort) -> Measurement:
    """Run one round; `exact` says that the sum equals the plain sum of the survivors' quantised values."""
    _ = cohort.noise, cohort.dropped  # Made now, so that nobody's stage pays for them.
    outcome = run_round(params, cohort.update, drops=dict.fromkeys(cohort.dropped, Stage.UPLOAD))
    result = outcome.result
    return Measurement(
        client_seconds=dict(outcome.client_seconds),
        server_seconds=dict(outcome.server_seconds),
        sent_bytes=result.mean_bytes(result.sent_bytes)["total"],
        received_bytes=result.mean_bytes(result.received_bytes)["total"],
        exact=outcome.exact,
        settings={
            "modulus_bits": params.modulus_bits,
            "neighbours": params.neighbours or cohort.clients - 1,
            "threshold": params.threshold,
            "alpha_effective": float(np.round(params.selection_probability, 6)),
        },
    )
