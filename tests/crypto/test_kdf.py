"""Hashing and key derivation: every use, context and name leads to a key of its own."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from hypothesis import given
from hypothesis import strategies as st

import sparsesecagg
from reference.kdf import hkdf
from sparsesecagg.crypto.kdf import DIGEST_SIZE, derive, digest, expand
from strategies import seeds

labels = st.text("abcdefghijklmnopqrstuvwxyz ", min_size=1, max_size=12)
SOURCE = Path(sparsesecagg.__file__).parent


@cache
def labels_in_use(function: str) -> list[str]:
    """The labels that the core passes to a function of this package."""
    places = {"derive": 1, "digest": 0, "expand": 1, "one_step": 1}
    found = []
    for path in [path for package in ("crypto", "patterns", "protocol") for path in (SOURCE / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                label = node.args[places[function]]
                if isinstance(label, ast.Constant):
                    found.append(str(label.value))
    return found


@given(seeds, labels, st.binary(max_size=40), st.binary(max_size=16), st.integers(1, 100))
def test_derivation_is_hkdf_with_the_context_as_salt(
    secret: bytes, label: str, context: bytes, names: bytes, length: int
) -> None:
    info = b"sparsesecagg/v3/" + label.encode() + b"/" + names
    assert derive(secret, label, context, names, length) == hkdf(secret, context, info, length)


def test_the_hkdf_twin_gives_the_published_output() -> None:
    """RFC 5869, test case 1."""
    okm = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert okm.hex() == ("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")


@pytest.mark.parametrize(
    "other",
    [
        (bytes(31) + b"\x01", "pair", b"context", b"names"),
        (bytes(32), "pairs", b"context", b"names"),
        (bytes(32), "pair", b"context.", b"names"),
        (bytes(32), "pair", b"context", b"name"),
        (bytes(32), "pair", b"contextnames", b""),
    ],
    ids=["secret", "label", "context", "names", "moved"],
)
def test_a_change_anywhere_gives_an_unrelated_key(other: tuple[bytes, str, bytes, bytes]) -> None:
    one = derive(bytes(32), "pair", b"context", b"names")
    different_bits = sum((a ^ b).bit_count() for a, b in zip(one, derive(*other), strict=True))
    assert 80 < different_bits < 176  # Half of 256, six standard deviations of eight to each side.


def test_labels_in_use_can_not_run_into_names() -> None:
    """A slash ends the label, so a label must not contain one."""
    found = labels_in_use("derive") + labels_in_use("one_step") + labels_in_use("expand")
    assert {"pair", "pair mask", "pair pattern", "private mask", "mask key", "round"} <= set(found)
    assert not [label for label in found if "/" in label]


@pytest.mark.parametrize("function", ["derive", "one_step", "expand", "digest"])
def test_every_use_has_a_label_of_its_own(function: str) -> None:
    """But for the seed of an epoch, which is derived from a roster or, in a run without one, from the session."""
    found = labels_in_use(function)
    assert found
    assert {label for label in found if found.count(label) > 1} <= {"epoch"}


@given(labels, st.lists(st.binary(max_size=20), max_size=4))
def test_a_digest_is_sha256_of_each_part_behind_its_length(label: str, parts: list[bytes]) -> None:
    written = b"".join(
        len(part).to_bytes(8, "little") + part for part in [b"sparsesecagg/v3/" + label.encode(), *parts]
    )
    assert digest(label, *parts) == hashlib.sha256(written).digest()
    assert len(digest(label, *parts)) == DIGEST_SIZE


def test_parts_of_a_digest_do_not_run_together() -> None:
    """The same bytes cut elsewhere are another input."""
    assert len({digest("a", b"bc", b"d"), digest("a", b"b", b"cd"), digest("a", b"bcd"), digest("ab", b"cd")}) == 4
    assert digest("a") != digest("a", b"")


@given(seeds, labels)
def test_an_expansion_is_the_one_step_function_with_a_hash(key: bytes, label: str) -> None:
    info = b"sparsesecagg/v3/" + label.encode() + b"/"
    assert expand(key, label) == ConcatKDFHash(SHA512(), 64, info).derive(key)
