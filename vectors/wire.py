"""Vectors of what travels: parameters, messages, packed words, locations."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.field import WORD_BITS, Word, pack
from sparsesecagg.patterns.gaps import encode_locations
from sparsesecagg.patterns.sliced import Sliced
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    EpochKeys,
    Message,
    RoundHeader,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    encode,
    encode_users,
    user_number,
)
from vectors.form import Vector, integers, named_bytes


def parameters() -> Vector:
    """Parameters, their bytes, and what follows from them."""
    chosen: list[tuple[int, int, RoundOptions]] = [
        (5, 30, RoundOptions()),
        (100, 165_000, RoundOptions("pairwise", alpha=0.1, dropout=0.3)),
        (100, 165_000, RoundOptions("full", neighbours=19, modulus_bits=24, clip=0.25)),
        (100, 165_000, RoundOptions(alpha=0.1, modulus_bits=8, dropout=0.3)),
        (1000, 1_000_000, RoundOptions(alpha=0.05, group_size=100, modulus_bits=9, max_weight=5000, dropout=0.05)),
        (70_000, 1 << 40, RoundOptions(alpha=0.001, same_slices=True, modulus_bits=16, colluding=0.1)),
        (8, 33, RoundOptions(alpha=0.5, modulus_bits=5, threshold=8)),
        (29, 50, RoundOptions(alpha=0.037, group_size=5, modulus_bits=31, colluding=0.3)),
        (100, 165_000, RoundOptions(alpha=0.1, modulus_bits=16, clip_norm=0.5, noise_multiplier=0.9)),
        (10, 31, RoundOptions(clip_norm=0.1, noise_multiplier=6.5, per_example=True)),
    ]
    made = [Parameters.create(*each, session=named_bytes("session", 32)) for each in chosen]
    made.append(made[4].replace(roster_digest=named_bytes("roster digest", 32)))
    return {
        "about": "Parameters of a run: fields, canonical bytes, digest, and what both sides compute from them.",
        "cases": [
            {
                "fields": fields_of(params),
                "bytes": params.encode().hex(),
                "digest": params.digest.hex(),
                "run": params.run.hex(),
                "smallest_group": min(params.sizes),
                "contributors": params.contributors,
                "holders": params.holders,
                "quorum": params.quorum,
                "accusers": params.accusers,
                "block": [params.shape.part, params.shape.block] if isinstance(params.shape, Sliced) else None,
                "limit": params.shape.layout.limit,
                "scale": params.mechanism.scale if params.mechanism else params.quantizer.scale,
                "noise": [params.mechanism.squared_norm, params.mechanism.variance] if params.mechanism else None,
                "digit_bits": params.shape.digits.digit_bits,
                "digit_counts": list(params.shape.digits.counts),
            }
            for params in made
        ],
    }


def fields_of(params: Parameters) -> dict[str, Any]:
    """Return the fields by name; bytes in hexadecimal."""
    fields = msgspec.structs.asdict(params)
    if not params.per_example:
        del fields["per_example"]  # As in the bytes.
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def messages() -> Vector:
    """One message of each kind."""
    head = 70_000, named_bytes("binding", 8)
    user = (*head, user_number(258))
    some, pair = encode_users(np.array([0, 1, 58, 69]), 70), encode_users(np.array([1, 69]), 70)
    upload = memoryview(named_bytes("words", 300))
    chosen: list[Message] = [
        AdvertiseKeys(*user, named_bytes("sealing key", 32)),
        EpochKeys(*head, 70_001, some, named_bytes("keys", 4 * 32)),
        ShareKeys(*user, named_bytes("mask key", 32), named_bytes("commitment", 32), named_bytes("shares", 3 * 48)),
        RoundHeader(
            *head, some, named_bytes("mask keys", 4 * 32), named_bytes("context", 32), named_bytes("delivered", 3 * 48)
        ),
        Upload(*user, b"", upload, named_bytes("tags", 3 * 8)),
        Upload(*user, encode_locations(np.array([1, 2, 29]), 30), upload[:12], b""),
        UnmaskRequest(*head, some, named_bytes("tags", 3 * 8)),
        Unmask(*user, pair, some, named_bytes("released shares", 4 * 20)),
    ]
    return {
        "about": "One message of each kind, with the fields in their order on the wire.",
        "cases": [
            {
                "name": message.__struct_config__.tag,
                "fields": {
                    name: value if isinstance(value, int) else bytes(value).hex()
                    for name, value in msgspec.structs.asdict(message).items()
                },
                "bytes": encode(message).hex(),
            }
            for message in chosen
        ],
    }


def packing() -> Vector:
    """Words on the wire."""
    cases = []
    for bits in WORD_BITS:
        word = Word.of(bits)
        for count in (1, 9):
            draws = np.frombuffer(named_bytes(f"words of {bits} bits", 8 * count), "<u8") % np.uint64(word.modulus)
            draws[0] = word.modulus - 1
            words = draws.astype(word.dtype)
            cases.append({"bits": bits, "words": integers(words), "bytes": bytes(pack(words, word)).hex()})
    return {"about": "Words packed to exactly `bits` bits each.", "cases": cases}


def locations() -> Vector:
    """Coded coordinates."""
    sparse = np.flatnonzero(np.frombuffer(named_bytes("sparse locations", 1200), np.uint8) < 24)
    dense = np.flatnonzero(np.frombuffer(named_bytes("dense locations", 100), np.uint8) < 150)
    cases = [
        ("none, small model: bitmap", [], 30),
        ("none, large model: gaps", [], 10_000),
        ("all: bitmap", range(21), 21),
        ("dense: bitmap", dense, 100),
        ("sparse: gaps", sparse, 1200),
        ("sparse, the last coordinate too: gaps", [5, 900, 9_999], 10_000),
        ("very sparse, wide gaps", [123_456_789, 987_654_321], 1 << 30),
    ]
    return {
        "about": "Locations in the smaller of two codes.",
        "cases": [
            {
                "about": about,
                "dim": dim,
                "positions": integers(positions),
                "bytes": encode_locations(np.array(positions, np.int64), dim).hex(),
            }
            for about, positions, dim in cases
        ],
    }
