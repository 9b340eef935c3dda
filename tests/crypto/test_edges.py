"""The building blocks at their edges: nothing, one, and the last value that is allowed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from crypto.test_stream import ScriptedStream, take
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol, identity_of
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.stream import words_side_by_side
from sparsesecagg.errors import InvalidKey
from sparsesecagg.field import Word

PRIME = 2**31 - 1


# Shares


def test_no_shares_are_no_error() -> None:
    read = shamir.decode_shares(b"")
    assert read is not None
    assert read.tolist() == []


def test_the_largest_element_of_the_field_is_read_and_the_prime_is_not() -> None:
    largest = (PRIME - 1).to_bytes(4, "little") * 5
    read = shamir.decode_shares(largest)
    assert read is not None
    assert read.tolist() == [PRIME - 1] * 5
    assert shamir.decode_shares(largest[:-4] + PRIME.to_bytes(4, "little")) is None


@pytest.mark.parametrize("size", [1, 4, 19, 21, 24])
def test_half_a_share_is_none(size: int) -> None:
    assert shamir.decode_shares(bytes(size)) is None


def test_a_secret_is_restored_from_exactly_as_many_shares_as_it_was_cut_for() -> None:
    secret, holders = bytes(range(16)), np.array([0, 1, 2, 65535])
    shares = shamir.split([secret], holders, 3, Secret(bytes(32)))
    assert shamir.combine(shares[1:].transpose(1, 0, 2), (1, 2, 65535)) == [secret]
    assert shamir.combine(shares[2:].transpose(1, 0, 2), (2, 65535)) != [secret]


def test_limbs_that_are_no_secret_are_not_made_into_one() -> None:
    """Five limbs of 29 bits have 17 bits more than 16 bytes."""
    fits = [2**29 - 1] * 4 + [2**12 - 1]
    for last, expected in ((2**12 - 1, b"\xff" * 16), (2**12, None), (2**29, None)):
        limbs = np.array([[[*fits[:4], last]]], np.uint64)
        assert shamir.combine(limbs, (0,)) == [expected]
    too_large = np.array([[[2**29, *fits[1:]]]], np.uint64)
    assert shamir.combine(too_large, (0,)) == [None]


@pytest.mark.parametrize("sets", [[[1, 1]], [[0, 1, 2], [3, 4, 3]]])
def test_share_indices_must_differ(sets: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="must differ"):
        shamir.lagrange_coefficients(np.array(sets))


# Streams


@pytest.mark.parametrize("count", [1, 2])
def test_even_a_single_word_outside_the_field_is_skipped(count: int) -> None:
    word = Word.of(32)
    script = np.array([word.modulus, 7, 8, 9], "<u4").tobytes()
    assert take(ScriptedStream(script, word), count, word) == [7, 8][:count]
    assert words_side_by_side([ScriptedStream(script, word)], [count], word).tolist() == [7, 8][:count]


def test_the_last_word_of_the_field_is_kept() -> None:
    word = Word.of(32)
    script = np.array([word.modulus - 1, 3], "<u4").tobytes()
    assert take(ScriptedStream(script, word), 1, word) == [word.modulus - 1]


def test_no_streams_give_no_words() -> None:
    for bits in (8, 32):
        assert words_side_by_side([], [], Word.of(bits)).tolist() == []


# Identities


def test_the_public_half_of_an_identity_is_what_the_roster_shows() -> None:
    identity, secret = IdentityKey(bytes([7]) * 32), RunSecret(bytes([8]) * 32)
    public = identity_of(identity)
    assert enrol(identity, "run", secret).identity == public
    Ed25519PublicKey.from_public_bytes(public)


def test_rosters_and_their_entries_are_frozen() -> None:
    """Their signatures were checked when they were made."""
    entry = enrol(IdentityKey(bytes([7]) * 32), "run", RunSecret(bytes([8]) * 32))
    roster = Roster("run", (entry,))
    for record, name in ((entry, "run_key"), (roster, "entries")):
        with pytest.raises(FrozenInstanceError):
            setattr(record, name, b"")


# Keys


@pytest.mark.parametrize("size", [0, 31, 33])
def test_only_32_bytes_are_a_usable_key(size: int) -> None:
    require_usable(b"\x09" * 32)
    with pytest.raises(InvalidKey):
        require_usable(b"\x09" * size)
