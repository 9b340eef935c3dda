"""Keys, commitments (4), sealed pairs of shares (13), tags and rosters (14)."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import derive, digest, little_endian, pair_of_names

ANY_PRIVATE_KEY = bytes(
    range(32)
)  # A low-order point agrees on zeros with every private key, so one is enough to tell.


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


def nonce_commitment(sealing_key: bytes, mask_key: bytes, nonce: bytes) -> bytes:
    """Commit to a nonce together with both public keys."""
    return digest("nonce", sealing_key, mask_key, nonce)


def seed_commitment(parameters_digest: bytes, user: int, private_seed: bytes) -> bytes:
    """Commit to a private seed."""
    return digest("private seed", parameters_digest, little_endian(user, 4), private_seed)


def pair_seeds(agreed: bytes, context: bytes, user: int, peer: int) -> tuple[bytes, bytes]:
    """Return mask_seed and pattern_seed of a pair (11)."""
    both = derive(agreed, "pair", context, pair_of_names(min(user, peer), max(user, peer)), 64)
    return both[:32], both[32:]


def private_mask_seed(private_seed: bytes, context: bytes, user: int) -> bytes:
    """Return the seed of a user's private mask (11)."""
    return derive(private_seed, "private mask", context, little_endian(user, 4))


def sealing_key(agreed: bytes, directory_digest: bytes, sender: int, receiver: int) -> bytes:
    """Return the key that seals a pair of shares from sender to receiver."""
    return derive(agreed, "sealing", directory_digest, pair_of_names(sender, receiver))


def associated_data(round_number: int, sender: int, receiver: int) -> bytes:
    """Return what a sealed pair of shares is bound to."""
    return b"share/" + little_endian(round_number, 8) + pair_of_names(sender, receiver)


def seal(key: bytes, round_number: int, sender: int, receiver: int, plain: bytes) -> bytes:
    """Seal a pair of shares."""
    return AESGCM(key).encrypt(bytes(12), plain, associated_data(round_number, sender, receiver))


def unseal(key: bytes, round_number: int, sender: int, receiver: int, sealed: bytes) -> bytes:
    """Open a sealed pair of shares."""
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, associated_data(round_number, sender, receiver))
    except InvalidTag:
        raise Refused("InvalidShare", "a sealed pair of shares that does not open") from None


def confirm_key(agreed: bytes, context: bytes, sender: int, receiver: int) -> bytes:
    """Return the key of the tag from sender to receiver."""
    return derive(agreed, "confirm", context, pair_of_names(sender, receiver))


def survivors_statement(context: bytes, survivors: bytes) -> bytes:
    """Return what a tag confirms."""
    return digest("survivors", context, survivors)


def confirmation_tag(key: bytes, statement: bytes) -> bytes:
    """Return the tag of a confirmation."""
    return hmac.digest(key, statement, hashlib.sha256)[:16]


class RosterEntry(NamedTuple):
    """One user of a roster."""

    identity: bytes
    run_key: bytes
    draw_key: bytes
    chain_tip: bytes
    signature: bytes


def identity_of(private: bytes) -> bytes:
    """Return the public Ed25519 identity."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class RunKeys(NamedTuple):
    """What follows from a run secret: two private keys, and the end of a chain of nonces."""

    run_private: bytes
    draw_private: bytes
    chain_tip: bytes


def run_keys_of(run_secret: bytes, run: str) -> RunKeys:
    """Derive both private keys and the start of the chain, which is hashed sixteen times."""
    context = digest("run secret", run.encode())
    value = derive(run_secret, "draw chain seed", context)
    for _ in range(16):
        value = digest("draw chain", run.encode(), value)
    return RunKeys(derive(run_secret, "run key", context), derive(run_secret, "draw key", context), value)


def signed_enrolment(run: str, run_key: bytes, draw_key: bytes, chain_tip: bytes) -> bytes:
    """Return what an identity signs."""
    return digest("enrolment", run.encode(), run_key, draw_key, chain_tip)


def sign(identity_private: bytes, statement: bytes) -> bytes:
    """Sign with an identity."""
    return Ed25519PrivateKey.from_private_bytes(identity_private).sign(statement)


def roster_digest(run: str, users: Sequence[RosterEntry]) -> bytes:
    """Return the digest that binds a round to its roster."""
    return digest("roster", run.encode(), *(part for user in users for part in user[:4]))


def check_roster(run: str, users: Sequence[RosterEntry]) -> None:
    """Refuse a roster with a key that is not signed, twice, or of small order."""
    keys = [part for user in users for part in user[:4]]
    demand(len(set(keys)) == len(keys), "InvalidKey", "a key that occurs twice in the roster")
    for user in users:
        demand_no_low_order(user.run_key)
        demand(len(user.draw_key) == len(user.chain_tip) == 32, "InvalidKey", "a part that has not 32 bytes")
        try:
            identity = Ed25519PublicKey.from_public_bytes(user.identity)
            identity.verify(user.signature, signed_enrolment(run, *user[1:4]))
        except (InvalidSignature, ValueError):  # ValueError: no key at all.
            raise Refused("InvalidKey", "a run key that its identity has not signed") from None
