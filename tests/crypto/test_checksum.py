"""The checksum of messages: Poly1305 under a public key, which no accident gets past."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reference.checksum import poly1305
from sparsesecagg.crypto.kdf import CHECKSUM_SIZE, checksum, digest

MESSAGE = Random(0).randbytes(5_000)


@given(st.binary(max_size=200))
def test_a_checksum_is_the_head_of_poly1305(data: bytes) -> None:
    assert checksum(data) == poly1305(digest("message"), data)[:CHECKSUM_SIZE]


def test_the_twin_gives_the_published_tag() -> None:
    """RFC 8439, section 2.5.2."""
    key = bytes.fromhex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
    assert poly1305(key, b"Cryptographic Forum Research Group").hex() == "a8061dc1305136c6c22b8baf0c0127a9"


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_pieces_need_not_be_joined(pieces: list[bytes]) -> None:
    assert checksum(*pieces) == checksum(b"".join(pieces)) == checksum(memoryview(b"".join(pieces)))


@given(st.integers(0, 8 * len(MESSAGE) - 1))
def test_a_flipped_bit_shows(bit: int) -> None:
    changed = bytearray(MESSAGE)
    changed[bit // 8] ^= 1 << bit % 8
    assert checksum(bytes(changed)) != checksum(MESSAGE)


@given(st.integers(0, len(MESSAGE) - 1), st.integers(1, 64))
def test_bytes_lost_zeroed_or_sent_twice_show(start: int, count: int) -> None:
    stop = min(len(MESSAGE), start + count)
    head, middle, tail = MESSAGE[:start], MESSAGE[start:stop], MESSAGE[stop:]
    damaged = [head + tail, head + middle + middle + tail, head, MESSAGE + bytes(count)]
    if any(middle):
        damaged.append(head + bytes(len(middle)) + tail)
    assert checksum(MESSAGE) not in [checksum(data) for data in damaged]


@given(st.integers(0, len(MESSAGE) // 16 - 2))
def test_blocks_that_changed_places_show(block: int) -> None:
    """Sums of words, Adler's among them, are weak here."""
    places = [MESSAGE[start : start + 16] for start in range(0, len(MESSAGE), 16)]
    places[block], places[block + 1] = places[block + 1], places[block]
    assert checksum(b"".join(places)) != checksum(MESSAGE)
