"""Patterns: who sends what, who masks with whom.

base        the interface, all that client and server know
full        everybody sends everything (SecAgg, SecAgg+)
pairwise    the published sparse pattern
committee   ours: public random committees
layout      coordinates cut into blocks
graphs      public permutations and k-regular graphs
gaps        Bernoulli patterns by their gaps, integers only
sizes       how many users each pod and committee has
jury        how many users draw the groups
tails       exact tail probabilities
anonymity   what groups of given sizes promise
"""

from sparsesecagg.patterns.base import Pattern, PatternSettings
from sparsesecagg.patterns.committee import (
    DEFAULT_STRIPES,
    SMALLEST_COMMITTEE,
    Committee,
    served_fraction,
    smallest_committee,
)
from sparsesecagg.patterns.full import Full
from sparsesecagg.patterns.layout import ALL, BlockIds, Layout
from sparsesecagg.patterns.pairwise import Pairwise

PATTERNS: dict[str, type[Pattern]] = {pattern.name: pattern for pattern in (Full, Pairwise, Committee)}

__all__ = [
    "ALL",
    "DEFAULT_STRIPES",
    "PATTERNS",
    "SMALLEST_COMMITTEE",
    "BlockIds",
    "Committee",
    "Full",
    "Layout",
    "Pairwise",
    "Pattern",
    "PatternSettings",
    "served_fraction",
    "smallest_committee",
]
