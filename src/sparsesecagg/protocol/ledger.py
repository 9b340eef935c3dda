"""What a client remembers, and what it has answered: both written down before the answer leaves.

The state is one frozen record: a step that succeeds replaces it, a step that fails leaves it alone. Its secrets are of
types that do not print; the bytes that `save_state` writes do contain them.

A client answers each stage of each round once, in increasing order, even if its state is restored or copied. The
ledger is what enforces it: an entry is recorded exclusively (of two processes that race, one wins) and only if it
follows the one before. The same request may get the same bytes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, PairRatchets, PrivateKey, RoundSecrets, Secret
from sparsesecagg.errors import AlreadyAnswered, MalformedMessage, PolicyViolation, WrongStage
from sparsesecagg.privacy.accountant import Cost
from sparsesecagg.protocol.epoch import Epoch, KeyPackage, make_package
from sparsesecagg.protocol.messages import Round, RoundHeader, UnmaskRequest
from sparsesecagg.protocol.stages import CLIENT_TRANSITIONS, Progress, after

OVERTAKEN = "another process has answered in this client's place"
LARGEST_SKIP = 1 << 12
"""Rounds that a server may skip: the secrets of pairs are hashed once for each."""

Kind = TypeVar("Kind")


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one user in a run."""

    user: int
    params: bytes
    """The encoded parameters."""
    version: Round = 0
    """Of the last entry in the ledger."""

    # The epoch
    epoch_number: Round = 0
    sealing_private: PrivateKey | None = None
    """From ADVERTISE_KEYS until the group's keys arrive and the ratchets start."""
    keys: bytes | None = None
    """The epoch's keys, as they were received; None before."""
    ratchet_round: Round = 0
    """The round that the ratchets stand at."""
    ratchets: PairRatchets = PairRatchets(b"")
    """With all partners, in order."""
    secrets: dict[int, RoundSecrets] = {}
    """By round, with all partners: those of rounds that packages were made for and that are not over."""
    packages: dict[int, KeyPackage] = {}
    """By round."""

    # The round
    round_number: Round = 0
    """The last round whose header was seen, or that is over; earlier ones are over for good."""
    progress: Progress = Progress.NEW
    header: bytes | None = None
    """The header that was accepted, as it was received, until the round is over."""
    clipped: int = 0

    def with_changes(self, **changes: Any) -> ClientState:
        """Return the state with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def advertised(self, epoch_number: int, params: bytes, entropy: Entropy) -> ClientState:
        """Return the state with a fresh sealing key; nothing of the epoch before is left in it."""
        return self.with_changes(
            params=params,
            epoch_number=epoch_number,
            sealing_private=PrivateKey(entropy(SECRET_SIZE)),
            keys=None,
            ratchets=PairRatchets(b""),
            secrets={},
            packages={},
            progress=after(CLIENT_TRANSITIONS, self.progress, "advertise_keys"),
            header=None,
        )

    def advertised_key(self) -> PrivateKey:
        """Return the sealing key that waits for the others'; raise if none does."""
        after(CLIENT_TRANSITIONS, self.progress, "join")
        if self.sealing_private is None:
            raise WrongStage("join", self.progress.name)
        return self.sealing_private

    def joined(self, epoch: Epoch, data: bytes, ratchets: PairRatchets) -> ClientState:
        """Return the state with a ratchet for each partner, and the epoch's keys as they were received."""
        return self.with_changes(
            sealing_private=None,
            keys=data,
            ratchet_round=epoch.first_round,
            ratchets=ratchets,
            round_number=epoch.first_round - 1,
            progress=after(CLIENT_TRANSITIONS, self.progress, "join"),
        )

    def from_round(self, round_number: int) -> ClientState:
        """Return the state when all rounds before this one are over: nothing of them is left in it."""
        if (self.round_number, self.progress) >= (round_number - 1, Progress.OVER):
            return self
        return self.with_changes(
            packages={number: each for number, each in self.packages.items() if number >= round_number},
            secrets={number: each for number, each in self.secrets.items() if number >= round_number},
            round_number=round_number - 1,
            progress=Progress.OVER,
            header=None,
        )

    def may_share(self, number: int) -> bool:
        """Tell whether the round's secrets are still to come: a package is made once."""
        return number not in self.packages and (number >= self.ratchet_round or number in self.secrets)

    def with_packages(self, epoch: Epoch, index: int, numbers: list[int], entropy: Entropy) -> ClientState:
        """Move the ratchets on and make the packages of some rounds."""
        upto = numbers[-1]
        if upto - self.ratchet_round > LARGEST_SKIP:
            raise PolicyViolation(f"round {upto} skips more than {LARGEST_SKIP} rounds")
        ratchets, secrets = self.ratchets, dict(self.secrets)
        for number in range(self.ratchet_round, upto + 1):
            ratchets, found = sealing.step(ratchets)
            if number >= numbers[0]:  # Rounds that are over get none.
                secrets[number] = found
        made = {
            number: make_package(epoch, number, index, epoch.ciphers(index, secrets[number]), entropy)
            for number in numbers
        }
        return self.with_changes(
            ratchet_round=max(self.ratchet_round, upto + 1),
            ratchets=ratchets,
            secrets=secrets,
            packages={**self.packages, **made},
        )

    def held_secrets(self) -> Iterator[Secret]:
        """Yield every secret in it."""
        if self.sealing_private:
            yield self.sealing_private
        yield self.ratchets
        yield from self.secrets.values()
        for package in self.packages.values():
            yield package.own_shares
            if package.unspent:
                yield package.unspent.mask_secret
                yield package.unspent.private_seed


