"""A simulated network. Nothing in here is measured; whatever it gives is labelled so.

Computing is measured and transfer is modelled; the two are never added up without being shown apart.
"""

from __future__ import annotations

from dataclasses import dataclass

BITS_PER_MEGABIT = 1e6


@dataclass(frozen=True)
class Network:
    """A user's line to the server; the server's own line is taken to be wide enough for all of them."""

    bandwidth_mbit: float
    latency_ms: float

    def transfer_seconds(self, sent: float, received: float, exchanges: int) -> float:
        """Return how long a user's messages take: all bytes at the bandwidth, and two latencies per exchange."""
        on_the_line = 8 * (sent + received) / (self.bandwidth_mbit * BITS_PER_MEGABIT)
        return on_the_line + exchanges * 2 * self.latency_ms / 1000
