"""Vectors of what travels: parameters, messages, packed words, locations."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.field import WORD_BITS, Word, pack
from sparsesecagg.protocol import RoundParameters
from sparsesecagg.protocol.locations import encode_locations
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    Confirm,
    ConfirmRequest,
    KeyDirectory,
    Message,
    ShareDelivery,
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
    roster = named_bytes("roster digest", 32)
    chosen = [
        RoundParameters.create(clients=5, dim=30),
        RoundParameters.create(clients=100, dim=165_000, pattern="pairwise", alpha=0.1, dropout=0.3),
        RoundParameters.create(clients=100, dim=165_000, pattern="full", neighbours=19, modulus_bits=24, clip=0.25),
        RoundParameters.create(
            clients=300,
            dim=1_000_000,
            alpha=0.1,
            modulus_bits=16,
            max_weight=5000,
            min_survivors=5,
            round_number=2**63 - 1,
            model_digest=named_bytes("model digest", 32),
            session=named_bytes("session", 16),
            roster_digest=roster,
        ),
        RoundParameters.create(clients=8, dim=33, alpha=0.4, modulus_bits=8, stripes=2, threshold=8),
    ]
    return {
        "about": "Round parameters: fields, canonical bytes, digest, and what both sides compute from them.",
        "cases": [
            {
                "fields": fields_of(params),
                "bytes": params.encode().hex(),
                "digest": params.digest.hex(),
                "view": params.view.hex(),
                "authenticated": params.authenticated,
                "holders": params.holders,
                "contributors": params.contributors,
                "blocks": params.layout.blocks,
                "length": params.layout.length,
                "width": params.width,
                "limit": params.quantizer.limit,
                "scale": params.quantizer.scale,
                "digit_bits": params.digits.digit_bits,
                "digit_counts": list(params.digits.counts),
            }
            for params in chosen
        ],
    }


def fields_of(params: RoundParameters) -> dict[str, Any]:
    """Return the fields by name; bytes in hexadecimal, the round number (up to 63 bits) in decimal."""
    fields = msgspec.structs.asdict(params)
    fields["round_number"] = str(fields["round_number"])
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def messages() -> Vector:
    """One message of each kind."""
    params = RoundParameters.create(clients=300, dim=30, round_number=70_000)
    head = params.round_number, params.view
    user = (*head, user_number(258))
    some = encode_users(np.array([0, 1, 258, 299]), params.clients)
    upload = memoryview(named_bytes("words", 300))
    chosen: list[Message] = [
        AdvertiseKeys(*user, *(named_bytes(name, 32) for name in ("sealing key", "mask key", "commitment"))),
        KeyDirectory(*head, some, named_bytes("entries", 4 * 96)),
        ShareKeys(*user, named_bytes("seed commitment", 32), named_bytes("nonce", 16), named_bytes("shares", 2 * 88)),
        ShareDelivery(*head, some, named_bytes("nonces", 4 * 16), named_bytes("delivered shares", 3 * 88)),
        Upload(*user, b"", upload),
        Upload(*user, encode_locations(np.array([1, 2, 29]), 30), upload[:12]),
        ConfirmRequest(*head, some),
        Confirm(*user, named_bytes("tags", 3 * 16)),
        UnmaskRequest(*head, some),
        UnmaskRequest(*head, some, encode_users(np.array([1, 299]), params.clients), named_bytes("tags", 2 * 16)),
        Unmask(*user, some, named_bytes("released shares", 4 * 36)),
    ]
    return {
        "about": "One message of each kind, with the fields in their order on the wire.",
        "cases": [
            {
                "tag": message.__struct_config__.tag,
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
        for count in (1, 2, 7):
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
