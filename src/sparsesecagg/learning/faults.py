"""Simulated faults and a simulated network. Nothing in here is measured; whatever it gives is labelled so.

Computing is measured and transfer is modelled; the two are never added up without being shown apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsesecagg.learning.seeds import Purpose, generator
from sparsesecagg.protocol import Stage

BITS_PER_MEGABIT = 1e6


def draw_dropouts(
    clients: int, dropout: float, stages: Sequence[Stage], seed: int, round_number: int
) -> dict[int, Stage]:
    """Return who drops out of a round, and at which stage: it sends neither that stage's message nor later ones.

    Each user drops out independently with probability `dropout` (θ in the paper), at one of `stages`. So the number
    of dropouts varies, and a round now and then loses too many. ADVERTISE_KEYS happens once, before the first round:
    who drops out there takes no part in the whole run, and in later rounds nobody drops out there.
    """
    if round_number > 1:
        stages = [stage for stage in stages if stage is not Stage.ADVERTISE_KEYS]
        if not stages:
            return {}
    random = generator(seed, Purpose.DROPOUT, round_number)
    gone, at = random.random(clients) < dropout, random.integers(len(stages), size=clients)
    return {user: stages[int(at[user])] for user in range(clients) if gone[user]}


@dataclass(frozen=True)
class Network:
    """A user's line to the server; the server's own line is taken to be wide enough for all of them."""

    bandwidth_mbit: float
    latency_ms: float

    def transfer_seconds(self, sent: float, received: float, exchanges: int) -> float:
        """Return how long a user's messages take: all bytes at the bandwidth, and two latencies per exchange."""
        on_the_line = 8 * (sent + received) / (self.bandwidth_mbit * BITS_PER_MEGABIT)
        return on_the_line + exchanges * 2 * self.latency_ms / 1000
