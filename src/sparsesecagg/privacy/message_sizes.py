"""Bytes that one user sends and receives in a round of the committee pattern, in steady state, without the model.

The word that values travel in follows from the committee's size; the bytes of keys, shares and tags from the pod's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import packed_size

SHORTEST_WORD, LONGEST_WORD = 4, 32
FRAMING: Final = 40
"""Round, sender, stage and lengths of one message."""
HEAD: Final = 64
"""Of a package: a mask key and the commitment to a private seed."""
SEALED_PAIR: Final = 56
"""Shares of two secrets, sealed for one holder."""
OPENED_SHARE: Final = 20
TAG: Final = 8
COMMITTEE_HASH: Final = 32
ORDER_REST: Final = 150
"""What else an order has: round, model digest, clip, the chain of declared survivors."""


@dataclass(frozen=True)
class MessageBytes:
    """Bytes per stage, of one user and round."""

    sent: dict[str, int]
    received: dict[str, int]

    @property
    def total(self) -> int:
        """All that a user sends and receives."""
        return sum(self.sent.values()) + sum(self.received.values())


MANY_MEMBERS: Final = 32
"""Committees from this size on take few levels."""


def default_levels(members: int) -> int:
    """Return the quantisation levels between 0 and the clip for committees of `members`.

    Rounding noise averages out over a committee, so a large one needs few levels: two levels of 36 users fit 8 bits,
    eight take 10. An experiment will set the rule; until then it has this one step.
    """
    return 2 if members >= MANY_MEMBERS else 8


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
    room = largest_sum(LONGEST_WORD) // contributors
    if room >= levels:
        option, most, got = "clip", room // levels, clip
    else:
        option, most, got = "levels", max(1, math.floor(room / max(1.0, clip))), levels
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
) -> MessageBytes:
    """Return the bytes of one user and round; sizes are those of its own committee and pod."""
    others, bitmap = pod_size - 1, -(-pod_size // 8)
    words = served * slice_words(dim, committees, committee_size, modulus_bits)
    sent = {
        "SHARE_KEYS": HEAD + SEALED_PAIR * others + FRAMING,
        "UPLOAD": packed_size(words, modulus_bits) + TAG * others + FRAMING,
        "UNMASK": OPENED_SHARE * pod_size + bitmap + FRAMING,
    }
    received = {
        "UPLOAD": COMMITTEE_HASH * pod_committees + HEAD * committee_size + SEALED_PAIR * others + bitmap + ORDER_REST,
        "UNMASK": TAG * pod_size + bitmap + FRAMING,
    }
    if confirm:
        sent["CONFIRM"] = TAG * others + FRAMING
        received["CONFIRM"] = bitmap + FRAMING
        received["UNMASK"] += TAG * pod_size
    return MessageBytes(sent, received)