class StateStep(NamedTuple):
    """From one state to the next, for a ledger to write down: only what has changed."""

    before: ClientState
    after: ClientState

    def changes(self) -> dict[str, bytes | None]:
        """Return the parts of the next state that the one before does not have, and None for those that are gone."""
        # Nothing was written down before the first entry. No part is ever changed: what is the same is the same object.
        old, new = _parts(self.before) if self.before.version else {}, _parts(self.after)
        changed = {name: _encode(part) for name, part in new.items() if old.get(name) is not part}
        return {**changed, **dict.fromkeys(old.keys() - new.keys())}

    def dropped(self) -> list[Secret]:
        """Return the secrets that the next state no longer has."""
        kept = {id(secret) for secret in self.after.held_secrets()}
        return [secret for secret in self.before.held_secrets() if id(secret) not in kept]


def save_state(state: ClientState) -> bytes:
    """Return the state as bytes; they hold the user's secrets."""
    return _encode({name: _encode(part) for name, part in _parts(state).items()})


def restore_state(data: bytes) -> ClientState:
    """Return the state that `save_state` wrote, or whose parts were written down one by one."""
    try:
        parts = msgspec.msgpack.decode(data, type=dict[str, bytes])
        state = _decode(parts.pop(_REST), ClientState)
        changes: dict[str, Any] = {name: {} for name in _BY_ROUND}
        for name, part in parts.items():
            field, _, round_number = name.partition(" ")
            if field in _BY_ROUND:
                changes[field][int(round_number)] = _decode(part, _KINDS[field])
            else:
                changes[name] = _decode(part, _KINDS[name])
    except (ValueError, KeyError, RecursionError):  # msgspec's errors are ValueErrors.
        raise MalformedMessage("the bytes are not a saved client") from None
    return state.with_changes(**changes)


_REST = "rest"
_KINDS: dict[str, Any] = {
    "keys": bytes,
    "header": bytes,
    "ratchets": PairRatchets,
    "packages": KeyPackage,
    "secrets": RoundSecrets,
}
"""The large parts of a state, which change at different times."""
_BY_ROUND = ("packages", "secrets")
"""Of these there is one per round."""


def _parts(state: ClientState) -> dict[str, Any]:
    rest = state.with_changes(keys=None, header=None, ratchets=PairRatchets(b""), packages={}, secrets={})
    parts: dict[str, Any] = {_REST: rest, "ratchets": state.ratchets}
    parts |= {name: each for name in ("keys", "header") if (each := getattr(state, name)) is not None}
    parts |= {f"packages {number}": package for number, package in state.packages.items()}
    parts |= {f"secrets {number}": secrets for number, secrets in state.secrets.items()}
    return parts


def _encode(part: Any) -> bytes:
    return msgspec.msgpack.encode(part, enc_hook=_write_secret)


def _decode(part: bytes, kind: type[Kind]) -> Kind:
    return msgspec.msgpack.decode(part, type=kind, dec_hook=_read_secret)


def _write_secret(value: Any) -> bytes:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)  # msgspec's own word for "no such type"


def _read_secret(kind: type, value: Any) -> Any:
    if not isinstance(value, bytes):
        raise TypeError("secrets are saved as bytes")  # A number would ask for that much memory.
    return kind(value)


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
