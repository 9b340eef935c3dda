"""What a client remembers between messages, and how to put it on disk.

One frozen record: a step that succeeds replaces it, a step that fails leaves it alone. Its secrets are of types that do
not print; the bytes that `save_state` writes do contain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from sparsesecagg.crypto.secrets import PairChain, PrivateKey, RoundSecret, Secret
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol.package import Package

Kind = TypeVar("Kind")

_NO_KEY = PrivateKey(b"")

Holder = Secret | Package | Mapping[int, Secret]
"""Part of a state that has secrets."""


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one user in a run."""

    user: int
    params: bytes
    """The encoded parameters."""
    version: int = 0
    """Of the last entry in the ledger."""

    # The epoch
    epoch_number: int = 0
    sealing_private: PrivateKey = _NO_KEY
    """Only until the pairs' chains exist."""
    nonce: bytes = b""
    epoch: bytes = b""
    """The epoch's keys, as they were received; empty before."""
    draw: int = 0
    """The number of the last draw that was accepted."""
    chain_round: int = 0
    """The round that the pairs' chains stand at."""
    chains: dict[int, PairChain] = {}
    """By place of the partner."""
    secrets: dict[int, dict[int, RoundSecret]] = {}
    """By round and place: secrets of rounds that packages were dealt for and that are not over."""
    packages: dict[int, Package] = {}
    """By round."""

    # The round
    round_number: int = 0
    """The last round that was answered or seen; earlier ones are over for good."""
    answered: int = -1
    """The last stage that was answered in it, in order."""
    order: bytes = b""
    """The order, as it was received."""
    confirmed: bytes = b""
    """The survivors that the user has settled for."""
    clipped: int = 0

    # What was declared
    history: bytes = b""
    """The chain of declared survivors so far."""
    history_round: int = -1
    """The last round in it."""
    uploaded: dict[int, bytes] = {}
    """By round that is not in the chain yet: the survivors that were answered at UNMASK, or nothing."""
    uploads: int = 0
    exclusions: int = 0
    """How many of the uploads were declared missing."""
    stopped: str = ""
    """Why this client takes no further part in the run."""

    def with_changes(self, **changes: Any) -> ClientState:
        """Return the state with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def from_round(self, round_number: int) -> ClientState:
        """Return the state when a round begins: nothing of earlier rounds is left in it."""
        if round_number <= self.round_number:
            return self
        return self.with_changes(
            packages={number: each for number, each in self.packages.items() if number >= round_number},
            secrets={number: each for number, each in self.secrets.items() if number >= round_number},
            round_number=round_number,
            answered=-1,
            order=b"",
            confirmed=b"",
        )

    def after_round(self) -> ClientState:
        """Return the state when the round is over: its shares and secrets are not in it any more."""
        number = self.round_number
        return self.with_changes(
            packages={each: package for each, package in self.packages.items() if each != number},
            secrets={each: secrets for each, secrets in self.secrets.items() if each != number},
            order=b"",
        )

    def held_secrets(self) -> Iterator[Secret]:
        """Yield every secret in the state."""
        for holder in self.holders():
            yield from _held_by(holder)

    def holders(self) -> Iterator[Holder]:
        """Yield what holds secrets: none of it is ever changed, so the same object holds the same secrets."""
        yield self.sealing_private
        yield self.chains
        yield from self.packages.values()
        yield from self.secrets.values()


def _held_by(holder: Holder) -> Iterable[Secret]:
    if isinstance(holder, Secret):
        return (holder,)
    if isinstance(holder, Package):
        return holder.mask_secret, holder.private_seed, holder.own_shares
    return holder.values()


def erase(before: ClientState, after: ClientState) -> None:
    """Overwrite the secrets that the later state no longer has. Only once that state is on record."""
    old, new = ({id(holder): holder for holder in state.holders()} for state in (before, after))
    # A new holder may have taken over some of the secrets.
    kept = {id(secret) for name, holder in new.items() if name not in old for secret in _held_by(holder)}
    for name, holder in old.items():
        if name not in new:
            for secret in _held_by(holder):
                if id(secret) not in kept:
                    secret.wipe()


class StateStep(NamedTuple):
    """From one state to the next, for a ledger to write down: the whole of it, or only what has changed."""

    before: ClientState
    after: ClientState

    def whole(self) -> bytes:
        """Return the next state as bytes; they hold the user's secrets."""
        return save_state(self.after)

    def changes(self) -> dict[str, bytes | None]:
        """Return the parts of the next state that the one before does not have, and None for those that are gone."""
        # Nothing was written down before the first entry. No part is ever changed: what is the same is the same object.
        old, new = _parts(self.before) if self.before.version else {}, _parts(self.after)
        changed = {name: _encode(part) for name, part in new.items() if old.get(name) is not part}
        return {**changed, **dict.fromkeys(old.keys() - new.keys())}


def save_state(state: ClientState) -> bytes:
    """Return the state as bytes; they hold the user's secrets."""
    return join_parts({name: _encode(part) for name, part in _parts(state).items()})


def join_parts(parts: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a state whose parts were written down one by one."""
    return _encode(parts)


def restore_state(data: bytes) -> ClientState:
    """Return the state that `save_state` wrote."""
    try:
        parts = msgspec.msgpack.decode(data, type=dict[str, bytes])
        state = _decode(parts.pop(_REST), ClientState)
        changes: dict[str, Any] = {"packages": {}, "secrets": {}}
        for name, part in parts.items():
            field, _, round_number = name.partition(" ")
            value = _decode(part, _KINDS[field])
            if round_number:
                changes[field][int(round_number)] = value
            else:
                changes[field] = value
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, ValueError, TypeError):
        raise MalformedMessage("the bytes are not a saved client") from None
    return state.with_changes(**changes)


_REST = "rest"
_KINDS: dict[str, Any] = {
    "epoch": bytes,
    "order": bytes,
    "chains": dict[int, PairChain],
    "packages": Package,
    "secrets": dict[int, RoundSecret],
}
"""The large parts of a state, which change at different times: those of packages and secrets are one per round."""


def _parts(state: ClientState) -> dict[str, Any]:
    rest = state.with_changes(epoch=b"", order=b"", chains={}, packages={}, secrets={})
    parts: dict[str, Any] = {_REST: rest, "epoch": state.epoch, "order": state.order, "chains": state.chains}
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
