"""What a curious server and its colluders are expected to read, by pattern: for audits and for runs of training."""

from __future__ import annotations

from sparsesecagg.lab.audit.theory import committee_revealed_fraction, pairwise_revealed_fraction
from sparsesecagg.protocol import Parameters


def expected_fraction(params: Parameters, colluding: float, missing: float | None = None) -> float:
    """Return the share of the uploaded values that theory says is revealed, on average over many runs.

    `missing` is the chance that a member of a committee is not in a round, the dropout rate by default; where packages
    travel ahead it is higher.
    """
    if params.pattern == "pairwise":
        return pairwise_revealed_fraction(params.alpha, params.clients, params.dropout, colluding)
    gone = params.dropout if missing is None else missing
    return committee_revealed_fraction(params.clients, params.committees, gone, colluding, params.min_survivors)
