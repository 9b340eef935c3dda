"""Messages that server or client must refuse for what they are: damaged, misplaced, or with keys that can't be used."""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.crypto.kdf import CHECKSUM_SIZE
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    EpochKeys,
    RoundHeader,
    ShareKeys,
    UnmaskRequest,
    Upload,
    encode,
    user_number,
)
from vectors.forging import MALFORMED, Case, Runs, flip, with_checksum
from vectors.form import named_bytes
from vectors.refused_headers import other_header

LOW_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
"""Points of small order: 0, 1, the two of order 8, p − 1, p, p + 1."""


def damaged(runs: Runs) -> list[Case]:
    """Changed bytes, which the checksum shows; other versions, which the first byte shows."""
    cases, name = [], "run_weights"
    place = runs.find(name, "UPLOAD", sender=1)
    whole = runs.data(name, place)
    for about, data in {
        "nothing": b"",
        "the version alone": whole[:1],
        "shorter than a checksum": whole[:7],
        "half of it": whole[: len(whole) // 2],
        "without the last byte": whole[:-1],
        "one byte more": whole + b"\0",
        "a bit of a tag flipped": flip(whole, len(whole) - CHECKSUM_SIZE - 1),
        "a bit of the checksum flipped": flip(whole, len(whole) - 1),
        "an unknown version": with_checksum(b"\x02" + whole[1:-CHECKSUM_SIZE]),
    }.items():
        cases.append(runs.raw_to_server(name, place, data, MALFORMED, f"to the server: {about}"))
    place = runs.find(name, "ADVERTISE_KEYS", receiver=2)
    whole = runs.data(name, place)
    for about, data in {"half of it": whole[: len(whole) // 2], "a bit of a key flipped": flip(whole, 90)}.items():
        cases.append(runs.raw_to_client(name, place, 2, data, MALFORMED, f"to a user: {about}"))
    return cases


def malformed(runs: Runs) -> list[Case]:
    """Arrays that are not the messages of this protocol."""
    name = "run_full"
    place = runs.find(name, "ADVERTISE_KEYS", sender=0)
    array = msgspec.msgpack.decode(runs.data(name, place)[1:-CHECKSUM_SIZE])
    forged = {
        "an unknown name": ["advertise", *array[1:]],
        "a field less": array[:-1],
        "a field more": [*array, 0],
        "a map instead of an array": {"advertise keys": array[1:]},
        "a round number below zero": [array[0], -1, *array[2:]],
        "a round number of 64 bits": [array[0], 1 << 63, *array[2:]],
        "a round number as text": [array[0], "1", *array[2:]],
        "a round number that is true": [array[0], True, *array[2:]],
        "a binding of seven bytes": [*array[:2], array[2][:7], *array[3:]],
        "a user number of one byte": [*array[:3], b"\0", *array[4:]],
        "a key of 31 bytes": [*array[:4], array[4][:31]],
        "a key as text": [*array[:4], "x" * 32],
        "a message that only the server sends": ["unmask request", array[1], array[2], b"\x1f", b""],
    }
    cases = [
        runs.raw_to_server(name, place, with_checksum(b"\x03" + msgspec.msgpack.encode(content)), MALFORMED, about)
        for about, content in forged.items()
    ]
    body = runs.data(name, place)[:-CHECKSUM_SIZE]
    cases.append(runs.raw_to_server(name, place, with_checksum(body + b"\xc0"), MALFORMED, "a second value"))
    return cases


def wrong_round(runs: Runs) -> list[Case]:
    """Messages that name another round, and packages for rounds that are not the next two."""
    error, name = "WrongRound", "run_rounds"
    packages = [runs.find(name, "SHARE_KEYS", sender=0, nth=nth) for nth in range(3)]
    header, request = (runs.find(name, stage, receiver=0) for stage in ("UPLOAD", "UNMASK"))
    return [
        runs.to_server("run_full", "ADVERTISE_KEYS", 1, error, "an epoch that is to come", round_number=2),
        runs.to_server(name, "UPLOAD", 0, error, "an upload of another round", round_number=2),
        runs.to_server(name, "UNMASK", 0, error, "an answer of another round", round_number=2),
        runs.raw_to_server(name, packages[0], runs.data(name, packages[2]), error, "a package three rounds ahead"),
        runs.raw_to_server(name, packages[2], runs.data(name, packages[0]), error, "a package for the round itself"),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "an epoch that begins with round 0", first_round=0),
        runs.to_client(name, "UNMASK", 0, error, "to a user, at UNMASK", round_number=2),
        runs.raw_to_client(name, header, 1, runs.data(name, request), error, "UNMASK before any header"),
    ]


def wrong_binding(runs: Runs) -> list[Case]:
    """Messages whose binding is not that of parameters, epoch or header."""
    error, name, other = "WrongBinding", "run_full", bytes(8)
    epoch = runs.sent(name, "SHARE_KEYS", 1, ShareKeys).binding
    header = runs.sent(name, "UPLOAD", 1, Upload).binding
    return [
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "other parameters, to the server", binding=other),
        runs.to_server(name, "SHARE_KEYS", 1, error, "another epoch, to the server", binding=other),
        runs.to_server(name, "UPLOAD", 1, error, "an upload with the epoch's binding", binding=epoch),
        runs.to_server(name, "UNMASK", 0, error, "another header, to the server", binding=other),
        runs.to_client(name, "ADVERTISE_KEYS", 1, error, "other parameters, to a user", binding=other),
        runs.to_client(name, "UPLOAD", 1, error, "another epoch, to a user", binding=other),
        runs.to_client(name, "UPLOAD", 1, error, "a header with the header's binding", binding=header),
        runs.to_client(name, "UNMASK", 0, error, "another header, to a user", binding=epoch),
    ]


def wrong_stage(runs: Runs) -> list[Case]:
    """Messages that are early or late, and a header for a round without a key package."""
    name, error = "run_full", "WrongStage"
    advertise, upload = (runs.find(name, stage, sender=0) for stage in ("ADVERTISE_KEYS", "UPLOAD"))
    unmask, epoch = runs.find(name, "UNMASK", sender=0), runs.find(name, "ADVERTISE_KEYS", receiver=0)
    header = runs.find(name, "UPLOAD", receiver=0)
    late = "run_full_neighbours"
    other_epoch = encode(msgspec.structs.replace(runs.got(name, "ADVERTISE_KEYS", 0, EpochKeys), first_round=2))
    early = encode(msgspec.structs.replace(runs.got(name, "UNMASK", 0, UnmaskRequest), round_number=0))
    other = runs.data(late, runs.find(late, "UPLOAD", receiver=0))
    return [
        runs.raw_to_server(name, advertise, runs.data(name, upload), error, "an upload before keys"),
        runs.raw_to_server(name, upload, runs.data(name, advertise), error, "keys when uploads are due"),
        runs.raw_to_server(name, upload, runs.data(name, unmask), error, "shares when uploads are due"),
        runs.raw_to_server(name, header - 1, runs.data(name, upload), error, "an upload before the round begins"),
        runs.raw_to_client(name, epoch, 0, runs.data(name, header), error, "a header before the epoch keys"),
        runs.raw_to_client(name, header, 0, other_epoch, error, "other epoch keys than those it has accepted"),
        runs.raw_to_client(name, epoch, 0, early, error, "UNMASK before it has any keys"),
        runs.raw_to_client(late, runs.find(late, "UPLOAD", receiver=0), 2, other, error, "no package for this round"),
    ]


def already_answered(runs: Runs) -> list[Case]:
    """What is over is over: another header for a round, another request, an earlier round."""
    name, error = "run_rounds", "AlreadyAnswered"
    header = runs.find(name, "UPLOAD", receiver=0)
    uploaded, request = runs.find(name, "UPLOAD", sender=0), runs.find(name, "UNMASK", receiver=0)
    answered, later = runs.find(name, "UNMASK", sender=0), runs.find(name, "UPLOAD", sender=0, nth=1)
    other, asked = other_header(runs, name, 0), runs.got(name, "UNMASK", 0, UnmaskRequest)
    others = asked.survivors[0] & ~1
    fewer = encode(msgspec.structs.replace(asked, survivors=bytes([asked.survivors[0] & ~(others & -others)])))
    return [
        runs.raw_to_client(name, uploaded + 1, 0, other, error, "another header for a round that it has uploaded in"),
        runs.raw_to_client(name, answered + 1, 0, fewer, error, "other survivors, after it has released shares"),
        runs.raw_to_client(name, answered + 1, 0, runs.data(name, header), error, "the header, after UNMASK"),
        runs.raw_to_client(name, later + 1, 0, runs.data(name, request), error, "a request of the round before"),
    ]


def unknown_sender(runs: Runs) -> list[Case]:
    """Messages of users who may not send in the stage, or not in this name."""
    error, name = "UnknownSender", "run_full"
    place = runs.find(name, "ADVERTISE_KEYS", sender=1)
    about = "the transport knows that another user sent it"
    return [
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "beyond the cohort", number=user_number(5)),
        runs.to_server("run_full_neighbours", "UPLOAD", 0, error, "a user without a package", number=user_number(2)),
        runs.to_server("run_full", "UNMASK", 0, error, "a user that has dropped out", number=user_number(4)),
        runs.to_server("run_sliced", "SHARE_KEYS", 0, error, "a package of one without a key", number=user_number(6)),
        runs.to_server("run_bad_tags", "UPLOAD", 1, error, "one who gets no more rounds", nth=1, number=user_number(4)),
        runs.raw_to_server(name, place, runs.data(name, place), error, about, transport_sender=2),
    ]


