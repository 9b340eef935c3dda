"""Who is who: identity keys, run secrets, the roster.

Each user owns a long-term Ed25519 identity key. For a training run it makes one *run secret*, an X25519 run key follows
from it, and the identity signs the key's public half once. All signed entries together are the roster, a file that is
checked when it is read; the identity key can stay offline after that. Two users mix the secret of their run keys into
everything they derive together, so a user that opens a share knows that the owner of that identity sealed it.

The roster also says how groups are made: their size, the fraction of users that may collude, and the **seed** of the
draw. Its builder draws the seed last, and is trusted for the groups as for the entries. Or nobody is: the roster names
a value of a public beacon that nobody knows yet, and the seed is a hash of both.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key, require_usable
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, Secret
from sparsesecagg.errors import InvalidInput, InvalidKey, require

SEED_SIZE = 32
USUAL_COLLUDING = 0.1


class IdentityKey(Secret):
    """The private half of a user's Ed25519 identity."""


class RunSecret(Secret):
    """All that a user must keep for one run, in 32 bytes."""


def run_key(secret: RunSecret, run: str) -> PrivateKey:
    """Return the private run key. The run's name goes in, so one secret has nothing in common in two runs."""
    return PrivateKey(derive(secret.reveal(), "run key", digest("run secret", run.encode())))


@dataclass(frozen=True)
class RosterEntry:
    """One user: its identity, its key for this run, and the identity's signature on that."""

    identity: bytes
    run_key: bytes
    signature: bytes

    def as_json(self) -> dict[str, str]:
        """Return the entry with its bytes in hex."""
        return {name: value.hex() for name, value in asdict(self).items()}

    @staticmethod
    def from_json(content: dict[str, str]) -> RosterEntry:
        """Return the entry that `as_json` wrote."""
        return RosterEntry(*(bytes.fromhex(content[field.name]) for field in fields(RosterEntry)))

    @property
    def public(self) -> tuple[bytes, bytes]:
        """All that the roster's digest covers; the signature only shows who said so."""
        return self.identity, self.run_key

    def require_signed(self, run: str) -> None:
        """Raise `InvalidKey` unless the identity has signed the run key for this run."""
        require_usable(self.run_key)
        try:
            Ed25519PublicKey.from_public_bytes(self.identity).verify(self.signature, _signed(run, self.run_key))
        except (InvalidSignature, ValueError):
            raise InvalidKey(f"its key is not signed by its identity for the run {run!r}") from None


def identity_of(key: IdentityKey) -> bytes:
    """Return the public half of an identity."""
    return Ed25519PrivateKey.from_private_bytes(key.reveal()).public_key().public_bytes_raw()


def enrol(identity: IdentityKey, run: str, secret: RunSecret) -> RosterEntry:
    """Sign what follows from a run secret: it belongs to this identity in this run and in no other."""
    public = public_key(run_key(secret, run))
    signature = Ed25519PrivateKey.from_private_bytes(identity.reveal()).sign(_signed(run, public))
    return RosterEntry(identity_of(identity), public, signature)


