"""Warnings about settings that are allowed but protect little or fail often; each names what would do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import floor

from sparsesecagg.patterns import Committee, PatternSettings, served_fraction, smallest_committee
from sparsesecagg.privacy.overlapping import distinct_blocks, independent_or_better, log_refusal
from sparsesecagg.protocol import RoundParameters

FEW_MEMBERS = 8
LIKELY_REFUSAL = 0.05
PAIRWISE_WARNING = (
    "pairwise, the published pattern, reveals many single values to the server: use it to study, not to protect "
    "(docs/privacy.md)"
)


def refusal_probability(params: RoundParameters) -> float:
    """Return the chance that clients refuse a round of committees because a block has too few survivors."""
    return _refusal(params.pattern_settings, params)


def _refusal(settings: PatternSettings, params: RoundParameters) -> float:
    """Return the same for other settings of the pattern."""
    share = served_fraction(settings)
    stripes = Committee.make_layout(settings).blocks // share.denominator
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
        wanted = min(FEW_MEMBERS, params.clients)
        enough = _least_alpha(params, lambda settings: smallest_committee(settings) >= wanted)
        sentences.append(
            f"committees of {members} hide a user among few others: --alpha {enough} gives {wanted} or more"
        )
    chance = refusal_probability(params)
    if chance > LIKELY_REFUSAL:
        better = _least_alpha(params, lambda settings: _refusal(settings, params) <= LIKELY_REFUSAL)
        remedy = f"--alpha {better} would do" if better else "lower --min-survivors or --dropout"
        sentences.append(
            f"clients will refuse about {100 * chance:.0f} % of rounds at this dropout, because some block would keep "
            f"fewer than {params.min_survivors} survivors: {remedy}"
        )
    return sentences


def _least_alpha(params: RoundParameters, enough: Callable[[PatternSettings], bool]) -> str | None:
    """Return the smallest α above the present one, in hundredths, that is enough."""
    for percent in range(floor(100 * params.alpha) + 1, 101):
        if enough(replace(params.pattern_settings, alpha=round(percent * 2**32 / 100))):
            return f"{percent / 100:g}"
    return None