def duplicate_message(runs: Runs) -> list[Case]:
    """The same message twice."""
    name, error = "run_full", "DuplicateMessage"
    cases = []
    for stage in ("ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"):
        place = runs.find(name, stage, sender=1)
        cases.append(runs.raw_to_server(name, place + 1, runs.data(name, place), error, f"at {stage}"))
    place = runs.find(name, "SHARE_KEYS", sender=1)
    other = runs.sent(name, "SHARE_KEYS", 1, ShareKeys)
    second = encode(msgspec.structs.replace(other, mask_key=named_bytes("another mask key", 32)))
    return [*cases, runs.raw_to_server(name, place + 1, second, error, "another key package for the same round")]


def low_order(runs: Runs) -> list[Case]:
    """Points of small order, alone and in messages."""
    private = named_bytes("one private key", 32).hex()
    cases = [
        {
            "about": "agreement with a point of small order",
            "operation": "x25519",
            "private": private,
            "peer_public": point,
            "error": "InvalidKey",
        }
        for point in LOW_ORDER
    ]
    name, error, bad = "run_full", "InvalidKey", bytes.fromhex(LOW_ORDER[2])
    keys = runs.got(name, "ADVERTISE_KEYS", 0, EpochKeys).keys
    mask_keys = runs.got(name, "UPLOAD", 0, RoundHeader).mask_keys
    with_bad = mask_keys[:32] + bad + mask_keys[64:]
    return [
        *cases,
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "a sealing key, to the server", sealing_key=bad),
        runs.to_server(name, "SHARE_KEYS", 1, error, "a mask key, to the server", mask_key=bad),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "a partner's sealing key", keys=keys[:64] + bad + keys[96:]),
        runs.to_client(name, "UPLOAD", 0, error, "a partner's mask key", mask_keys=with_bad),
    ]


