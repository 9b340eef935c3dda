"""What a client remembers between messages, and how to put it on disk.

One frozen record: a step that succeeds replaces it, a step that fails leaves it alone. Its secrets are of types that do
not print; the bytes that `save_state` writes do contain them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.secrets import SECRET_SIZE, Entropy, PairRatchet, PrivateKey, RoundSecret, Secret
from sparsesecagg.errors import MalformedMessage, PolicyViolation, WrongStage
from sparsesecagg.protocol.epoch import Epoch, KeyPackage, make_package
from sparsesecagg.protocol.stages import CLIENT_TRANSITIONS, Progress, after

LARGEST_SKIP = 1 << 12
"""Rounds that a server may skip: the secrets of pairs are hashed once for each."""

Kind = TypeVar("Kind")


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one user in a run."""

    user: int
    params: bytes
    """The encoded parameters."""
    version: int = 0
    """Of the last entry in the ledger."""

    # The epoch
    epoch_number: int = 0
    sealing_private: PrivateKey | None = None
    """From ADVERTISE_KEYS until the group's keys arrive and the ratchets start."""
    keys: bytes | None = None
    """The epoch's keys, as they were received; None before."""
    ratchet_round: int = 0
    """The round that the ratchets stand at."""
    ratchets: dict[int, PairRatchet] = {}
    """By index of the partner."""
    secrets: dict[int, dict[int, RoundSecret]] = {}
    """By round and index: secrets of rounds that packages were made for and that are not over."""
    packages: dict[int, KeyPackage] = {}
    """By round."""

    # The round
    round_number: int = 0
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
            ratchets={},
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

    def joined(self, epoch: Epoch, data: bytes, ratchets: dict[int, PairRatchet]) -> ClientState:
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
            if number >= numbers[0]:  # Rounds that are over get none.
                secrets[number] = {partner: sealing.round_secret(each) for partner, each in ratchets.items()}
            ratchets = {partner: sealing.next_ratchet(each) for partner, each in ratchets.items()}
        made = {number: make_package(epoch, number, index, secrets[number], entropy) for number in numbers}
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
        yield from self.ratchets.values()
        for package in self.packages.values():
            yield package.own_shares
            if package.unspent:
                yield package.unspent.mask_secret
                yield package.unspent.private_seed
        for secrets in self.secrets.values():
            yield from secrets.values()


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
    "keys": bytes,
    "header": bytes,
    "ratchets": dict[int, PairRatchet],
    "packages": KeyPackage,
    "secrets": dict[int, RoundSecret],
}
"""The large parts of a state, which change at different times: those of packages and secrets are one per round."""


def _parts(state: ClientState) -> dict[str, Any]:
    rest = state.with_changes(keys=None, header=None, ratchets={}, packages={}, secrets={})
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
