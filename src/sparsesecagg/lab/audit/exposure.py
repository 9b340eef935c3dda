"""What a semi-honest server and its colluders are expected to read, by pattern: for audits and for runs of training."""

from __future__ import annotations

from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.policy import kept_by


def expected_fraction(params: Parameters, colluding: float) -> float | None:
    """Return the share of the uploaded values that theory says is revealed, on average over many runs.

    Nothing, where every value that is opened is a sum of two honest users or more; None where no such promise holds.
    """
    if not params.shape.protects:
        return pairwise_revealed_fraction(params.alpha, params.clients, params.dropout, colluding)
    return 0.0 if kept_by(params, "semi-honest", colluding).anonymity > 1 else None
