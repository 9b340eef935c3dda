"""The client's own policy: what it demands of a run, whatever the server says.

A server chooses the parameters, so a client that believed them would protect nobody. Every client checks them against
its own policy before it sends anything, and the survivors before it helps to open a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sparsesecagg.errors import PolicyViolation
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol.parameters import Parameters


@dataclass(frozen=True)
class Policy:
    """What a client demands."""

    min_clients: int = 3
    """The smallest cohort."""
    min_threshold: float = 0.5
    """A secret may be restored only by more than this fraction of its holders."""
    min_survivors: int = 2
    """The smallest number of users whose sum may be opened, in any committee."""
    max_exposure: float = inf
    """The most that α times this client's weight may be: how much of its influence one round may carry."""
    authenticated: bool = False
    """Take part only in runs that are bound to a roster of identities."""
    patterns: frozenset[str] = frozenset(PATTERNS)
    modulus_bits: frozenset[int] = frozenset(WORD_BITS)

    def check_parameters(self, params: Parameters) -> None:
        """Raise `PolicyViolation` if the run's parameters ask for less than this policy demands."""
        _demand(
            params.clients >= self.min_clients,
            f"the cohort has {params.clients} users, the policy demands {self.min_clients}",
        )
        _demand(
            params.threshold > self.min_threshold * params.holders,
            f"the threshold {params.threshold} is not above {self.min_threshold:g} of the {params.holders} holders",
        )
        _demand(
            params.authenticated or not self.authenticated,
            "the run is not authenticated, the policy demands a roster",
        )
        _demand(params.pattern in self.patterns, f"the pattern {params.pattern!r} is not allowed by the policy")
        _demand(
            params.modulus_bits in self.modulus_bits,
            f"words of {params.modulus_bits} bits are not allowed by the policy",
        )

    def check_weight(self, params: Parameters, weight: int) -> None:
        """Raise if this client would put more into the round than it allows."""
        exposure = params.selection_probability * weight
        _demand(
            exposure <= self.max_exposure,
            # The weight is private, and this text may reach the server: no number.
            "α times this client's weight is more than its policy allows",
        )


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PolicyViolation(problem)
