"""Keys, pair chains (7), sealed pairs of shares and heads (8), seeds of masks (12), tags (15, 16), rosters (5)."""

from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from vectors.verifier.errors import Refused, demand
from vectors.verifier.hashing import derive, digest, expand, little_endian, pair_of_names

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


def first_chain(agreed: bytes, epoch_digest: bytes, user: int, peer: int) -> bytes:
    """Return the chain of a pair in the first round of an epoch."""
    return derive(agreed, "pair", epoch_digest, pair_of_names(min(user, peer), max(user, peer)))


def chain_after(chain: bytes, rounds: int) -> bytes:
    """Return the chain some rounds later."""
    for _ in range(rounds):
        chain = expand(chain, "next round")
    return chain


def round_secret(chain: bytes) -> bytes:
    """Return the secret of the round at which a chain stands."""
    return expand(chain, "this round")


def seal(secret: bytes, sender: int, receiver: int, plain: bytes) -> bytes:
    """Seal a pair of shares."""
    key = expand(secret, "seal", pair_of_names(sender, receiver))
    return AESCCM(key, tag_length=TAG).encrypt(bytes(13), plain, None)


def unseal(secret: bytes, sender: int, receiver: int, sealed: bytes) -> bytes:
    """Open a sealed pair of shares."""
    key = expand(secret, "seal", pair_of_names(sender, receiver))
    try:
        return AESCCM(key, tag_length=TAG).decrypt(bytes(13), sealed, None)
    except InvalidTag:
        raise Refused("InvalidShare", "a sealed pair of shares that does not open") from None


def order_tag(secret: bytes, sender: int, receiver: int, order_digest: bytes) -> bytes:
    """Return the tag by which a sender shows a receiver its order."""
    return expand(secret, "order tag", pair_of_names(sender, receiver) + order_digest)[:TAG]


def confirm_tag(secret: bytes, sender: int, receiver: int, confirmed: bytes) -> bytes:
    """Return the tag by which a sender confirms survivors to a receiver."""
    return expand(secret, "confirm tag", pair_of_names(sender, receiver) + confirmed)[:TAG]


def mask_private(mask_secret: bytes, run: bytes, round_number: int, user: int) -> bytes:
    """Return the private mask key of a round."""
    return derive(mask_secret, "mask key", run, little_endian(round_number, 8) + little_endian(user, 4))


def seed_commitment(private_seed: bytes, run: bytes, round_number: int, user: int) -> bytes:
    """Commit to a private seed."""
    return digest("private seed", run, little_endian(round_number, 8), little_endian(user, 4), private_seed)


def head(mask_secret: bytes, private_seed: bytes, run: bytes, round_number: int, user: int) -> bytes:
    """Return the head of a package."""
    public = public_key(mask_private(mask_secret, run, round_number, user))
    return public + seed_commitment(private_seed, run, round_number, user)


def pair_seeds(agreed: bytes, order_digest: bytes, user: int, peer: int) -> tuple[bytes, bytes]:
    """Return mask_seed and pattern_seed of a pair."""
    both = derive(agreed, "pair mask", order_digest, pair_of_names(min(user, peer), max(user, peer)), 64)
    return both[:32], both[32:]


def private_mask_seed(private_seed: bytes, order_digest: bytes, user: int) -> bytes:
    """Return the seed of a user's private mask."""
    return derive(private_seed, "private mask", order_digest, little_endian(user, 4))


class RosterEntry(NamedTuple):
    """One user of a roster."""

    identity: bytes
    run_key: bytes
    draw_key: bytes
    chain_tip: bytes
    signature: bytes


def signing_public(private: bytes) -> bytes:
    """Return the public half of an Ed25519 key."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class RunKeys(NamedTuple):
    """What follows from a run secret: two private keys, and the values of a chain, nonces[k] being v_k."""

    run_private: bytes
    draw_private: bytes
    nonces: list[bytes]


def run_keys_of(run_secret: bytes, run: str) -> RunKeys:
    """Derive both private keys and the start of the chain, which is hashed sixteen times."""
    context = digest("run secret", run.encode())
    values = [derive(run_secret, "draw chain seed", context)]
    for _ in range(16):
        values.insert(0, hashed_nonce(values[0], run))
    return RunKeys(derive(run_secret, "run key", context), derive(run_secret, "draw key", context), values)


def hashed_nonce(value: bytes, run: str) -> bytes:
    """Return the value before this one in a chain."""
    return digest("draw chain", run.encode(), value)


def signed_enrolment(run: str, run_key: bytes, draw_key: bytes, chain_tip: bytes) -> bytes:
    """Return what an identity signs."""
    return digest("enrolment", run.encode(), run_key, draw_key, chain_tip)


def sign(private: bytes, statement: bytes) -> bytes:
    """Sign with an identity or a draw key."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(statement)


def is_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Tell whether a signature verifies; a key or signature of another length does not."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def roster_digest(run: str, users: Sequence[RosterEntry]) -> bytes:
    """Return the digest that binds a run to its roster."""
    return digest("roster", run.encode(), *(part for user in users for part in user[:4]))


def check_roster(run: str, users: Sequence[RosterEntry]) -> None:
    """Refuse a roster with a key that is not signed, twice, or of small order."""
    keys = [part for user in users for part in user[:4]]
    demand(len(set(keys)) == len(keys), "InvalidKey", "a key that occurs twice in the roster")
    for user in users:
        demand_no_low_order(user.run_key)
        demand(len(user.draw_key) == len(user.chain_tip) == 32, "InvalidKey", "a part that has not 32 bytes")
        signed = is_signed(user.identity, user.signature, signed_enrolment(run, *user[1:4]))
        demand(signed, "InvalidKey", "keys that their identity has not signed")
