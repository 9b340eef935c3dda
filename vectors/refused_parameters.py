"""Parameters, rosters and draws that must be refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.draw import jury
from sparsesecagg.protocol.draw_messages import DrawMessage, DrawProof, encode_draw
from sparsesecagg.protocol.messages import encode_users
from vectors.forging import MALFORMED, Case, flip, operation, with_checksum
from vectors.form import Vector
from vectors.public import DrawnRoster


def bad_parameters() -> list[Case]:
    """One field out of its range at a time; `option` is the field that the error names."""
    good = Parameters.create(clients=6, dim=45, alpha=0.5)
    names = list(Parameters.__struct_fields__)
    plain = msgspec.structs.astuple(good)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("version", {"version": 1}),
        ("pattern", {"pattern": "Full"}),
        ("clients", {"clients": 2}),
        ("clients", {"clients": (1 << 20) + 1}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": (1 << 40) + 1}),
        ("alpha", {"alpha_q32": 0}),
        ("alpha", {"alpha_q32": (1 << 32) + 1}),
        ("dropout", {"dropout": 0.5}),
        ("dropout", {"dropout": float("nan")}),
        ("clip", {"clip": 0.0}),
        ("clip", {"clip": float("inf")}),
        ("max_weight", {"max_weight": -1}),
        ("max_weight", {"max_weight": (1 << 40) + 1}),
        ("colluders", {"colluders": 3}),
        ("session", {"session": bytes(31)}),
        ("roster_digest", {"roster_digest": b""}),
        ("committees", {"committees": 0}),
        ("committees", {"committees": 7}),
        ("pods", {"pods": 0}),
        ("pods", {"pods": 3}),
        ("served", {"served": 0}),
        ("served", {"served": 3}),
        ("committees", {"pattern": "full"}),
        ("neighbours", {"neighbours": 3}),
        ("neighbours", {"neighbours": 6}),
        ("neighbours", {"neighbours": 4}),
        ("neighbours", {"neighbours": 4, "pattern": "full", "committees": 1, "roster_digest": b"\x01" * 32}),
        ("alpha", {"committees": 3}),
        ("threshold", {"threshold": 3}),
        ("threshold", {"threshold": 7}),
        ("min_survivors", {"min_survivors": 0}),
        ("min_survivors", {"min_survivors": 4}),
        ("max_weight", {"max_weight": 100, "pattern": "pairwise", "committees": 1}),
        ("modulus_bits", {"modulus_bits": 3}),
        ("modulus_bits", {"modulus_bits": 33}),
        ("modulus_bits", {"modulus_bits": 4, "clients": 20, "threshold": 15, "min_survivors": 5}),
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
        "clients as a float": msgspec.msgpack.encode([plain[0], 6.5, *plain[2:]]),
        "confirm as a number": msgspec.msgpack.encode([*plain[:12], 0, *plain[13:]]),
        "a pattern that is not UTF-8": encoded.replace(b"committee", b"\xffommittee"),
        "a digest as text": msgspec.msgpack.encode([*plain[:17], "é" * 16, *plain[18:]]),
    }
    return cases + [operation("decode_parameters", MALFORMED, about, bytes=data) for about, data in malformed.items()]


def bad_roster(roster: Vector) -> list[Case]:
    """A roster is checked as a whole."""
    users = [
        {name: user[name] for name in ("identity", "run_key", "draw_key", "chain_tip", "signature")}
        for user in roster["users"]
    ]
    swapped = [{**users[0], "signature": users[1]["signature"]}, *users[1:]]
    copied = [users[0], users[0], *users[2:]]
    replaced = [{**users[0], "chain_tip": "55" * 32}, *users[1:]]
    short = [{**users[0], "identity": users[0]["identity"][:-2]}, *users[1:]]
    return [
        operation("check_roster", "InvalidKey", "another run", run="digits, run 8", users=users),
        operation("check_roster", "InvalidKey", "another's signature", run=roster["run"], users=swapped),
        operation("check_roster", "InvalidKey", "another chain tip", run=roster["run"], users=replaced),
        operation("check_roster", "InvalidKey", "a user twice", run=roster["run"], users=copied),
        operation("check_roster", "InvalidKey", "an identity of 31 bytes", run=roster["run"], users=short),
    ]


def bad_draw(drawn: DrawnRoster) -> list[Case]:
    """Requests that a juror does not answer, and proofs that nobody accepts."""
    people, jurors = len(drawn.people), drawn.jury
    juror, outsider = jurors[0], next(user for user in range(len(drawn.people)) if user not in jurors)
    proof, params = drawn.proof(), drawn.params.encode()

    def users(*chosen: int) -> bytes:
        return encode_users(np.array(chosen), people)

    def asked(error: str, about: str, request: DrawMessage | bytes, user: int = juror, answered: Any = ()) -> Case:
        data = request if isinstance(request, bytes) else encode_draw(request)  # type: ignore[arg-type]
        before = [encode_draw(each).hex() for each in answered]
        return operation("answer_draw", error, about, parameters=params, user=user, answered=before, request=data)

    def shown(about: str, proof: DrawProof, error: str = "InvalidDraw", last: int = 0, changed: bytes = params) -> Case:
        return operation("verify_draw", error, about, parameters=changed, last_draw=last, proof=encode_draw(proof))

    def forged(**changes: Any) -> DrawProof:
        return msgspec.structs.replace(proof, **changes)

    four = users(*(user for user in range(people) if user != outsider))
    three = users(*jurors)
    seventeen = with_checksum(b"\x02" + msgspec.msgpack.encode(["draw request", 17, bytes(32), three, three]))
    last = max(draw for draw in (2, 1) if juror in jury(drawn.roster.digest, draw, people, 1))
    other = msgspec.structs.replace(drawn.params, dim=5).encode()
    reveals = proof.reveals
    refused = "InvalidDraw"
    return [
        asked(refused, "another roster", drawn.request(roster_digest=bytes(32))),
        asked(refused, "fewer than 4/5 of the users", drawn.request(population=three)),
        asked(refused, "a stranger is named", drawn.request(named=drawn.everybody)),
        asked(refused, "two of three are named", drawn.request(named=users(*jurors[:2]))),
        asked(refused, "a user that is not named", drawn.request(), outsider),
        asked(
            refused, "another statement for the same number", drawn.request(population=four), answered=[drawn.request()]
        ),
        asked(refused, "an earlier number", drawn.request(last), answered=[drawn.request()]),
        asked(MALFORMED, "a seventeenth draw", seventeen),
        asked(MALFORMED, "a set of another size", drawn.request(named=three + b"\0")),
        shown("a number that was accepted already", proof, last=3),
        shown("another population than was signed", forged(population=four)),
        shown("two of three are named", forged(named=users(*jurors[:2]), reveals=reveals[:192])),
        shown("a reveal too few", forged(reveals=reveals[96:])),
        shown("a signature with a bit flipped", forged(reveals=flip(reveals, 96))),
        shown("a nonce with a bit flipped", forged(reveals=flip(reveals, 80))),
        shown("two reveals swapped", forged(reveals=reveals[96:192] + reveals[:96] + reveals[192:])),
        shown("the reveals of another number", forged(reveals=drawn.proof(16).reveals)),
        shown("other parameters than were signed", proof, changed=other),
        shown("a set of another size", forged(population=drawn.everybody + b"\0"), MALFORMED),
    ]
