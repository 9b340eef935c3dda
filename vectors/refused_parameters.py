"""Parameters and rosters that must be refused."""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.protocol import RoundParameters
from vectors.forging import MALFORMED, Case, operation
from vectors.form import Vector


def bad_parameters() -> list[Case]:
    """One field out of its range at a time; `option` is the field that the error names."""
    good = RoundParameters.create(clients=6, dim=45, alpha=0.5)
    names = list(RoundParameters.__struct_fields__)
    plain = msgspec.structs.astuple(good)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("version", {"version": 2}),
        ("clients", {"clients": 2}),
        ("clients", {"clients": 65537}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": (1 << 40) + 1}),
        ("alpha", {"alpha_q32": 0}),
        ("alpha", {"alpha_q32": (1 << 32) + 1}),
        ("alpha", {"alpha_q32": 1 << 30}),
        ("dropout", {"dropout": 0.5}),
        ("dropout", {"dropout": float("nan")}),
        ("stripes", {"stripes": 0}),
        ("stripes", {"stripes": 4097}),
        ("clip", {"clip": 0.0}),
        ("clip", {"clip": float("inf")}),
        ("max_weight", {"max_weight": -1}),
        ("max_weight", {"max_weight": 100, "pattern": "pairwise"}),
        ("round_number", {"round_number": -1}),
        ("model_digest", {"model_digest": bytes(31)}),
        ("session", {"session": bytes(17)}),
        ("roster_digest", {"roster_digest": b""}),
        ("pattern", {"pattern": "Full"}),
        ("neighbours", {"neighbours": 3}),
        ("neighbours", {"neighbours": 6}),
        ("neighbours", {"neighbours": 4, "threshold": 4, "roster_digest": b"\x01" * 32}),
        ("threshold", {"threshold": 3}),
        ("threshold", {"threshold": 7}),
        ("threshold", {"threshold": 4, "roster_digest": b"\x01" * 32}),
        ("min_survivors", {"min_survivors": 0}),
        ("min_survivors", {"min_survivors": 4}),
        ("modulus_bits", {"modulus_bits": 10}),
        ("modulus_bits", {"modulus_bits": 8, "clients": 200, "threshold": 150, "pattern": "full"}),
    ]
    cases = []
    for option, changed in changes:
        about = ", ".join(
            f"{name} = {value.hex() if isinstance(value, bytes) else value}" for name, value in changed.items()
        )
        fields = [changed.get(name, value) for name, value in zip(names, plain, strict=True)]
        data = msgspec.msgpack.encode(fields)
        cases.append(operation("decode_parameters", "InvalidInput", about, bytes=data, option=option))
    encoded = good.encode()
    malformed = {
        "nothing": b"",
        "cut short": encoded[:-1],
        "a byte more": encoded + b"\0",
        "a field too few": msgspec.msgpack.encode(plain[:-1]),
        "a field too many": msgspec.msgpack.encode([*plain, 0]),
        "clients as a float": msgspec.msgpack.encode([*plain[:2], 6.0, *plain[3:]]),
        "a pattern that is not UTF-8": encoded.replace(b"committee", b"\xffommittee"),
        "a digest as text": msgspec.msgpack.encode([*plain[:14], "0" * 32, *plain[15:]]),
    }
    return cases + [operation("decode_parameters", MALFORMED, about, bytes=data) for about, data in malformed.items()]


def bad_roster(roster: Vector) -> list[Case]:
    """A roster is checked as a whole."""
    users = [
        {name: user[name] for name in ("identity", "run_key", "draw_key", "chain_tip", "signature")}
        for user in roster["users"]
    ]
    swapped = [{**users[0], "signature": users[1]["signature"]}, *users[1:]]
    copied = [users[0], users[0], users[2]]
    replaced = [{**users[0], "chain_tip": "55" * 32}, *users[1:]]
    short = [{**users[0], "identity": users[0]["identity"][:-2]}, *users[1:]]
    return [
        operation("check_roster", "InvalidKey", "another run", run="digits, run 8", users=users),
        operation("check_roster", "InvalidKey", "another's signature", run=roster["run"], users=swapped),
        operation("check_roster", "InvalidKey", "another chain tip", run=roster["run"], users=replaced),
        operation("check_roster", "InvalidKey", "a user twice", run=roster["run"], users=copied),
        operation("check_roster", "InvalidKey", "an identity of 31 bytes", run=roster["run"], users=short),
    ]
