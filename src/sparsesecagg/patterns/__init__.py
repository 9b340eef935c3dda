"""Patterns: who sends what, who masks with whom.

base        the interface: `Pattern` in a run, `MaskedSum` of a group in a round, `GroupSum` when it is opened
sliced      everybody in a group sends the same public random part; `full` is the same with α = 1
pairwise    the published sparse pattern; gaps: its Bernoulli patterns
groups      who is in which group
masks       deriving masks and adding them up

A new pattern is one class in one file, and one line here.
"""

from sparsesecagg.patterns.base import Pattern
from sparsesecagg.patterns.pairwise import Pairwise
from sparsesecagg.patterns.sliced import Full, Sliced

PATTERNS: dict[str, type[Pattern]] = {pattern.name: pattern for pattern in (Sliced, Full, Pairwise)}


def pattern_of(name: str) -> str:
    """Return a pattern by any of its names: full also goes by the protocol's, secagg."""
    return "full" if name == "secagg" else name
