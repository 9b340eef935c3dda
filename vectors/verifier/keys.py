"""Keys, ratchets (6), sealed pairs of shares, mask keys (7), seeds of masks (11), tags (13), rosters (4)."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import derive, digest, expand, little_endian, one_step, pair_of_names

ANY_PRIVATE_KEY = bytes(range(32))  # A low-order point agrees on zeros with every private key: one is enough to tell.
TAG = 8


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key of 32 raw bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, peer_public: bytes) -> bytes:
    """Return the agreed secret of two users; refuse a point of small order."""
    demand(len(peer_public) == 32, "InvalidKey", "a key that has not 32 bytes")
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(peer_public))
    except ValueError:  # So the library reports an agreed secret of zeros.
        raise Refused("InvalidKey", "a point of small order") from None


def demand_no_low_order(public: bytes) -> None:
    """Refuse a key that is a point of small order."""
    agree(ANY_PRIVATE_KEY, public)


def first_ratchet(agreed: bytes, epoch_digest: bytes, user: int, peer: int) -> bytes:
    """Return the ratchet of a pair in the first round of an epoch."""
    return derive(agreed, "pair", epoch_digest, pair_of_names(min(user, peer), max(user, peer)))


def ratchet_after(ratchet: bytes, rounds: int) -> bytes:
    """Return the ratchet some rounds later."""
    for _ in range(rounds):
        ratchet = expand(ratchet, "round")[:32]
    return ratchet


def round_secret(ratchet: bytes) -> bytes:
    """Return the secret of the round at which a ratchet stands."""
    return expand(ratchet, "round")[32:]


def nonce(purpose: bytes, sender: int, receiver: int) -> bytes:
    """Return the 13 bytes that name what a round secret is used for."""
    return purpose.ljust(5, b"\0") + pair_of_names(sender, receiver)


def seal(secret: bytes, sender: int, receiver: int, plain: bytes) -> bytes:
    """Seal a pair of shares."""
    return AESCCM(secret, tag_length=TAG).encrypt(nonce(b"seal", sender, receiver), plain, None)


def unseal(secret: bytes, sender: int, receiver: int, sealed: bytes) -> bytes:
    """Open a sealed pair of shares."""
    try:
        return AESCCM(secret, tag_length=TAG).decrypt(nonce(b"seal", sender, receiver), sealed, None)
    except InvalidTag:
        raise Refused("InvalidShare", "a sealed pair of shares that does not open") from None


def header_tag(secret: bytes, sender: int, receiver: int, header_digest: bytes) -> bytes:
    """Return the tag by which a sender shows a receiver its header."""
    return AESCCM(secret, tag_length=TAG).encrypt(nonce(b"tag", sender, receiver), b"", header_digest)


def mask_private(mask_secret: bytes, run: bytes, round_number: int, user: int) -> bytes:
    """Return the private mask key of a round."""
    return derive(mask_secret, "mask key", run, little_endian(round_number, 8) + little_endian(user, 4))


def seed_commitment(private_seed: bytes, run: bytes, round_number: int, user: int) -> bytes:
    """Commit to a private seed."""
    return digest("private seed", run, little_endian(round_number, 8), little_endian(user, 4), private_seed)


def pair_seeds(agreed: bytes, header_digest: bytes, user: int, peer: int) -> tuple[bytes, bytes]:
    """Return mask_seed and pattern_seed of a pair."""
    names = pair_of_names(min(user, peer), max(user, peer))
    return one_step(agreed, "pair mask", header_digest, names), one_step(agreed, "pair pattern", header_digest, names)


def private_mask_seed(private_seed: bytes, header_digest: bytes, user: int) -> bytes:
    """Return the seed of a user's private mask."""
    return one_step(private_seed, "private mask", header_digest, little_endian(user, 4))


class RosterEntry(NamedTuple):
    """One user of a roster."""

    identity: bytes
    run_key: bytes
    signature: bytes


def signing_public(private: bytes) -> bytes:
    """Return the public half of an Ed25519 key."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def run_private(run_secret: bytes, run: str) -> bytes:
    """Derive the private run key."""
    return derive(run_secret, "run key", digest("run secret", run.encode()))


def signed_enrolment(run: str, run_key: bytes) -> bytes:
    """Return what an identity signs."""
    return digest("enrolment", run.encode(), run_key)


def sign(private: bytes, statement: bytes) -> bytes:
    """Sign with an identity."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(statement)


def is_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Tell whether a signature verifies; a key or signature of another length does not."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


class Roster(NamedTuple):
    """The users of a run, and how they are put into groups; `group_size` is 0 for the default."""

    run: str
    users: Sequence[RosterEntry]
    seed: bytes
    group_size: int
    colluding: float
    beacon: str

    @property
    def unseeded_digest(self) -> bytes:
        """What is fixed before the seed."""
        rules = little_endian(self.group_size, 4) + struct.pack("<d", self.colluding)
        keys = [part for user in self.users for part in user[:2]]
        return digest("roster", self.run.encode(), rules, self.beacon.encode(), *keys)

    @property
    def digest(self) -> bytes:
        """The digest that binds a run to its roster."""
        return digest("seeded roster", self.unseeded_digest, self.seed)

    def seed_from_beacon(self, value: bytes) -> bytes:
        """Return the seed that follows from a beacon's value."""
        demand(self.beacon != "", "InvalidInput", "no beacon is named", "beacon")
        return digest("beacon", self.unseeded_digest, value)

    def epoch_seed(self, epoch: int) -> bytes:
        """Return the seed of an epoch."""
        demand(self.seed != b"", "InvalidInput", "a roster without a seed", "roster")
        return derive(self.seed, "epoch", self.digest, little_endian(epoch, 8))


def check_roster(roster: Roster) -> None:
    """Refuse a roster with a key that is not signed, twice, or of small order, or with rules out of range."""
    keys = [part for user in roster.users for part in user[:2]]
    demand(len(set(keys)) == len(keys), "InvalidKey", "a key that occurs twice in the roster")
    demand(len(roster.seed) in (0, 32), "InvalidKey", "a seed that has not 32 bytes")
    demand(0 <= roster.colluding < 0.5, "InvalidInput", "half of the users or more", "colluding")
    fits = roster.group_size == 0 or 3 <= roster.group_size <= max(3, len(roster.users))
    demand(fits, "InvalidInput", "groups of another size", "group_size")
    for user in roster.users:
        demand_no_low_order(user.run_key)
        signed = is_signed(user.identity, user.signature, signed_enrolment(roster.run, user.run_key))
        demand(signed, "InvalidKey", "a key that its identity has not signed")


def roster_of(content: Mapping[str, Any]) -> Roster:
    """Read a roster of a vector."""
    entries = [RosterEntry(*(bytes.fromhex(user[name]) for name in RosterEntry._fields)) for user in content["users"]]
    rules = content["group_size"] or 0, content["colluding"], content["beacon"]
    return Roster(content["run"], entries, bytes.fromhex(content["seed"]), *rules)
