"""Warnings about settings that are allowed but protect little or fail often; each names what would do."""

from __future__ import annotations

from sparsesecagg.protocol import Parameters

FEW_MEMBERS = 8
LIKELY_THIN = 0.2
FAR_ALPHA = 0.1
PAIRWISE_WARNING = (
    "pairwise, the published pattern, reveals many single values to the server: use it to study, not to protect "
    "(docs/privacy.md)"
)


def advice(params: Parameters) -> list[str]:
    """Return one sentence for each thing that a user of these settings should know."""
    if params.pattern == "pairwise":
        return [PAIRWISE_WARNING]
    if params.pattern != "committee":
        return []
    sentences = []
    used = params.selection_probability
    if used == 1 > params.alpha:
        sentences.append(
            f"alpha {params.alpha:.3g} rounds to one committee that sends everything: nothing is sparse; "
            "--alpha 0.5 or less, or a --committee-size, makes it so"
        )
    elif abs(used - params.alpha) > FAR_ALPHA * params.alpha:
        sentences.append(
            f"alpha is {used:.3g} instead of {params.alpha:.3g}: {params.committees} committees send "
            f"{params.served} of {params.committees} slices each; set committee_size to choose alpha more finely"
        )
    members, wanted = params.smallest_committee, min(FEW_MEMBERS, params.clients)
    if members < wanted:
        sentences.append(
            f"committees of {members} hide a user among few others: --committee-size {wanted} makes them larger"
        )
    return sentences
