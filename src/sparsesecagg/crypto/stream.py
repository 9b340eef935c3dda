"""Key streams (AES-256-CTR), and mask streams: the same, read as words.

A stream is a sequence of words that depends on its key alone; how it is cut into reads does not matter. A mask stream
leaves out the first two blocks: from there on AES-256-GCM with a zero nonce has the same key stream. On processors with
wide vectors OpenSSL makes that one in half the time, on others it takes twice as long, because of the tag (which is not
used). So the first long mask of a process times both.

Words of up to 31 bits are the low bits of little-endian machine words (their group is modulo 2^bits, so any surplus
high bits vanish in `Word.reduce`). The 32-bit word takes little-endian uint32 values and skips those ≥ q = 2^32 − 5,
which keeps it uniform.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.field import Word

CHUNK_BYTES = 1 << 18
"""Read at a time in the hot loops: enough for AES to run at full speed, and it stays in the second-level cache."""

ONCE_BYTES = 1 << 19
"""A mask up to this size is read at once, which needs less set-up."""

_ZEROS = memoryview(bytes(1 << 20))
_NONCE = bytes(12)
_GCM, _CTR = modes.GCM(_NONCE), modes.CTR((2).to_bytes(16, "big"))
"""Two ways to the same mask stream."""
_SHORT_BYTES = 1 << 15
"""Below this size setting up counts for more, and GCM in one call needs least of it."""
_SLACK = 16  # `update_into` asks for a block less one byte beyond the data, `encrypt_into` for a tag.


class KeyStream:
    """The bytes of AES-256-CTR under one key, from a zero counter. A key is used for one stream only."""

    __slots__ = ("_encryptor", "_key")

    def __init__(self, key: Secret) -> None:
        self._key = key
        self._encryptor: CipherContext | None = None

    def fill(self, room: memoryview, size: int) -> None:
        """Write the next `size` bytes to `room`, which has at least 15 bytes beyond."""
        if self._encryptor is None:
            self._encryptor = Cipher(algorithms.AES(self._key.reveal()), self._mode()).encryptor()
        for start in range(0, size, len(_ZEROS)):
            self._encryptor.update_into(_ZEROS[: size - start], room[start:])

    def _mode(self) -> modes.CTR | modes.GCM:
        return modes.CTR(bytes(16))

    def read(self, size: int) -> NDArray[np.uint8]:
        """Return the next `size` bytes in fresh memory."""
        buffer = np.empty(size + _SLACK, np.uint8)
        self.fill(buffer.data, size)
        return buffer[:size]


class Scratch:
    """Memory for one read, reused by many streams so that the hot loops allocate nothing."""

    def __init__(self, word: Word, words: int | None = None) -> None:
        self.words = words or CHUNK_BYTES // word.dtype.itemsize
        self.buffer = np.empty(self.words * word.dtype.itemsize + _SLACK, np.uint8)
        self._machine_word = word.dtype.newbyteorder("<")  # The key stream is defined as little-endian.
        self._first = self.buffer[:0].view(self._machine_word)
        self.room = self.buffer.data

    def first(self, count: int) -> NDArray[Any]:
        """Return the first `count` words. The count is nearly always the same as last time, so buffers are reused."""
        if len(self._first) != count:
            self._first = self.buffer[: count * self._machine_word.itemsize].view(self._machine_word)
        return self._first


class MaskStream(KeyStream):
    """A key stream without its first two blocks, read as words."""

    __slots__ = ("_word",)

    def __init__(self, key: Secret, word: Word) -> None:
        super().__init__(key)
        self._word = word

    def _mode(self) -> modes.CTR | modes.GCM:
        return _GCM if _gcm_is_faster() else _CTR

    def words(self, count: int, scratch: Scratch) -> NDArray[Any]:
        """Return the next `count` ≤ scratch.words words, valid until the scratch is used again."""
        self.fill(scratch.room, count * self._word.dtype.itemsize)
        words = scratch.first(count)
        if not _leaves_field(words, self._word):
            return words
        words = words[words < self._word.modulus]
        while len(words) < count:  # Filled up with the ones that follow.
            more = self.read(4 * (count - len(words))).view("<u4")
            words = np.concatenate([words, more[more < self._word.modulus]])
        return words

    def only_words(self, count: int, scratch: Scratch) -> NDArray[Any]:
        """Return what `words` does, of a stream that is read this once."""
        self.fill_once(scratch.room, count * self._word.dtype.itemsize)
        words = scratch.first(count)
        return self.words(count, scratch) if _leaves_field(words, self._word) else words

    def fill_once(self, room: memoryview, size: int) -> None:
        """Write the first `size` bytes to `room`, which has at least 16 beyond; what lies there is lost."""
        if size > len(_ZEROS) or (size >= _SHORT_BYTES and not _gcm_is_faster()):
            MaskStream(self._key, self._word).fill(room, size)  # This stream stays at its beginning.
        else:
            AESGCM(self._key.reveal()).encrypt_into(_NONCE, _ZEROS[:size], None, room[: size + _SLACK])


@cache
def _gcm_is_faster() -> bool:
    """Tell which way to the mask stream this processor is faster at; takes a millisecond or two, once."""
    room = memoryview(bytearray(len(_ZEROS) + _SLACK))

    def seconds(mode: modes.CTR | modes.GCM) -> float:
        encryptor = Cipher(algorithms.AES(bytes(32)), mode).encryptor()
        before = time.perf_counter()
        encryptor.update_into(_ZEROS, room)
        return time.perf_counter() - before

    gcm, ctr = (min(seconds(mode) for _ in range(3)) for mode in (_GCM, _CTR))
    return gcm < ctr


def read_side_by_side(streams: Sequence[KeyStream], sizes: Sequence[int]) -> NDArray[np.uint8]:
    """Return the next `sizes[i]` bytes of stream i, one stream behind the other."""
    starts = list(accumulate(sizes, initial=0))
    buffer = np.empty(starts[-1] + _SLACK, np.uint8)
    room = buffer.data
    for stream, start, size in zip(streams, starts[:-1], sizes, strict=True):
        stream.fill(room[start:], size)
    return buffer[: starts[-1]]


def words_side_by_side(streams: Sequence[MaskStream], counts: Sequence[int], word: Word) -> NDArray[Any]:
    """Return the first `counts[i]` words of stream i, one stream behind the other; each is read this once."""
    machine_word = word.dtype.newbyteorder("<")
    starts = list(accumulate(counts, initial=0))
    buffer = np.empty(starts[-1] * machine_word.itemsize + _SLACK, np.uint8)
    words, room = buffer[:-_SLACK].view(machine_word), buffer.data
    for stream, start, count in zip(streams, starts[:-1], counts, strict=True):
        stream.fill_once(room[start * machine_word.itemsize :], count * machine_word.itemsize)
    if _leaves_field(words, word):
        for stream, start, count in zip(streams, starts[:-1], counts, strict=True):
            words[start : start + count] = stream.words(count, Scratch(word, max(1, count)))
    return words


def _leaves_field(words: NDArray[Any], word: Word) -> bool:
    """Tell whether a word is ≥ q; it happens once in 2^32 / 5 words, and only to 32-bit ones."""
    return word.bits == 32 and len(words) > 0 and int(words.max()) >= word.modulus
