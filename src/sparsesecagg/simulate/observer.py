"""Watching a simulated run: one class with named moments. Override what you need."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparsesecagg.protocol.stages import Stage


class Observer:
    """Told what travels, as it travels."""

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        """The server's message reaches a client."""

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """A client's message reaches the server."""


@dataclass
class Transcript(Observer):
    """Every message of a run, as the server saw it: what an auditor or an attacker starts from."""

    sent: list[tuple[Stage, int, bytes]] = field(default_factory=list)
    """By clients."""
    received: list[tuple[Stage, int, bytes]] = field(default_factory=list)

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        """Keep the message."""
        self.received.append((stage, user, data))

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """Keep the message."""
        self.sent.append((stage, user, data))
