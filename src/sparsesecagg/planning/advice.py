"""Warnings about settings that are allowed but protect little or fail often; each names what would help."""

from __future__ import annotations

from sparsesecagg.privacy.anonymity import failed_rounds
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.policy import kept_by

MANY_FAILED = 0.05
"""Failing rounds beyond this fraction are worth a note."""
PAIRWISE_WARNING = (
    "pairwise, the published pattern, reveals many single values to the server: use it to study, not to protect "
    "(docs/privacy.md)"
)


def advice(params: Parameters) -> list[str]:
    """Return one sentence for each thing that a user of these settings should know."""
    sentences = [] if params.shape.protects else [PAIRWISE_WARNING]
    size = params.clients // params.groups
    failed = failed_rounds(size, params.quorum, params.dropout)
    if failed > MANY_FAILED:
        what = "of the rounds fail" if params.groups == 1 else "of the rounds lose a given group"
        remedy = "lower --dropout or --threshold" if params.quorum > size // 2 + 1 else "lower --dropout"
        sentences.append(f"about {failed:.0%} {what}, with fewer than {params.quorum} of {size} users left: {remedy}")
    if params.authenticated and params.shape.protects:
        promise = kept_by(params, "malicious", params.colluding)
        if promise.anonymity < 2:
            sentences.append(
                f"groups of {params.contributors} with up to {promise.colluders} colluding users and a threshold of "
                f"{params.threshold} protect nobody from a malicious server: raise --group-size or --threshold"
            )
    return sentences
