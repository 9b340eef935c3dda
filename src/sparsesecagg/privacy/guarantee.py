"""Among how many honest survivors every value is sure to hide, for given settings; the planner asks the other way."""

from __future__ import annotations

import math
from fractions import Fraction

from sparsesecagg.patterns.anonymity import colluder_count
from sparsesecagg.patterns.committee import served_fraction
from sparsesecagg.privacy.overlapping import log_privacy_failure
from sparsesecagg.protocol import RoundParameters

ALONE = 1


def guaranteed_anonymity(params: RoundParameters, *, dropout: float, colluding: float, failure_log2: float) -> int:
    """Return the largest T such that every opened sum has T honest survivors, but for a chance of 2^`failure_log2`.

    1 means alone: the server may read the value. `pairwise` is always there, because some edges of its sparse graph
    lead only to users who dropped out or collude.
    """
    if params.pattern == "pairwise":
        return ALONE
    share = Fraction(1) if params.pattern == "full" else served_fraction(params.pattern_settings)
    stripes = -(-params.layout.blocks // share.denominator)
    colluders = colluder_count(params.clients, colluding)

    def holds(anonymity: int) -> bool:
        log_failure = log_privacy_failure(
            params.clients, colluders, share, stripes, dropout=dropout, anonymity=anonymity
        )
        return log_failure <= failure_log2 * math.log(2)

    return max((count for count in range(2, params.clients - colluders + 1) if holds(count)), default=ALONE)
