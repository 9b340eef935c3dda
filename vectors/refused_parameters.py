"""Parameters, rosters and epochs that must be refused."""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.protocol import Parameters, RoundOptions
from vectors.forging import MALFORMED, Case, operation
from vectors.form import Vector, named_bytes


def bad_parameters() -> list[Case]:
    """One field out of its range at a time; `option` is the field that the error names."""
    session = named_bytes("session of bad parameters", 32)
    good = Parameters.create(6, 45, RoundOptions(alpha=0.5, group_size=3), session=session)
    names = list(Parameters.__struct_fields__)[:-1]  # The last one is written only if it is true.
    plain = msgspec.structs.astuple(good)[:-1]
    full = {"pattern": "full", "groups": 1, "slices": 1, "alpha_q32": 1 << 32, "threshold": 4}
    changes: list[tuple[str, dict[str, Any]]] = [
        ("version", {"version": 2}),
        ("pattern", {"pattern": "Full"}),
        ("clients", {"clients": 2}),
        ("clients", {"clients": (1 << 20) + 1}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": (1 << 40) + 1}),
        ("alpha", {"alpha_q32": 0}),
        ("alpha", {"alpha_q32": (1 << 32) + 1}),
        ("dropout", {"dropout": 0.5}),
        ("dropout", {"dropout": float("nan")}),
        ("colluding", {"colluding": 0.5}),
        ("colluding", {"colluding": -0.1}),
        ("clip", {"clip": 0.0}),
        ("clip", {"clip": float("inf")}),
        ("max_weight", {"max_weight": -1}),
        ("max_weight", {"max_weight": (1 << 40) + 1}),
        ("session", {"session": bytes(31)}),
        ("roster_digest", {"roster_digest": b""}),
        ("groups", {"groups": 0}),
        ("groups", {"groups": 3}),
        ("groups", {"pattern": "full"}),
        ("groups", {"pattern": "pairwise"}),
        ("slices", {"slices": 0}),
        ("slices", {"slices": 3}),
        ("neighbours", {"neighbours": 3}),
        ("neighbours", {"neighbours": 6}),
        ("neighbours", {"neighbours": 2}),
        ("neighbours", {**full, "neighbours": 2, "roster_digest": b"\x01" * 32}),
        ("modulus_bits", {"modulus_bits": 3}),
        ("modulus_bits", {"modulus_bits": 33}),
        ("modulus_bits", {"modulus_bits": 4, "clients": 30}),
        ("alpha", {**full, "alpha_q32": 1 << 31}),
        ("alpha", {"alpha_q32": 1}),
        ("alpha", {"alpha_q32": 1 << 26}),
        ("threshold", {"threshold": 1}),
        ("threshold", {"threshold": 4}),
        ("threshold", {**full, "threshold": 3}),
        ("clip_norm", {"clip_norm": 1.0}),
        ("clip_norm", {"noise_multiplier": 1.0}),
        ("clip_norm", {"clip_norm": 2e30, "noise_multiplier": 1.0}),
        ("clip_norm", {"clip_norm": float("nan"), "noise_multiplier": 1.0}),
        ("noise_multiplier", {"clip_norm": 1.0, "noise_multiplier": 2e4}),
        ("pattern", {**full, "pattern": "pairwise", "clip_norm": 1.0, "noise_multiplier": 1.0}),
        ("pattern", {**full, "neighbours": 2, "threshold": 2, "clip_norm": 1.0, "noise_multiplier": 1.0}),
        ("max_weight", {"max_weight": 3, "clip_norm": 1.0, "noise_multiplier": 1.0}),
        ("modulus_bits", {"modulus_bits": 8, "clip_norm": 1.0, "noise_multiplier": 4.0}),
    ]
    cases = []
    for option, changed in changes:
        about = ", ".join(
            f"{name} = {value.hex() if isinstance(value, bytes) else value}" for name, value in changed.items()
        )
        fields = [changed.get(name, value) for name, value in zip(names, plain, strict=True)]
        data = msgspec.msgpack.encode(fields)
        cases.append(operation("decode_parameters", "InvalidInput", about, bytes=data, option=option))
    rows = [*plain, True]
    cases.append(
        operation(
            "decode_parameters",
            "InvalidInput",
            "examples without noise",
            bytes=msgspec.msgpack.encode(rows),
            option="per_example",
        )
    )
    encoded = good.encode()
    malformed = {
        "nothing": b"",
        "cut short": encoded[:-1],
        "a byte more": encoded + b"\0",
        "a field too few": msgspec.msgpack.encode(plain[:-1]),
        "a field too many": msgspec.msgpack.encode([*plain, 0]),
        "examples that no noise protects, said": msgspec.msgpack.encode([*plain, False]),
        "clients as a float": msgspec.msgpack.encode([plain[0], 6.5, *plain[2:]]),
        "groups that are true": msgspec.msgpack.encode([*plain[:5], True, *plain[6:]]),
        "a pattern that is not UTF-8": encoded.replace(b"sliced", b"\xffliced"),
        "a digest as text": msgspec.msgpack.encode([*plain[:16], "é" * 16, *plain[17:]]),
    }
    return cases + [operation("decode_parameters", MALFORMED, about, bytes=data) for about, data in malformed.items()]


def bad_roster(roster: Vector) -> list[Case]:
    """A roster is checked as a whole."""
    users = [{name: user[name] for name in ("identity", "run_key", "signature")} for user in roster["users"]]
    swapped = [{**users[0], "signature": users[1]["signature"]}, *users[1:]]
    copied = [users[0], users[0], *users[2:]]
    replaced = [{**users[0], "run_key": "55" * 32}, *users[1:]]
    short = [{**users[0], "identity": users[0]["identity"][:-2]}, *users[1:]]
    small = [{**users[0], "run_key": "00" * 32}, *users[1:]]
    rules = {"seed": "07" * 32, "group_size": None, "colluding": 0.1, "beacon": ""}

    def case(about: str, error: str = "InvalidKey", **changes: Any) -> Case:
        inputs = {"run": roster["run"], "users": users, **rules, **changes}
        return operation("check_roster", error, about, **inputs)

    return [
        case("another run", run="digits, run 8"),
        case("another's signature", users=swapped),
        case("another run key", users=replaced),
        case("a user twice", users=copied),
        case("an identity of 31 bytes", users=short),
        case("a run key of small order", users=small),
        case("a seed of 31 bytes", seed="07" * 31),
        case("half of the users collude", "InvalidInput", colluding=0.5, option="colluding"),
        case("groups of two", "InvalidInput", group_size=2, option="group_size"),
        case("groups larger than the roster", "InvalidInput", group_size=6, option="group_size"),
        case("a seed from a beacon that the roster does not name", "InvalidInput", value="01", option="beacon"),
        case("an epoch without a seed", "InvalidInput", seed="", epoch=1, option="roster"),
    ]


def bad_epoch() -> list[Case]:
    """With several groups all draws are known at once, so there are sixteen."""
    params = Parameters.create(6, 8, RoundOptions(group_size=3), session=bytes(32)).encode()
    return [
        operation("epoch_seed", "PolicyViolation", "a seventeenth epoch", parameters=params, epoch=17),
        operation("epoch_seed", "PolicyViolation", "the largest number", parameters=params, epoch=2**31),
    ]