@dataclass(frozen=True)
class Roster:
    """The users of a run, by number, and how they are put into groups. Making one checks every signature."""

    run: str
    entries: tuple[RosterEntry, ...]
    seed: bytes | None = None
    """32 bytes, drawn when everything else was settled; None before."""
    group_size: int | None = None
    """Users of a group, at most; None for the default."""
    colluding: float = USUAL_COLLUDING
    """The fraction of the users that may help the server: what thresholds and promises are made for."""
    beacon: str = ""
    """Which value of which public beacon the seed is made from; empty if the builder draws it."""

    def __post_init__(self) -> None:
        public = [part for entry in self.entries for part in entry.public]
        if len(set(public)) != len(public):
            raise InvalidKey("a key occurs twice in the roster")
        if self.seed is not None and len(self.seed) != SEED_SIZE:
            raise InvalidKey(f"the roster's seed must have {SEED_SIZE} bytes, got {len(self.seed)}")
        users, size = len(self.entries), self.group_size
        require("colluding", 0 <= self.colluding < 0.5, f"must be at least 0 and below 0.5, got {self.colluding:g}")
        fits = size is None or 3 <= size <= max(3, users)
        require("group_size", fits, f"must be from 3 to the {users} users of the roster, got {size}")
        for user, entry in enumerate(self.entries):
            try:
                entry.require_signed(self.run)
            except InvalidKey as problem:
                raise InvalidKey(f"user {user} of the roster: {problem}") from None

    @cached_property
    def unseeded_digest(self) -> bytes:
        """What is fixed before the seed: handed out first if a beacon makes it."""
        rules = struct.pack("<Id", self.group_size or 0, self.colluding)
        keys = [part for entry in self.entries for part in entry.public]
        return digest("roster", self.run.encode(), rules, self.beacon.encode(), *keys)

    @cached_property
    def digest(self) -> bytes:
        """What the parameters of every round in this run are bound to."""
        return digest("seeded roster", self.unseeded_digest, self.seed or b"")

    def with_seed(self, seed: bytes) -> Roster:
        """Return the roster with the seed that its builder has drawn."""
        return replace(self, seed=seed)

    def with_beacon(self, value: bytes) -> Roster:
        """Return the roster with the seed that follows from the beacon's value."""
        require("beacon", bool(self.beacon), "must be named in the roster before its value is known")
        return replace(self, seed=digest("beacon", self.unseeded_digest, value))

    def epoch_seed(self, epoch_number: int) -> bytes:
        """Return the public seed of an epoch's groups and slices."""
        if self.seed is None:
            raise InvalidInput("roster", "must have a seed: build it with `sparsesecagg roster build`")
        return derive(self.seed, "epoch", self.digest, epoch_number.to_bytes(8, "little"))

    def require_identities(self, trusted: Sequence[bytes]) -> None:
        """Raise unless the roster names exactly these identity keys, known from elsewhere than the server."""
        for user, (entry, identity) in enumerate(zip(self.entries, trusted, strict=False)):
            if entry.identity != identity:
                raise InvalidKey(f"user {user} of the roster has another identity than the trusted one")
        if len(trusted) != len(self.entries):
            raise InvalidKey(f"the roster has {len(self.entries)} users, {len(trusted)} are trusted")

    def save(self, path: Path) -> None:
        """Write the roster as JSON; it holds public keys only."""
        content = {
            "run": self.run,
            "group_size": self.group_size,
            "colluding": self.colluding,
            "beacon": self.beacon,
            "seed": self.seed.hex() if self.seed else "",
            "users": [entry.as_json() for entry in self.entries],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Roster:
        """Read and check a roster file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            size = content["group_size"]
            roster = (
                _text(content["run"]),
                tuple(RosterEntry.from_json(user) for user in content["users"]),
                bytes.fromhex(content["seed"]) or None,
                None if size is None else int(size),
                float(content["colluding"]),
                _text(content["beacon"]),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise InvalidInput("roster", f"must be a roster file, got {path.name}") from None
        return Roster(*roster)


class Identity:
    """One user of a run: its number, its private key, and the roster. Lives as long as the run."""

    def __init__(self, user: int, secret: RunSecret, roster: Roster) -> None:
        key = run_key(secret, roster.run)
        listed = 0 <= user < len(roster.entries) and roster.entries[user].run_key == public_key(key)
        require("roster", listed, f"must list this user's key as number {user}")
        self.user = user
        self.roster = roster
        self._agreement = KeyAgreement(key)
        self._agreed: dict[int, AgreedSecret] = {}

    def __repr__(self) -> str:
        return f"Identity(user={self.user}, run={self.roster.run!r})"

    def secret_with(self, peer: int) -> AgreedSecret:
        """Return what the two run keys agree on; computed once per run."""
        if peer not in self._agreed:
            self._agreed[peer] = self._agreement.with_peer(self.roster.entries[peer].run_key)
        return self._agreed[peer]


def _signed(run: str, public: bytes) -> bytes:
    return digest("enrolment", run.encode(), public)


def _text(value: object) -> str:
    """Return text that has bytes, which JSON's lone surrogates have not; raises `ValueError`."""
    return str(value).encode().decode()