def duplicate_key(runs: Runs) -> list[Case]:
    """Keys used twice, seen by server and user."""
    name, error = "run_full", "InvalidKey"
    first = runs.sent(name, "ADVERTISE_KEYS", 0, AdvertiseKeys)
    keys = runs.got(name, "ADVERTISE_KEYS", 0, EpochKeys).keys
    package = runs.sent(name, "SHARE_KEYS", 0, ShareKeys)
    mask_keys = runs.got(name, "UPLOAD", 0, RoundHeader).mask_keys
    twice = mask_keys[:64] + mask_keys[32:64] + mask_keys[96:]
    return [
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "another's sealing key", sealing_key=first.sealing_key),
        runs.to_server(name, "SHARE_KEYS", 1, error, "another's mask key", mask_key=package.mask_key),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "two with one sealing key", keys=keys[:96] + keys[64:128]),
        runs.to_client(name, "UPLOAD", 0, error, "two with one mask key", mask_keys=twice),
    ]


def replaced_key(runs: Runs) -> list[Case]:
    """A user looks itself up in the epoch keys."""
    name, error = "run_full", "InvalidKey"
    message = runs.got(name, "ADVERTISE_KEYS", 1, EpochKeys)
    keys, fresh = message.keys, named_bytes("another key", 32)
    without = {"present": bytes([message.present[0] & ~2]), "keys": keys[:32] + keys[64:]}
    few = {"present": b"\x07", "keys": keys[:96]}
    changed: list[tuple[str, str, dict[str, Any]]] = [
        (error, "its sealing key", {"keys": keys[:32] + fresh + keys[64:]}),
        (error, "its sealing key is missing", without),
        ("PolicyViolation", "fewer holders than the threshold", few),
        ("WrongStage", "keys of another epoch", {"round_number": 2}),
    ]
    return [runs.to_client(name, "ADVERTISE_KEYS", 1, kind, about, **fields) for kind, about, fields in changed]
