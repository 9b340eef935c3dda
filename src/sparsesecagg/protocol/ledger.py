"""The ledger: what a client has answered, written down before the answer leaves.

A client answers each stage of each round once, in increasing order, even if its state is restored or copied. The
ledger is what enforces it: an entry is recorded exclusively (of two processes that race, one wins) and only if it
follows the one before. The same request may get the same bytes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import AlreadyAnswered
from sparsesecagg.privacy.accountant import Cost
from sparsesecagg.protocol.messages import RoundHeader, UnmaskRequest
from sparsesecagg.protocol.stages import Progress
from sparsesecagg.protocol.state import ClientState, StateStep

OVERTAKEN = "another process has answered in this client's place"


@dataclass(frozen=True)
class Entry:
    """The last thing that a client has written down."""

    version: int = 0
    """Counts the entries; a client that works on an older one has been overtaken."""
    round_number: int = -1
    progress: int = Progress.NEW
    request: bytes | None = None
    """Digest of the request that was accepted, answered or refused; None if there was none."""
    answer: bytes | None = None
    """None while there is none, and after a refusal."""


@dataclass(frozen=True)
class Spending:
    """What an upload costs its user, and what had been spent when that was checked."""

    before: Cost
    cost: Cost


class Ledger(Protocol):
    """Where entries are kept: in memory for simulations, in a separate file for a node."""

    def last(self) -> Entry:
        """Return the last entry."""

    def state(self) -> bytes | None:
        """Return the client's state as it was recorded with the last entry, if this ledger keeps it."""

    def spent(self) -> Cost:
        """Return what all uploads of all runs in this ledger have cost."""

    def record(self, entry: Entry, step: StateStep, spending: Spending | None = None) -> None:
        """Write down an entry, the next state and what was spent, or raise `AlreadyAnswered` unless they follow."""


class MemoryLedger:
    """A ledger for simulations and tests: nothing outlives the process."""

    def __init__(self, keep_answers: bool = True, last: Entry | None = None) -> None:
        """`last` is the entry of a client that is restored from its saved state."""
        self._last = last or Entry()
        self._keep_answers = keep_answers
        self._spent = Cost()

    def last(self) -> Entry:
        return self._last

    def state(self) -> None:
        """Return None: the client itself is in memory."""

    def spent(self) -> Cost:
        return self._spent

    def record(self, entry: Entry, step: StateStep, spending: Spending | None = None) -> None:  # noqa: ARG002
        if entry.version != self._last.version + 1 or (spending and spending.before != self._spent):
            raise AlreadyAnswered(OVERTAKEN)
        if spending:
            self._spent += spending.cost
        self._last = entry if self._keep_answers else replace(entry, answer=None)


class Journal:
    """A client's state with its ledger: a step that can't be written down is not taken."""

    def __init__(self, ledger: Ledger, state: ClientState) -> None:
        self.ledger = ledger
        self.state = state
        self._entry: Entry | None = None
        """What is to be written when the block of `one_entry` ends."""
        self._spending: Spending | None = None
        self._inside = False

    def answered(self, message: RoundHeader | UnmaskRequest, progress: Progress, data: bytes) -> bytes | None:
        """Return the stored answer to this very request, None if it is still open; raise if it is over."""
        last, position = self._last(), (message.round_number, progress)
        reached = last.round_number, last.progress
        if position == reached and last.answer is not None and last.request == _request(data):
            return last.answer
        if position <= reached:
            raise AlreadyAnswered(f"round {message.round_number} is over for this client at {progress.name}")
        if last.version != self.state.version:
            raise AlreadyAnswered(OVERTAKEN)
        return None

    def record(
        self,
        state: ClientState,
        request: bytes | None = None,
        answer: bytes | None = None,
        spending: Spending | None = None,
    ) -> None:
        """Write the new state down, then take it on and erase what it no longer holds."""
        with self.one_entry():
            version = self.state.version if self._entry else self.state.version + 1
            entry = Entry(version, state.round_number, state.progress)
            if request is not None:
                entry = replace(entry, request=_request(request), answer=answer)
            else:
                last = self._last()
                if (last.round_number, last.progress) == (entry.round_number, entry.progress):
                    entry = replace(last, version=version)
            self._entry, self.state = entry, state.with_changes(version=version)
            self._spending = spending or self._spending

    @contextmanager
    def one_entry(self) -> Iterator[None]:
        """Write all that is recorded inside down as one entry, when the block ends."""
        if self._inside:
            yield
            return
        before, self._inside = self.state, True
        try:
            yield
        finally:
            entry, after, spending = self._entry, self.state, self._spending
            self._entry, self._spending, self._inside = None, None, False
            if entry:
                self.state = before
                step = StateStep(before, after)
                self.ledger.record(entry, step, spending)
                for secret in step.dropped():
                    secret.wipe()
                self.state = after

    def _last(self) -> Entry:
        return self._entry or self.ledger.last()


def _request(data: bytes) -> bytes:
    return digest("request", data)
