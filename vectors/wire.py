"""Vectors of what travels: parameters, messages, packed words, locations."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.field import WORD_BITS, Word, pack
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.draw_messages import AnyDrawMessage, DrawProof, DrawRequest, DrawReveal, encode_draw
from sparsesecagg.protocol.locations import encode_locations
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    Confirm,
    ConfirmRequest,
    EpochKeys,
    Message,
    Order,
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
        Parameters.create(clients=5, dim=30),
        Parameters.create(clients=100, dim=165_000, pattern="pairwise", alpha=0.1, dropout=0.3),
        Parameters.create(clients=100, dim=165_000, pattern="full", neighbours=19, modulus_bits=24, clip=0.25),
        Parameters.create(clients=100, dim=165_000, alpha=0.1, modulus_bits=8, dropout=0.3),
        Parameters.create(
            clients=1000,
            dim=1_000_000,
            alpha=0.037,
            committee_size=36,
            pod_size=72,
            modulus_bits=12,
            max_weight=5000,
            dropout=0.05,
            session=named_bytes("session", 32),
            roster_digest=roster,
        ),
        Parameters.create(clients=70_000, dim=1 << 40, committees=8, pods=2, served=1, modulus_bits=16, confirm=True),
        Parameters.create(clients=8, dim=33, alpha=0.5, modulus_bits=4, threshold=8, min_survivors=1),
        Parameters.create(clients=29, dim=50, committees=7, pods=3, served=3, modulus_bits=31, colluders=14),
    ]
    return {
        "about": "Parameters of a run: fields, canonical bytes, digest, and what both sides compute from them.",
        "cases": [
            {
                "fields": fields_of(params),
                "bytes": params.encode().hex(),
                "digest": params.digest.hex(),
                "run": params.run.hex(),
                "sizes": params.sizes,
                "holders": params.holders,
                "thresholds": [params.threshold_of(sum(sizes)) for sizes in params.sizes],
                "min_survivors": [[params.survivors_of(size) for size in sizes] for sizes in params.sizes],
                "contributors": params.contributors,
                "length": params.slices.length,
                "width": params.width,
                "limit": params.quantizer.limit,
                "scale": params.quantizer.scale,
                "digit_bits": params.digits.digit_bits,
                "digit_counts": list(params.digits.counts),
            }
            for params in chosen
        ],
    }


def fields_of(params: Parameters) -> dict[str, Any]:
    """Return the fields by name; bytes in hexadecimal."""
    fields = msgspec.structs.asdict(params)
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def messages() -> Vector:
    """One message of each kind."""
    head = 70_000, named_bytes("view", 8)
    user = (*head, user_number(258))
    some, pair = encode_users(np.array([0, 1, 58, 69]), 70), encode_users(np.array([1, 69]), 70)
    upload = memoryview(named_bytes("words", 300))
    chosen: list[Message | AnyDrawMessage] = [
        AdvertiseKeys(*user, named_bytes("sealing key", 32), named_bytes("nonce", 16)),
        EpochKeys(*head, 70_001, named_bytes("draw", 100), some, named_bytes("keys", 4 * 32)),
        ShareKeys(*user, named_bytes("head", 64), named_bytes("shares", 3 * 48)),
        Order(
            *head,
            some,
            named_bytes("heads digests", 2 * 32),
            named_bytes("heads", 2 * 64),
            named_bytes("terms", 32),
            (69_999).to_bytes(8, "little") + some,
            named_bytes("delivered shares", 3 * 48),
        ),
        Upload(*user, b"", upload, named_bytes("tags", 3 * 8)),
        Upload(*user, encode_locations(np.array([1, 2, 29]), 30), upload[:12], b""),
        ConfirmRequest(*head, some),
        Confirm(*user, named_bytes("tags", 3 * 8)),
        UnmaskRequest(*head, some, named_bytes("tags", 3 * 8)),
        UnmaskRequest(*head, some, named_bytes("tags", 3 * 8), pair, named_bytes("confirm tags", 2 * 8)),
        Unmask(*user, some, named_bytes("released shares", 4 * 20)),
        DrawRequest(16, named_bytes("roster digest", 32), some, pair),
        DrawReveal(1, user_number(258), named_bytes("reveal", 96)),
        DrawProof(2, some, pair, named_bytes("reveals", 2 * 96)),
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
                "bytes": (encode(message) if isinstance(message, Message) else encode_draw(message)).hex(),
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
