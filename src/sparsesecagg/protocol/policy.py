"""The client's own policy: what it demands of a round, whatever the server says.

A server chooses the parameters, so a client that believed them would protect nobody. Every client checks them against
its own policy before it sends anything, and the survivors before it helps to open the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from sparsesecagg.errors import PolicyViolation
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.membership import Members
from sparsesecagg.protocol.parameters import RoundParameters


@dataclass(frozen=True)
class Policy:
    """What a client demands."""

    min_clients: int = 3
    """The least cohort."""
    min_threshold: float = 0.5
    """A secret may be restored only by more than this fraction of its holders."""
    min_survivors: int = 2
    """The least number of users whose sum may be opened, in any block."""
    max_exposure: float = inf
    """The most that α times this client's weight may be: how much of its influence one round may carry."""
    authenticated: bool = False
    """Take part only in rounds that are bound to a roster of identities."""
    patterns: frozenset[str] = frozenset(PATTERNS)
    modulus_bits: frozenset[int] = frozenset(WORD_BITS)

    def check_parameters(self, params: RoundParameters) -> None:
        """Raise `PolicyViolation` if the round's parameters ask for less than this policy demands."""
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
            "the round is not authenticated, the policy demands a roster",
        )
        _demand(params.pattern in self.patterns, f"the pattern {params.pattern!r} is not allowed by the policy")
        _demand(
            params.modulus_bits in self.modulus_bits,
            f"words of {params.modulus_bits} bits are not allowed by the policy",
        )

    def check_weight(self, params: RoundParameters, weight: int) -> None:
        """Raise if this client would put more into the round than it allows."""
        exposure = params.selection_probability * weight
        _demand(
            exposure <= self.max_exposure,
            # The weight is private, and this text may reach the server: no number.
            "α times this client's weight is more than its policy allows",
        )

    def check_present(self, stage: str, present: int, params: RoundParameters) -> None:
        """Raise if too few users are left for the sum to hide anybody."""
        # More than half of the cohort, even where a sparse graph has a lower threshold of its own.
        needed = max(self.min_survivors, params.threshold, params.clients // 2 + 1)
        _demand(present >= needed, f"only {present} users are present at {stage}, {needed} are needed")

    def check_survivors(self, members: Members, survivors: Users) -> None:
        """Raise if any block, one's own or another's, would be opened with too few survivors."""
        params = members.directory.params
        self.check_present("UNMASK", len(survivors), params)
        least = max(self.min_survivors, params.min_survivors)
        per_block = members.pattern.survivors_per_block(survivors)
        if per_block is not None:
            block = int(np.argmin(per_block))
            _demand(
                int(per_block[block]) >= least,
                f"block {block} would be opened with {int(per_block[block])} survivors, {least} are the least",
            )


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PolicyViolation(problem)
