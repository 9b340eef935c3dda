"""Levels, words, and the bytes of one user in a round, in steady state and without the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.protocol.messages import (
    BINDING_SIZE,
    SEALED_SIZE,
    USER_SIZE,
    Message,
    RoundHeader,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    encode,
)
from sparsesecagg.protocol.parameters import Parameters


def default_levels(users: int) -> int:
    """Return the quantisation levels between 0 and the clip for groups of this size.

    Rounding noise averages out over a group, so a large one needs fewer; the gain multiplies what is left. With these,
    no task of results/levels.json lost more than 0.4 points.
    """
    return 2 if users >= 50 else 4 if users >= 20 else 8


def shortest_word(users: int, levels: int) -> int:
    """Return the fewest bits that hold the sum of `users` values of up to `levels` each."""
    for bits in WORD_BITS:
        if Word.of(bits).largest // users >= levels:
            return bits
    most = Word.of(WORD_BITS[-1]).largest // users
    raise InvalidInput("levels", f"must be at most {most} for the sum of {users} users to fit a word, got {levels}")


@dataclass(frozen=True)
class MessageBytes:
    """Bytes by stage, of one user and round."""

    sent: dict[str, int]
    received: dict[str, int]

    @property
    def upload(self) -> int:
        """The UPLOAD message."""
        return self.sent["UPLOAD"]

    @property
    def all_sent(self) -> int:
        """All messages of a user."""
        return sum(self.sent.values())

    @property
    def all_received(self) -> int:
        """All messages to a user."""
        return sum(self.received.values())


def message_bytes(params: Parameters) -> MessageBytes:
    """Return the mean bytes of a user that does not drop out of the round, at the expected dropout rate θ.

    A user that missed a round sends two key packages in the next one: 1 + θ of them per round. Of the partners,
    1 − θ² have a package for the round, and (1 − θ²)(1 − θ) upload.
    """
    size, rate = params.clients / params.groups, params.dropout
    partners = params.neighbours or size - 1
    there, staying = 1 - rate**2, availability(rate)
    bitmap, number, key, digest = -(-params.contributors // 8), bytes(USER_SIZE), PUBLIC_KEY_SIZE, bytes(DIGEST_SIZE)
    package = _frame(ShareKeys, number, bytes(key), digest, b"") + SEALED_SIZE * partners
    sent = {
        "SHARE_KEYS": (1 + rate) * package,
        "UPLOAD": _upload_frame() + params.shape.upload_size() + TAG_SIZE * partners * there,
        "UNMASK": _frame(Unmask, number, b"", b"", b"") + 2 * bitmap + SHARE_SIZE * (1 + partners * there),
    }
    header, request = _frame(RoundHeader, b"", b"", digest, b""), _frame(UnmaskRequest, b"", b"")
    received = {
        "UPLOAD": header + bitmap + key * size * there + SEALED_SIZE * partners * there,
        "UNMASK": request + bitmap + TAG_SIZE * partners * staying,
    }
    return MessageBytes(*({stage: round(count) for stage, count in each.items()} for each in (sent, received)))


def secagg_upload(dim: int) -> int:
    """Return the bytes of an upload of the whole model in 32-bit words."""
    return _upload_frame() + 4 * dim


def _upload_frame() -> int:
    return _frame(Upload, bytes(USER_SIZE), b"", memoryview(b""), b"")


def _frame(kind: Callable[..., Message], *fields: bytes | memoryview) -> int:
    """Return what a message takes without its lists; their own lengths add a few bytes."""
    return len(encode(kind(1, bytes(BINDING_SIZE), *fields)))
