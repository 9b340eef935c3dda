"""Masks of whole uploads: seeds made in one batch, and sums opened by several threads."""

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHMAC

from sparsesecagg.crypto.kdf import one_step
from sparsesecagg.crypto.secrets import AgreedSecret, MaskSeed
from sparsesecagg.crypto.stream import CHUNK_BYTES, ONCE_BYTES, MaskStream
from sparsesecagg.field import Word
from sparsesecagg.patterns.masks import Mask, Pair, add_whole, mask_seeds


def test_seeds_of_many_pairs_are_those_of_each() -> None:
    context = os.urandom(32)
    pairs = [Pair(5, peer, AgreedSecret(os.urandom(32))) for peer in (0, 3, 9)]
    assert mask_seeds(pairs, context) == [mask_seeds([pair], context)[0] for pair in pairs]


def test_deriving_many_is_deriving_each() -> None:
    """And each is what `cryptography` makes, by the published function."""
    secrets, names = [b"a" * 32, b"b" * 32], [b"one", b"two"]
    info = [b"sparsesecagg/v3/pair mask/" + name for name in names]
    assert one_step(secrets, "pair mask", b"c" * 32, names) == [
        ConcatKDFHMAC(SHA256(), 32, b"c" * 32, each).derive(secret) for secret, each in zip(secrets, info, strict=True)
    ]
    with pytest.raises(ValueError, match="shorter"):
        one_step(secrets, "pair mask", b"c" * 32, names[:1])


@pytest.mark.parametrize("bits", [8, 12, 16, 24, 32])
@pytest.mark.parametrize("size", [100, CHUNK_BYTES + 7, ONCE_BYTES + 7])
def test_several_threads_add_what_one_adds(bits: int, size: int) -> None:
    word = Word.of(bits)
    seeds = [os.urandom(32) for _ in range(5)]

    def opened(threads: int) -> np.ndarray:
        sums = word.embed(np.arange(size))
        masks = [Mask(MaskStream(MaskSeed(seed), word), number % 2 == 0) for number, seed in enumerate(seeds)]
        add_whole(sums, masks, word, threads)
        return word.reduce(sums)

    np.testing.assert_array_equal(opened(1), opened(3))
    assert not np.array_equal(opened(1), word.reduce(word.embed(np.arange(size))))
