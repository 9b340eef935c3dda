"""Who is who: identity keys, run secrets, the roster.

Each user owns a long-term Ed25519 identity key. For a training run it makes one *run secret*, from which three things
follow: an X25519 run key, an Ed25519 draw key, and the chain of its nonces for the draws of the run (`chain`). The
identity signs their public halves once; all signed entries together are the roster, a file that is checked when it is
read. The identity key can stay offline after that.

In every round of the run two users mix the secret of their run keys into the keys that seal their shares. So whoever
opens a share knows that the owner of that identity sealed it, for exactly this round, directory and receiver. One hash
per peer and round replaces one signature check, which would cost more than the rest of the client's work. The draw key
signs what a juror says in a draw, where everybody must be convinced, not one peer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sparsesecagg.crypto.chain import ChainSeed, NonceChain
from sparsesecagg.crypto.kdf import DIGEST_SIZE, derive, digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE, KeyAgreement, public_key, require_usable
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, Secret
from sparsesecagg.errors import InvalidInput, InvalidKey

SIGNATURE_SIZE = 64


class IdentityKey(Secret):
    """The private half of a user's Ed25519 identity."""


class RunSecret(Secret):
    """All that a user must keep for one run, in 32 bytes: its private keys and nonces follow from it."""


class DrawKey(Secret):
    """The private half of a user's Ed25519 draw key."""


class RunKeys:
    """What follows from a run secret. The run's name goes in, so one secret has nothing in common in two runs."""

    def __init__(self, secret: RunSecret, run: str) -> None:
        context = digest("run secret", run.encode())

        def derived(label: str) -> bytes:
            return derive(secret.reveal(), label, context)

        self.run_key = PrivateKey(derived("run key"))
        self.draw_key = DrawKey(derived("draw key"))
        self.chain = NonceChain(ChainSeed(derived("draw chain seed")), run)

    @property
    def public(self) -> tuple[bytes, bytes, bytes]:
        """Run key, draw key and chain tip, as the roster shows them."""
        return public_key(self.run_key), _signing_public(self.draw_key), self.chain.tip

    def __repr__(self) -> str:
        return "RunKeys(<private>)"


@dataclass(frozen=True)
class RosterEntry:
    """One user: its identity, its keys and the tip of its nonces for this run, and the identity's signature on them."""

    identity: bytes
    run_key: bytes
    draw_key: bytes
    chain_tip: bytes
    signature: bytes

    def as_json(self) -> dict[str, str]:
        """Return the entry with its bytes in hex."""
        return {name: value.hex() for name, value in asdict(self).items()}

    @staticmethod
    def from_json(content: dict[str, str]) -> RosterEntry:
        """Return the entry that `as_json` wrote."""
        return RosterEntry(*(bytes.fromhex(content[field.name]) for field in fields(RosterEntry)))

    @property
    def public(self) -> tuple[bytes, bytes, bytes, bytes]:
        """All that the roster's digest covers; the signature only shows who said so."""
        return self.identity, self.run_key, self.draw_key, self.chain_tip

    def require_signed(self, run: str) -> None:
        """Raise `InvalidKey` unless the identity has signed the rest for this run."""
        require_usable(self.run_key)
        if (len(self.draw_key), len(self.chain_tip)) != (PUBLIC_KEY_SIZE, DIGEST_SIZE):
            raise InvalidKey("a draw key or chain tip has a wrong length")
        try:
            Ed25519PublicKey.from_public_bytes(self.identity).verify(self.signature, _signed(run, *self.public[1:]))
        except (InvalidSignature, ValueError):
            raise InvalidKey(f"its keys are not signed by its identity for the run {run!r}") from None


def identity_of(key: IdentityKey) -> bytes:
    """Return the public half of an identity."""
    return _signing_public(key)


def enrol(identity: IdentityKey, run: str, secret: RunSecret) -> RosterEntry:
    """Sign what follows from a run secret: it belongs to this identity in this run and in no other."""
    public = RunKeys(secret, run).public
    return RosterEntry(identity_of(identity), *public, _sign(identity, _signed(run, *public)))


@dataclass(frozen=True)
class Roster:
    """The users of a run, by number. Making one checks every signature."""

    run: str
    entries: tuple[RosterEntry, ...]

    def __post_init__(self) -> None:
        public = [part for entry in self.entries for part in entry.public]
        if len(set(public)) != len(public):
            raise InvalidKey("a key or a chain tip occurs twice in the roster")
        for user, entry in enumerate(self.entries):
            try:
                entry.require_signed(self.run)
            except InvalidKey as problem:
                raise InvalidKey(f"user {user} of the roster: {problem}") from None

    @cached_property
    def digest(self) -> bytes:
        """What the parameters of every round in this run are bound to."""
        return digest("roster", self.run.encode(), *(part for entry in self.entries for part in entry.public))

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
    """One user of a run: its number, its private keys, and the roster. Lives as long as the run."""

    def __init__(self, user: int, secret: RunSecret, roster: Roster) -> None:
        keys = RunKeys(secret, roster.run)
        if not 0 <= user < len(roster.entries) or roster.entries[user].public[1:] != keys.public:
            raise InvalidInput("roster", f"must list this user's keys as number {user}")
        self.user = user
        self.roster = roster
        self._keys = keys
        self._agreement = KeyAgreement(keys.run_key)
        self._agreed: dict[int, AgreedSecret] = {}

    def __repr__(self) -> str:
        return f"Identity(user={self.user}, run={self.roster.run!r})"

    def secret_with(self, peer: int) -> AgreedSecret:
        """Return what the two run keys agree on; computed once per run."""
        if peer not in self._agreed:
            self._agreed[peer] = self._agreement.with_peer(self.roster.entries[peer].run_key)
        return self._agreed[peer]

    def sign(self, statement: bytes) -> bytes:
        """Return the draw key's signature, for everybody to check; 64 bytes."""
        return _sign(self._keys.draw_key, statement)

    def reveal(self, draw: int) -> bytes:
        """Return the nonce of a draw. Only `protocol.juror` calls it, which keeps the rules of what comes once."""
        return self._keys.chain.nonce(draw)


def _signing_public(key: Secret) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key.reveal()).public_key().public_bytes_raw()


def _sign(key: Secret, statement: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key.reveal()).sign(statement)


def _signed(run: str, run_key: bytes, draw_key: bytes, chain_tip: bytes) -> bytes:
    return digest("enrolment", run.encode(), run_key, draw_key, chain_tip)
