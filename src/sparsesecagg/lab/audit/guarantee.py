"""Among how many honest survivors every value is sure to hide, for given settings; the planner asks the other way."""

from __future__ import annotations

from sparsesecagg.privacy.anonymity import Server, colluder_count, kept_anonymity
from sparsesecagg.protocol import Parameters

ALONE = 1


def guaranteed_anonymity(
    params: Parameters, *, dropout: float, colluding: float, failure_log2: float, server: Server = "curious"
) -> int:
    """Return the largest T such that every opened sum has T honest survivors, but for a chance of 2^`failure_log2`.

    1 means alone: the server may read the value. `pairwise` is always there, because some edges of its sparse graph
    lead only to users who dropped out or collude.
    """
    if params.pattern == "pairwise":
        return ALONE
    kept = kept_anonymity(
        params.structure,
        allowed_log2=failure_log2,
        colluders=colluder_count(params.clients, colluding),
        server=server,
        confirm=params.confirm,
        dropout=dropout,
    )
    return max(ALONE, kept)
