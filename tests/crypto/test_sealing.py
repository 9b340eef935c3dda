"""Sealed shares open for one round, one sender, one receiver and one context, and not after any change."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.crypto.sealing import TAG_SIZE, confirm_key, confirmation, seal, sealing_key, unseal
from sparsesecagg.crypto.secrets import AgreedSecret, SealingKey
from sparsesecagg.errors import InvalidShare
from strategies import seeds, user_numbers

AGREED = AgreedSecret(bytes(range(32)))
CONTEXT = b"\x01" * 32
ROUND, SENDER, RECEIVER = 7, 3, 5
KEY = sealing_key(AGREED, CONTEXT, SENDER, RECEIVER)
PLAIN = bytes(range(72))
SEALED = seal(KEY, PLAIN, ROUND, SENDER, RECEIVER)


@given(seeds, seeds, st.integers(0, 2**63 - 1), user_numbers, user_numbers, st.binary(max_size=200))
def test_the_receiver_opens_what_the_sender_sealed(
    agreed: bytes, context: bytes, round_number: int, sender: int, receiver: int, plain: bytes
) -> None:
    """Each side derives the key for itself."""
    sealed = seal(sealing_key(AgreedSecret(agreed), context, sender, receiver), plain, round_number, sender, receiver)
    key = sealing_key(AgreedSecret(agreed), context, sender, receiver)
    assert unseal(key, sealed, round_number, sender, receiver) == plain
    assert len(sealed) == len(plain) + TAG_SIZE


def test_each_use_has_a_key_of_its_own() -> None:
    """Each direction too, so that the constant nonce never meets one key twice."""
    keys = [
        *(sealing_key(AGREED, CONTEXT, sender, receiver) for sender in range(8) for receiver in range(8)),
        sealing_key(AGREED, b"\x02" * 32, SENDER, RECEIVER),
        sealing_key(AgreedSecret(bytes(32)), CONTEXT, SENDER, RECEIVER),
    ]
    assert len({key.reveal() for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "opened_as",
    [(ROUND + 1, SENDER, RECEIVER), (ROUND, SENDER + 1, RECEIVER), (ROUND, SENDER, RECEIVER + 1)],
    ids=["round", "sender", "receiver"],
)
def test_the_associated_data_alone_refuses_another_use(opened_as: tuple[int, int, int]) -> None:
    """With the very same key: names and round are authenticated a second time."""
    with pytest.raises(InvalidShare):
        unseal(KEY, SEALED, *opened_as)


def test_a_sealed_share_sent_back_does_not_open() -> None:
    """The server may not reflect a user's own message to it."""
    with pytest.raises(InvalidShare):
        unseal(KEY, SEALED, ROUND, RECEIVER, SENDER)
    with pytest.raises(InvalidShare):
        unseal(sealing_key(AGREED, CONTEXT, RECEIVER, SENDER), SEALED, ROUND, RECEIVER, SENDER)


def test_another_context_does_not_open() -> None:
    """Two users who saw different parameters, models or keys read nothing of each other's."""
    with pytest.raises(InvalidShare):
        unseal(sealing_key(AGREED, b"\x02" * 32, SENDER, RECEIVER), SEALED, ROUND, SENDER, RECEIVER)


def test_another_agreed_secret_does_not_open() -> None:
    other = sealing_key(AgreedSecret(bytes(32)), CONTEXT, SENDER, RECEIVER)
    with pytest.raises(InvalidShare):
        unseal(other, SEALED, ROUND, SENDER, RECEIVER)


def test_truncated_bytes_do_not_open() -> None:
    """Down to nothing at all, and shorter than the tag."""
    for size in range(len(SEALED)):
        with pytest.raises(InvalidShare):
            unseal(KEY, SEALED[:size], ROUND, SENDER, RECEIVER)


def test_a_flipped_bit_does_not_open() -> None:
    """Whichever of them all."""
    for place in range(8 * len(SEALED)):
        flipped = bytearray(SEALED)
        flipped[place // 8] ^= 1 << (place % 8)
        with pytest.raises(InvalidShare):
            unseal(KEY, bytes(flipped), ROUND, SENDER, RECEIVER)


def test_trailing_bytes_do_not_open() -> None:
    with pytest.raises(InvalidShare):
        unseal(KEY, SEALED + b"\x00", ROUND, SENDER, RECEIVER)


def test_the_error_names_both_users_and_shows_no_secret() -> None:
    with pytest.raises(InvalidShare, match=r"user 3 to user 5") as caught:
        unseal(SealingKey(bytes(32)), SEALED, ROUND, SENDER, RECEIVER)
    assert caught.value.__cause__ is None


def test_sealing_hides_the_plain_bytes() -> None:
    assert PLAIN not in SEALED
    assert SEALED[: len(PLAIN)] != PLAIN


# Confirmations


def test_a_confirmation_is_hmac_cut_to_size() -> None:
    key = confirm_key(AGREED, CONTEXT, SENDER, RECEIVER)
    expected = hmac.digest(key.reveal(), b"survivors", hashlib.sha256)
    assert confirmation(key, b"survivors", 16) == expected[:16]
    assert confirmation(key, b"survivors", 32) == expected


def test_a_confirmation_says_who_told_what_to_whom_and_where() -> None:
    """Another sender, receiver, context, secret or statement gives another tag."""
    other_secret = AgreedSecret(bytes(32))
    keys = [
        confirm_key(AGREED, CONTEXT, SENDER, RECEIVER),
        confirm_key(AGREED, CONTEXT, RECEIVER, SENDER),
        confirm_key(AGREED, b"\x02" * 32, SENDER, RECEIVER),
        confirm_key(other_secret, CONTEXT, SENDER, RECEIVER),
    ]
    tags = {confirmation(key, statement, 16) for key in keys for statement in (b"these", b"those")}
    assert len(tags) == 8


def test_confirming_and_sealing_use_different_keys() -> None:
    assert confirm_key(AGREED, CONTEXT, SENDER, RECEIVER).reveal() != KEY.reveal()
