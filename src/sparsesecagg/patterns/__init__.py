"""Patterns: who sends what, who masks with whom.

groups      pods and committees, drawn once and kept
slices      the parts of the model that committees send, which rotate
pairwise    the published sparse pattern
graphs      public permutations and k-regular graphs
gaps        Bernoulli patterns by their gaps, integers only
sizes       how many users each pod and committee has
jury        how many users draw the groups
tails       exact tail probabilities
anonymity   what groups of given sizes promise
"""

from sparsesecagg.patterns.groups import SMALLEST_COMMITTEE, Groups, Pod, draw_groups
from sparsesecagg.patterns.sizes import group_sizes
from sparsesecagg.patterns.slices import Slices

PATTERNS = ("full", "pairwise", "committee")

__all__ = ["PATTERNS", "SMALLEST_COMMITTEE", "Groups", "Pod", "Slices", "draw_groups", "group_sizes"]
