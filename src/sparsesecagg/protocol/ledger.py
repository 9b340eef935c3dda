"""The ledger: what a client has answered, written down before the answer leaves.

A client answers each stage of each round once, in increasing order, whoever restores or copies whatever state. The
ledger is what enforces it: an entry is recorded exclusively (of two processes that race, one wins) and only if it
follows the one before. The same request may get the same bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sparsesecagg.errors import AlreadyAnswered
from sparsesecagg.protocol.client_state import StateStep
from sparsesecagg.protocol.juror import JurorState


@dataclass(frozen=True)
class Entry:
    """The last thing that a client has written down."""

    version: int = 0
    """Counts the entries; a client that works on an older one has been overtaken."""
    round_number: int = -1
    stage: int = -1
    """The last stage that was answered, in order; −1 for none."""
    request: bytes = b""
    """Digest of the request that was answered."""
    answer: bytes = b""


class Ledger(Protocol):
    """Where entries are kept: in memory for simulations, in a file of its own for a node."""

    def last(self) -> Entry:
        """Return the last entry."""

    def state(self) -> bytes | None:
        """Return the client's state as it was recorded with the last entry, if this ledger keeps it."""

    def record(self, entry: Entry, step: StateStep) -> None:
        """Write down an entry and the next state with it, or raise `AlreadyAnswered` unless it follows the last one."""

    def juror(self) -> JurorState:
        """Return what the user has answered as a juror, under whatever roster lists its chain of nonces."""

    def record_juror(self, before: JurorState, after: JurorState) -> None:
        """Write down what a juror is about to answer, or raise `AlreadyAnswered` if `before` is not the last."""


class MemoryLedger:
    """A ledger for simulations and tests: nothing outlives the process."""

    def __init__(self, keep_answers: bool = True, last: Entry | None = None) -> None:
        """`last` is the entry of a client that is restored from its saved state."""
        self._last = last or Entry()
        self._juror = JurorState()
        self._keep_answers = keep_answers

    def last(self) -> Entry:
        """Return the last entry."""
        return self._last

    def state(self) -> None:
        """Return None: the client itself is in memory."""

    def record(self, entry: Entry, step: StateStep) -> None:  # noqa: ARG002
        """Keep the entry."""
        if entry.version != self._last.version + 1:
            raise AlreadyAnswered("another process has answered in this client's place")
        self._last = entry if self._keep_answers else replace(entry, answer=b"")

    def juror(self) -> JurorState:
        """Return what was answered as a juror."""
        return self._juror

    def record_juror(self, before: JurorState, after: JurorState) -> None:
        """Keep it."""
        if before != self._juror:
            raise AlreadyAnswered("another process has answered in this juror's place")
        self._juror = after
