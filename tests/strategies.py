"""Hypothesis strategies that several tests share. Each one favours the edges: 0, 1, q − 1, empty and full."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import SECRET_SIZE
from sparsesecagg.field import WORD_BITS, Word

word_sizes = st.sampled_from(WORD_BITS).map(Word.of)
"""Every word there is."""

seeds = st.binary(min_size=SECRET_SIZE, max_size=SECRET_SIZE)
"""32 bytes, for keys and secrets."""

user_numbers = st.integers(0, 2**16 - 1)


def residues(word: Word) -> st.SearchStrategy[int]:
    """Canonical words: 0, 1, both sides of the sign and q − 1 more often than chance has it."""
    edges = [0, 1, word.largest, word.largest + 1, word.modulus - 1]
    return st.sampled_from(edges) | st.integers(0, word.modulus - 1)


def signed_values(word: Word) -> st.SearchStrategy[int]:
    """Integers that the word can carry with their sign."""
    edges = [0, 1, -1, word.largest, -word.largest]
    return st.sampled_from(edges) | st.integers(-word.largest, word.largest)


@st.composite
def positions_below(draw: st.DrawFn, largest_dim: int = 3000) -> tuple[NDArray[np.int64], int]:
    """Strictly increasing positions and the dimension: empty, full, sparse, dense, or in clusters."""
    dim = draw(st.integers(1, largest_dim))
    kind = draw(st.sampled_from(["empty", "full", "few", "random", "first", "last"]))
    if kind == "empty":
        chosen = np.zeros(dim, np.bool_)
    elif kind == "full":
        chosen = np.ones(dim, np.bool_)
    elif kind == "few":
        chosen = np.zeros(dim, np.bool_)
        chosen[draw(st.lists(st.integers(0, dim - 1), max_size=5))] = True
    elif kind == "random":
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        chosen = rng.random(dim) < draw(st.floats(0, 1))
    else:
        cluster = draw(st.integers(1, dim))
        chosen = np.zeros(dim, np.bool_)
        chosen[slice(cluster) if kind == "first" else slice(dim - cluster, None)] = True
    return np.flatnonzero(chosen).astype(np.int64), dim


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The same bytes after a few changes: flipped, removed, inserted, cut, or repeated."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        kind = draw(st.sampled_from(["set", "flip", "remove", "insert", "cut", "repeat"]))
        if kind == "set" and changed:
            changed[place] = draw(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xC1, 0xFF]) | st.integers(0, 255))
        elif kind == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "remove" and changed:
            del changed[place]
        elif kind == "insert":
            changed[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "cut":
            del changed[place:]
        elif kind == "repeat":
            changed[place:place] = changed[place : place + 8]
    return bytes(changed)


@st.composite
def models(draw: st.DrawFn, largest_dim: int = 1600) -> NDArray[np.float32]:
    """Flat float32 vectors: around one, two and three blocks of 512, of any size of value, with zeros, even and odd."""
    dim = draw(st.sampled_from([1, 2, 3, 511, 512, 513, 1024, 1025]) | st.integers(1, largest_dim))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.normal(0, 1, dim) * 2.0 ** draw(st.integers(-110, 90))
    kind = draw(st.sampled_from(["normal", "heavy", "sparse", "zero", "listed"]))
    if kind == "heavy":
        values *= np.exp(rng.normal(0, 2, dim))
    elif kind == "sparse":
        values[rng.random(dim) < 0.9] = 0
    elif kind == "zero":
        values[:] = 0
    elif kind == "listed":
        listed = draw(st.lists(st.floats(-(2.0**90), 2.0**90, width=32), min_size=1, max_size=20))
        values[: len(listed)] = listed[:dim]
    return values.astype(np.float32)
