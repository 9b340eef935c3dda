"""Warnings about settings that are allowed but protect little or fail often; each names what would do."""

from __future__ import annotations

from math import floor

from sparsesecagg.patterns import served_fraction, smallest_committee
from sparsesecagg.privacy.tails import distinct_blocks, independent_or_better, log_refusal
from sparsesecagg.protocol import RoundParameters

FEW_MEMBERS = 8
LIKELY_REFUSAL = 0.05
PAIRWISE_WARNING = (
    "pairwise, the published pattern, reveals many single values to the server: use it to study, not to protect "
    "(docs/privacy.md)"
)


def refusal_probability(params: RoundParameters) -> float:
    """Return the chance that clients refuse a round of committees because a block has too few survivors."""
    share = served_fraction(params.pattern_settings)
    stripes = params.layout.blocks // share.denominator
    one = log_refusal(params.clients, share, params.dropout, params.min_survivors)
    return independent_or_better((one, distinct_blocks(share, stripes)))


def advice(params: RoundParameters) -> list[str]:
    """Return one sentence for each thing that a user of these settings should know."""
    if params.pattern == "pairwise":
        return [PAIRWISE_WARNING]
    if params.pattern != "committee":
        return []
    sentences = []
    members = smallest_committee(params.pattern_settings)
    if members < min(FEW_MEMBERS, params.clients):
        enough = min(1.0, FEW_MEMBERS / params.clients)
        sentences.append(
            f"committees of {members} hide a user among few others: --alpha {_rounded_up(enough)} gives {FEW_MEMBERS} "
            "or more"
        )
    chance = refusal_probability(params)
    if chance > LIKELY_REFUSAL:
        better = _least_alpha(params)
        remedy = f"--alpha {better} would do" if better else "lower --min-survivors or --dropout"
        sentences.append(
            f"clients will refuse about {100 * chance:.0f} % of rounds at this dropout, because some block would keep "
            f"fewer than {params.min_survivors} survivors: {remedy}"
        )
    return sentences


def _least_alpha(params: RoundParameters) -> str | None:
    """Return the smallest α, in hundredths, from which on refusals are rare."""
    for percent in range(floor(100 * params.alpha) + 1, 101):
        candidate = params.replace(alpha_q32=(percent << 32) // 100)
        if refusal_probability(candidate) <= LIKELY_REFUSAL:
            return f"{percent / 100:g}"
    return None


def _rounded_up(alpha: float) -> str:
    """Return α with three digits, not below it."""
    return f"{min(1.0, -(-alpha * 1000 // 1) / 1000):g}"
