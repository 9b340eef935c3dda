"""Who is who: identity keys, run keys, the roster.

Each user owns a long-term Ed25519 identity key. For a training run it makes an X25519 *run key* and signs it once; all
signed run keys together are the roster, a file that is checked when it is read. In every round of the run two users mix
the secret of their run keys into the keys that seal their shares. So whoever opens a share knows that the owner of that
identity sealed it, for exactly this round, directory and receiver. One hash per peer and round replaces one signature
check, which would cost more than the rest of the client's work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key, require_usable
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, Secret
from sparsesecagg.errors import InvalidInput, InvalidKey


class IdentityKey(Secret):
    """The private half of a user's Ed25519 identity."""


@dataclass(frozen=True)
class RosterEntry:
    """One user: its identity, its key for this run, and the identity's signature on that key."""

    identity: bytes
    run_key: bytes
    signature: bytes

    def as_json(self) -> dict[str, str]:
        """Return the entry with its bytes in hex."""
        return {name: value.hex() for name, value in asdict(self).items()}

    @staticmethod
    def from_json(content: dict[str, str]) -> RosterEntry:
        """Return the entry that `as_json` wrote."""
        return RosterEntry(*(bytes.fromhex(content[name]) for name in ("identity", "run_key", "signature")))


def identity_of(key: IdentityKey) -> bytes:
    """Return the public half of an identity."""
    return Ed25519PrivateKey.from_private_bytes(key.reveal()).public_key().public_bytes_raw()


def enrol(identity: IdentityKey, run: str, run_key: PrivateKey) -> RosterEntry:
    """Sign a run key: it belongs to this identity in this run and in no other."""
    signer = Ed25519PrivateKey.from_private_bytes(identity.reveal())
    public = public_key(run_key)
    return RosterEntry(signer.public_key().public_bytes_raw(), public, signer.sign(_signed(run, public)))


@dataclass(frozen=True)
class Roster:
    """The users of a run, by number. Making one checks every signature."""

    run: str
    entries: tuple[RosterEntry, ...]

    def __post_init__(self) -> None:
        if len({entry.identity for entry in self.entries} | {entry.run_key for entry in self.entries}) != 2 * len(
            self.entries
        ):
            raise InvalidKey("a key occurs twice in the roster")
        for user, entry in enumerate(self.entries):
            require_usable(entry.run_key)
            try:
                Ed25519PublicKey.from_public_bytes(entry.identity).verify(
                    entry.signature, _signed(self.run, entry.run_key)
                )
            except (InvalidSignature, ValueError):
                raise InvalidKey(
                    f"the run key of user {user} is not signed by its identity for the run {self.run!r}"
                ) from None

    @cached_property
    def digest(self) -> bytes:
        """What the parameters of every round in this run are bound to."""
        return digest("roster", self.run.encode(), *(part for e in self.entries for part in (e.identity, e.run_key)))

    def require_identities(self, trusted: Sequence[bytes]) -> None:
        """Raise unless the roster names exactly these identity keys, known from elsewhere than the server."""
        for user, (entry, identity) in enumerate(zip(self.entries, trusted, strict=False)):
            if entry.identity != identity:
                raise InvalidKey(f"user {user} of the roster has another identity than the trusted one")
        if len(trusted) != len(self.entries):
            raise InvalidKey(f"the roster has {len(self.entries)} users, {len(trusted)} are trusted")

    def save(self, path: Path) -> None:
        """Write the roster as JSON; it holds public keys only."""
        content = {"run": self.run, "users": [entry.as_json() for entry in self.entries]}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Roster:
        """Read and check a roster file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            run, entries = str(content["run"]), tuple(RosterEntry.from_json(user) for user in content["users"])
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidInput("roster", f"must be a roster file, which {path.name} is not") from None
        return Roster(run, entries)


class Identity:
    """One user of a run: its number, its private run key, and the roster. Lives as long as the run."""

    def __init__(self, user: int, run_key: PrivateKey, roster: Roster) -> None:
        if not 0 <= user < len(roster.entries) or roster.entries[user].run_key != public_key(run_key):
            raise InvalidInput("roster", f"must list this user's run key as number {user}")
        self.user = user
        self.roster = roster
        self._agreement = KeyAgreement(run_key)
        self._agreed: dict[int, AgreedSecret] = {}

    def __repr__(self) -> str:
        return f"Identity(user={self.user}, run={self.roster.run!r})"

    def secret_with(self, peer: int) -> AgreedSecret:
        """Return what the two run keys agree on; computed once per run."""
        if peer not in self._agreed:
            self._agreed[peer] = self._agreement.with_peer(self.roster.entries[peer].run_key)
        return self._agreed[peer]


def _signed(run: str, run_key: bytes) -> bytes:
    return digest("run key", run.encode(), run_key)
