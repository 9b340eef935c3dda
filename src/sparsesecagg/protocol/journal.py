"""A client's state and the ledger that it is written to: nothing is answered before the state after it is on record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import AlreadyAnswered, WronglyExcluded
from sparsesecagg.protocol.client_state import ClientState, StateStep, erase
from sparsesecagg.protocol.ledger import Entry, Ledger
from sparsesecagg.protocol.messages import ConfirmRequest, Order, UnmaskRequest
from sparsesecagg.protocol.stages import ROUND_STAGES, Stage


class Journal:
    """What a client is and has answered. A step that can't be written down is not taken."""

    def __init__(self, ledger: Ledger, state: ClientState) -> None:
        self.ledger = ledger
        self.state = state
        self._entry: Entry | None = None
        """What is to be written when the block of `one_entry` ends."""
        self._inside = False

    def require_going(self) -> None:
        """Raise if this client has stopped for good."""
        if self.state.stopped:
            raise WronglyExcluded(self.state.stopped)

    def answered(self, message: Order | ConfirmRequest | UnmaskRequest, stage: Stage, data: bytes) -> bytes | None:
        """Return the stored answer to this very request, None if the stage is still open; raise if it is over."""
        last, position = self._last(), (message.round_number, ROUND_STAGES.index(stage))
        if position == (last.round_number, last.stage) and last.answer and last.request == _request(data):
            return last.answer
        if position <= (last.round_number, last.stage):
            raise AlreadyAnswered(f"round {message.round_number} is over for this client at {stage.name}")
        if last.version != self.state.version:
            raise AlreadyAnswered("another process has answered in this client's place")
        return None

    def record(self, state: ClientState, request: bytes = b"", answer: bytes = b"") -> None:
        """Write the new state down, then take it on and erase what it no longer holds."""
        with self.one_entry():
            version = self.state.version if self._entry else self.state.version + 1
            entry = Entry(version, state.round_number, state.answered)
            if request:
                entry = replace(entry, request=_request(request), answer=answer)
            else:
                last = self._last()
                if (last.round_number, last.stage) == (entry.round_number, entry.stage):
                    entry = replace(last, version=version)
            self._entry, self.state = entry, state.with_changes(version=version)

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
            entry, after = self._entry, self.state
            self._entry, self._inside = None, False
            if entry:
                self.state = before
                self.ledger.record(entry, StateStep(before, after))
                erase(before, after)
                self.state = after

    def _last(self) -> Entry:
        return self._entry or self.ledger.last()


def _request(data: bytes) -> bytes:
    return digest("request", data)
