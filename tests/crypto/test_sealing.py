"""What pairs seal and tag: for one round, one purpose, one sender and one receiver, and not after any change."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from hypothesis import given
from hypothesis import strategies as st

from reference.kdf import hkdf
from sparsesecagg.crypto.sealing import (
    SEAL_OVERHEAD,
    TAG_SIZE,
    PairCipher,
    ciphers,
    is_tag,
    pair_ratchet,
    seal,
    step,
    tag,
    unseal,
)
from sparsesecagg.crypto.secrets import PairRatchets, RoundSecrets
from strategies import seeds, user_numbers

AGREED = bytes(range(32))
CONTEXT = b"\x01" * 32
SENDER, RECEIVER = 3, 5


def cipher(secret: bytes) -> PairCipher:
    [found] = ciphers(RoundSecrets(secret))
    return found


SECRET, OTHER_SECRET = cipher(bytes(range(32))), cipher(bytes(32))
PLAIN = bytes(range(40))
SEALED = seal(SECRET, SENDER, RECEIVER, PLAIN)


def names(one: int, other: int) -> bytes:
    return one.to_bytes(4, "little") + other.to_bytes(4, "little")


# Ratchets


@given(seeds, seeds, user_numbers, user_numbers)
def test_both_sides_start_the_same_ratchet(agreed: bytes, context: bytes, one: int, other: int) -> None:
    """And it is what the description says: HKDF under the context, with the smaller number first."""
    ratchet = pair_ratchet(agreed, context, one, other)
    assert ratchet == pair_ratchet(agreed, context, other, one)
    info = b"sparsesecagg/v3/pair/" + names(min(one, other), max(one, other))
    assert ratchet == hkdf(agreed, context, info, 32)


def test_every_pair_and_context_has_a_ratchet_of_its_own() -> None:
    ratchets = [pair_ratchet(AGREED, CONTEXT, one, other) for one in range(6) for other in range(one, 6)]
    ratchets += [pair_ratchet(AGREED, b"\x02" * 32, 0, 1), pair_ratchet(bytes(32), CONTEXT, 0, 1)]
    assert len(set(ratchets)) == len(ratchets)


@given(st.lists(seeds, max_size=4))
def test_ratchets_move_on_by_a_hash_and_give_one_secret_each_per_round(start: list[bytes]) -> None:
    ratchets, secrets = step(PairRatchets(b"".join(start)))
    both = [hashlib.sha512(b"\0\0\0\1" + each + b"sparsesecagg/v3/round/").digest() for each in start]
    assert ratchets == PairRatchets(b"".join(each[:32] for each in both))
    assert secrets == RoundSecrets(b"".join(each[32:] for each in both))
    assert secrets.reveal_each() == [each[32:] for each in both]


# Sealing


@given(seeds, user_numbers, user_numbers, st.binary(max_size=200))
def test_the_receiver_opens_what_the_sender_sealed(secret: bytes, sender: int, receiver: int, plain: bytes) -> None:
    sealed = seal(cipher(secret), sender, receiver, plain)
    assert unseal(cipher(secret), sender, receiver, sealed) == plain
    assert len(sealed) == len(plain) + SEAL_OVERHEAD


def test_a_sealed_pair_of_shares_takes_48_bytes() -> None:
    assert (SEAL_OVERHEAD, TAG_SIZE, len(SEALED)) == (8, 8, 48)


def test_each_direction_has_a_nonce_of_its_own() -> None:
    """So that none meets one key twice."""
    sealed = {seal(SECRET, sender, receiver, PLAIN) for sender in range(8) for receiver in range(8)}
    assert len(sealed) == 64


@pytest.mark.parametrize(
    ("secret", "sender", "receiver"),
    [(SECRET, 4, 5), (SECRET, 3, 6), (SECRET, 5, 3), (OTHER_SECRET, 3, 5)],
    ids=["sender", "receiver", "reflected", "another round or pair"],
)
def test_another_use_does_not_open(secret: PairCipher, sender: int, receiver: int) -> None:
    assert unseal(SECRET, SENDER, RECEIVER, SEALED) == PLAIN
    assert unseal(secret, sender, receiver, SEALED) is None


def test_truncated_bytes_do_not_open() -> None:
    """Down to nothing at all, and shorter than the tag."""
    for size in range(len(SEALED)):
        assert unseal(SECRET, SENDER, RECEIVER, SEALED[:size]) is None


def test_a_flipped_bit_does_not_open() -> None:
    """Whichever of them all."""
    for place in range(8 * len(SEALED)):
        flipped = bytearray(SEALED)
        flipped[place // 8] ^= 1 << (place % 8)
        assert unseal(SECRET, SENDER, RECEIVER, bytes(flipped)) is None


def test_trailing_bytes_do_not_open() -> None:
    assert unseal(SECRET, SENDER, RECEIVER, SEALED + b"\x00") is None


def test_sealing_hides_the_plain_bytes() -> None:
    assert PLAIN not in SEALED
    assert SEALED[: len(PLAIN)] != PLAIN


# Tags


@given(seeds, user_numbers, user_numbers, seeds)
def test_a_tag_is_ccm_of_the_statement_alone(secret: bytes, sender: int, receiver: int, statement: bytes) -> None:
    nonce = b"tag\0\0" + names(sender, receiver)
    made = tag(cipher(secret), sender, receiver, statement)
    assert made == AESCCM(secret, 8).encrypt(nonce, b"", statement)
    assert len(made) == TAG_SIZE
    assert is_tag(cipher(secret), sender, receiver, statement, made)


def test_a_tag_is_no_sealed_message_and_the_reverse() -> None:
    """Two purposes under one key have different nonces."""
    assert seal(SECRET, SENDER, RECEIVER, b"") != tag(SECRET, SENDER, RECEIVER, b"")
    assert unseal(SECRET, SENDER, RECEIVER, tag(SECRET, SENDER, RECEIVER, b"")) is None
    assert not is_tag(SECRET, SENDER, RECEIVER, b"", seal(SECRET, SENDER, RECEIVER, b""))


def test_a_changed_or_shortened_tag_is_none() -> None:
    made = tag(SECRET, SENDER, RECEIVER, b"s" * 32)
    assert not any(is_tag(SECRET, SENDER, RECEIVER, b"s" * 32, made[:size]) for size in range(TAG_SIZE))
    for place in range(8 * TAG_SIZE):
        flipped = (int.from_bytes(made, "little") ^ 1 << place).to_bytes(TAG_SIZE, "little")
        assert not is_tag(SECRET, SENDER, RECEIVER, b"s" * 32, flipped)


def test_a_tag_says_who_told_what_to_whom() -> None:
    """Another sender, receiver, secret or statement gives another tag, and does not verify it."""
    made = {
        tag(secret, *who, statement)
        for secret in (SECRET, OTHER_SECRET)
        for who in ((3, 5), (5, 3), (3, 6))
        for statement in (b"s" * 32, b"t" * 32)
    }
    assert len(made) == 12
    assert sum(is_tag(SECRET, 3, 5, b"s" * 32, each) for each in made) == 1
