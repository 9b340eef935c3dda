"""What pairs seal and tag: for one round, one purpose, one sender and one receiver, and not after any change."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.kdf import hkdf
from sparsesecagg.crypto.sealing import (
    SEAL_OVERHEAD,
    TAG_SIZE,
    next_ratchet,
    pair_ratchet,
    round_secret,
    seal,
    tag,
    unseal,
)
from sparsesecagg.crypto.secrets import PairRatchet, RoundSecret
from strategies import seeds, user_numbers

AGREED = bytes(range(32))
CONTEXT = b"\x01" * 32
SENDER, RECEIVER = 3, 5
SECRET = RoundSecret(bytes(range(32)))
PLAIN = bytes(range(40))
SEALED = seal(SECRET, SENDER, RECEIVER, PLAIN)


def names(one: int, other: int) -> bytes:
    return one.to_bytes(4, "little") + other.to_bytes(4, "little")


def mac(key: bytes, label: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"sparsesecagg/v3/" + label + b"/" + b"".join(parts), hashlib.sha256)


# Ratchets


@given(seeds, seeds, user_numbers, user_numbers)
def test_both_sides_start_the_same_ratchet(agreed: bytes, context: bytes, one: int, other: int) -> None:
    """And it is what the description says: HKDF under the context, with the smaller number first."""
    ratchet = pair_ratchet(agreed, context, one, other)
    assert ratchet == pair_ratchet(agreed, context, other, one)
    info = b"sparsesecagg/v3/pair/" + names(min(one, other), max(one, other))
    assert ratchet.reveal() == hkdf(agreed, context, info, 32)


def test_every_pair_and_context_has_a_ratchet_of_its_own() -> None:
    ratchets = [pair_ratchet(AGREED, CONTEXT, one, other) for one in range(6) for other in range(one, 6)]
    ratchets += [pair_ratchet(AGREED, b"\x02" * 32, 0, 1), pair_ratchet(bytes(32), CONTEXT, 0, 1)]
    assert len({ratchet.reveal() for ratchet in ratchets}) == len(ratchets)


@given(seeds)
def test_a_ratchet_moves_on_by_a_hash_and_gives_one_secret_per_round(start: bytes) -> None:
    ratchet = PairRatchet(start)
    assert next_ratchet(ratchet).reveal() == mac(start, b"next round")
    assert round_secret(ratchet).reveal() == mac(start, b"this round")
    assert type(next_ratchet(ratchet)) is PairRatchet
    assert type(round_secret(ratchet)) is RoundSecret


# Sealing


@given(seeds, user_numbers, user_numbers, st.binary(max_size=200))
def test_the_receiver_opens_what_the_sender_sealed(secret: bytes, sender: int, receiver: int, plain: bytes) -> None:
    sealed = seal(RoundSecret(secret), sender, receiver, plain)
    assert unseal(RoundSecret(secret), sender, receiver, sealed) == plain
    assert len(sealed) == len(plain) + SEAL_OVERHEAD


def test_a_sealed_pair_of_shares_takes_48_bytes() -> None:
    assert (SEAL_OVERHEAD, TAG_SIZE, len(SEALED)) == (8, 8, 48)


def test_each_direction_has_a_key_of_its_own() -> None:
    """So that the constant nonce never meets one key twice."""
    sealed = {seal(SECRET, sender, receiver, PLAIN) for sender in range(8) for receiver in range(8)}
    assert len(sealed) == 64


@pytest.mark.parametrize(
    ("secret", "sender", "receiver"),
    [(SECRET, 4, 5), (SECRET, 3, 6), (SECRET, 5, 3), (RoundSecret(bytes(32)), 3, 5)],
    ids=["sender", "receiver", "reflected", "another round or pair"],
)
def test_another_use_does_not_open(secret: RoundSecret, sender: int, receiver: int) -> None:
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
def test_a_tag_is_hmac_cut_to_size(secret: bytes, sender: int, receiver: int, statement: bytes) -> None:
    expected = mac(secret, b"header tag", names(sender, receiver), statement)[:8]
    assert tag(RoundSecret(secret), "header tag", sender, receiver, statement) == expected


def test_a_tag_says_who_told_what_to_whom_and_what_for() -> None:
    """Another purpose, sender, receiver, secret or statement gives another tag."""
    made = {
        tag(secret, purpose, *who, statement)
        for secret in (SECRET, RoundSecret(bytes(32)))
        for purpose in ("header tag", "another tag")
        for who in ((3, 5), (5, 3), (3, 6))
        for statement in (b"s" * 32, b"t" * 32)
    }
    assert len(made) == 24
