"""Bytes that one user sends and receives in a round of the committee pattern, in steady state, without the model.

The word that values travel in follows from the committee's size; the bytes of keys, shares and tags from the pod's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import packed_size
from sparsesecagg.protocol.messages import HEAD_SIZE, SEALED_SIZE

SHORTEST_WORD, LONGEST_WORD = 4, 32
FRAMING: Final = 50
"""Round, sender, stage, lengths and checksum of one message, at most."""
ORDER_REST: Final = 110
"""What else an order has: round, terms, the chain of declared survivors."""


@dataclass(frozen=True)
class MessageBytes:
    """Bytes per stage, of one user and round."""

    sent: dict[str, int]
    received: dict[str, int]

    @property
    def total(self) -> int:
        """All that a user sends and receives."""
        return sum(self.sent.values()) + sum(self.received.values())


FEWER_LEVELS: Final = {20: 2, 10: 4}
"""By size of the committee, from which on so few levels do."""
MOST_LEVELS: Final = 8


def default_levels(members: int) -> int:
    """Return the quantisation levels between 0 and the clip for committees of `members`.

    Rounding noise averages out over a committee, so a large one needs few. These are twice as many as were enough in
    every task of results/levels.json: four for 5 users, two for 10, one from 20 on.
    """
    return next((levels for size, levels in FEWER_LEVELS.items() if members >= size), MOST_LEVELS)


def largest_sum(bits: int) -> int:
    """Return the largest magnitude of a signed sum in a word: modulo 2^bits, or q = 2^32 − 5 for 32 bits."""
    modulus = 2**32 - 5 if bits == LONGEST_WORD else 1 << bits
    return (modulus - 1) // 2


def shortest_word(contributors: int, levels: int, clip: float) -> int:
    """Return the fewest bits that hold the sum of the contributors at this many levels."""
    # A clip above 1 is covered by steps of the same width.
    steps = contributors * levels * max(1.0, clip)
    for bits in range(SHORTEST_WORD, LONGEST_WORD + 1):
        if largest_sum(bits) >= steps:
            return bits
    share = largest_sum(LONGEST_WORD) // contributors
    if share >= levels:
        option, most, got = "clip", share // levels, clip
    else:
        option, most, got = "levels", max(1, math.floor(share / max(1.0, clip))), levels
    raise InvalidInput(
        option,
        f"must be at most {most} for the sum of {contributors} contributors to fit the longest word at {levels} levels "
        f"and a clip of {clip:g}, got {got:g}",
    )


def slice_words(dim: int, committees: int, members: int, modulus_bits: int) -> int:
    """Return the words of one slice: its values, a weight, and how many values were clipped."""
    values = -(-dim // committees)
    # Integers beside the values are written in digits whose sums over a committee fit one word.
    digit_bits = (((1 << modulus_bits) - 1) // members + 1).bit_length() - 1
    return values + 1 + -(-values.bit_length() // max(1, digit_bits))


def message_bytes(
    *,
    dim: int,
    committees: int,
    served: int,
    modulus_bits: int,
    committee_size: int,
    pod_size: int,
    pod_committees: int,
    confirm: bool,
    dropout: float = 0.0,
) -> MessageBytes:
    """Return the bytes of one user and round; sizes are those of its own committee and pod.

    A user that missed a round sends two packages in the next one: 1 + θ of them in each round that it is there.
    """
    others, bitmap = pod_size - 1, -(-pod_size // 8)
    words = served * slice_words(dim, committees, committee_size, modulus_bits)
    package = HEAD_SIZE + SEALED_SIZE * others + FRAMING
    heads = DIGEST_SIZE * pod_committees + HEAD_SIZE * committee_size
    sent = {
        "SHARE_KEYS": math.ceil((1 + dropout) * package),
        "UPLOAD": packed_size(words, modulus_bits) + TAG_SIZE * others + FRAMING,
        "UNMASK": SHARE_SIZE * pod_size + bitmap + FRAMING,
    }
    received = {
        "UPLOAD": heads + SEALED_SIZE * others + bitmap + ORDER_REST,
        "UNMASK": TAG_SIZE * pod_size + bitmap + FRAMING,
    }
    if confirm:
        sent["CONFIRM"] = TAG_SIZE * others + FRAMING
        received["CONFIRM"] = bitmap + FRAMING
        received["UNMASK"] += TAG_SIZE * pod_size + bitmap
    return MessageBytes(sent, received)
