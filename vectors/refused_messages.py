"""Messages that server or client must refuse for what they are: damaged, misplaced, or with keys that can't be used."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.protocol.membership import nonce_commitment
from sparsesecagg.protocol.messages import CHECKSUM_SIZE, AdvertiseKeys, KeyDirectory, encode_users, user_number
from vectors.forging import Case, Rounds, flip, with_checksum
from vectors.form import named_bytes

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


def damaged(rounds: Rounds) -> list[Case]:
    """Changed bytes, which the checksum shows; other versions, which the first byte shows."""
    cases = []
    place = rounds.find("round_committee", "UPLOAD", sender=1)
    whole = rounds.data("round_committee", place)
    for about, data in {
        "nothing": b"",
        "the version alone": whole[:1],
        "shorter than a checksum": whole[:7],
        "half of it": whole[: len(whole) // 2],
        "without the last byte": whole[:-1],
        "one byte more": whole + b"\0",
        "a bit of a word flipped": flip(whole, len(whole) - CHECKSUM_SIZE - 1),
        "a bit of the checksum flipped": flip(whole, len(whole) - 1),
        "an unknown version": with_checksum(b"\x02" + whole[1:-CHECKSUM_SIZE]),
    }.items():
        cases.append(
            rounds.raw_to_server("round_committee", place, data, "MalformedMessage", f"to the server: {about}")
        )
    place = rounds.find("round_committee", "SHARE_KEYS", receiver=2)
    whole = rounds.data("round_committee", place)
    for about, data in {"half of it": whole[: len(whole) // 2], "a bit of a key flipped": flip(whole, 60)}.items():
        cases.append(rounds.raw_to_client("round_committee", place, 2, data, "MalformedMessage", f"to a user: {about}"))
    return cases


def malformed(rounds: Rounds) -> list[Case]:
    """Arrays that are not the messages of this protocol."""
    place = rounds.find("round_full", "ADVERTISE_KEYS", sender=0)
    array = msgspec.msgpack.decode(rounds.data("round_full", place)[1:-CHECKSUM_SIZE])
    forged = {
        "an unknown name": ["advertise", *array[1:]],
        "a field less": array[:-1],
        "a field more": [*array, 0],
        "a map instead of an array": {"advertise keys": array[1:]},
        "a round number below zero": [array[0], -1, *array[2:]],
        "a round number of 64 bits": [array[0], 1 << 63, *array[2:]],
        "a round number as text": [array[0], "1", *array[2:]],
        "a view of seven bytes": [*array[:2], array[2][:7], *array[3:]],
        "a user number of one byte": [*array[:3], b"\0", *array[4:]],
        "a key of 31 bytes": [*array[:4], array[4][:31], *array[5:]],
        "a key as text": [*array[:4], "x" * 32, *array[5:]],
        "a message that only the server sends": ["confirm request", array[1], array[2], b"\x1f"],
    }
    cases = [
        rounds.raw_to_server(
            "round_full", place, with_checksum(b"\x01" + msgspec.msgpack.encode(content)), "MalformedMessage", about
        )
        for about, content in forged.items()
    ]
    body = rounds.data("round_full", place)[:-CHECKSUM_SIZE]
    cases.append(
        rounds.raw_to_server("round_full", place, with_checksum(body + b"\xc0"), "MalformedMessage", "a second value")
    )
    return cases


def elsewhere(rounds: Rounds, error: str, **changes: Any) -> list[Case]:
    """Messages whose head names another round or view."""
    return [
        rounds.to_server("round_full", "ADVERTISE_KEYS", 1, error, "to the server, at ADVERTISE_KEYS", **changes),
        rounds.to_server("round_committee", "UPLOAD", 1, error, "to the server, at UPLOAD", **changes),
        rounds.to_client("round_committee", "SHARE_KEYS", 1, error, "to a user, at SHARE_KEYS", **changes),
        rounds.to_client("round_full", "UNMASK", 0, error, "to a user, at UNMASK", **changes),
    ]


def wrong_stage(rounds: Rounds) -> list[Case]:
    """Messages that are early or late."""
    name, error = "round_full", "WrongStage"
    advertise = rounds.find(name, "ADVERTISE_KEYS", sender=0)
    share = rounds.find(name, "SHARE_KEYS", sender=0)
    directory = rounds.find(name, "SHARE_KEYS", receiver=0)
    delivery = rounds.find(name, "UPLOAD", receiver=0)
    request = rounds.find(name, "UNMASK", receiver=0)
    end = rounds.last(name, "UNMASK")
    return [
        rounds.raw_to_server(name, 0, rounds.data(name, share), error, "shares before keys"),
        rounds.raw_to_server(name, share, rounds.data(name, advertise), error, "keys when shares are due"),
        rounds.raw_to_client(name, directory, 0, rounds.data(name, delivery), error, "a delivery before the directory"),
        rounds.raw_to_client(name, delivery, 0, rounds.data(name, request), error, "a request before the upload"),
        rounds.raw_to_client(name, delivery, 0, rounds.data(name, directory), error, "the directory a second time"),
        rounds.raw_to_client(name, end, 0, rounds.data(name, request), error, "a request to one who has answered"),
    ]


def unknown_sender(rounds: Rounds) -> list[Case]:
    """Messages of users who may not send in the stage, or not in this name."""
    place = rounds.find("round_full", "ADVERTISE_KEYS", sender=1)
    cases = [
        rounds.to_server(
            "round_full", "ADVERTISE_KEYS", 1, "UnknownSender", "beyond the cohort", number=user_number(5)
        ),
        rounds.to_server(
            "round_committee_dropouts",
            "UPLOAD",
            0,
            "UnknownSender",
            "a user who did not share its keys",
            number=user_number(6),
        ),
    ]
    data = rounds.data("round_full", place)
    about = "the transport knows that another user sent it"
    cases.append(rounds.raw_to_server("round_full", place, data, "UnknownSender", about, transport_sender=2))
    return cases


def duplicate_message(rounds: Rounds) -> list[Case]:
    """The same message twice."""
    cases = []
    for stage in ("ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"):
        place = rounds.find("round_committee", stage, sender=2)
        data = rounds.data("round_committee", place)
        cases.append(rounds.raw_to_server("round_committee", place + 1, data, "DuplicateMessage", f"at {stage}"))
    return cases


def low_order(rounds: Rounds) -> list[Case]:
    """Points of small order, alone and in a directory."""
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
    directory = rounds.got("round_full", "SHARE_KEYS", 0, KeyDirectory)
    for about, offset in (("a sealing key", 0), ("a mask key", 32)):
        start = 2 * 96 + offset
        entries = directory.entries[:start] + bytes.fromhex(LOW_ORDER[2]) + directory.entries[start + 32 :]
        cases.append(
            rounds.to_client("round_full", "SHARE_KEYS", 0, "InvalidKey", f"{about} in the directory", entries=entries)
        )
    return cases


def duplicate_key(rounds: Rounds) -> list[Case]:
    """Keys used twice, seen by server and user."""
    first = rounds.sent("round_full", "ADVERTISE_KEYS", 0, AdvertiseKeys)
    second = rounds.sent("round_full", "ADVERTISE_KEYS", 1, AdvertiseKeys)
    directory = rounds.got("round_full", "SHARE_KEYS", 0, KeyDirectory)
    entries = directory.entries
    return [
        rounds.to_server(
            "round_full", "ADVERTISE_KEYS", 1, "InvalidKey", "another's sealing key", sealing_key=first.sealing_key
        ),
        rounds.to_server(
            "round_full",
            "ADVERTISE_KEYS",
            1,
            "InvalidKey",
            "another's sealing key as mask key",
            mask_key=first.sealing_key,
        ),
        rounds.to_server(
            "round_full", "ADVERTISE_KEYS", 1, "InvalidKey", "one key for both uses", mask_key=second.sealing_key
        ),
        rounds.to_client(
            "round_full",
            "SHARE_KEYS",
            0,
            "InvalidKey",
            "two users with one mask key in the directory",
            entries=entries[: 3 * 96 + 32] + entries[2 * 96 + 32 : 2 * 96 + 64] + entries[3 * 96 + 64 :],
        ),
    ]


def replaced_key(rounds: Rounds) -> list[Case]:
    """A user looks itself up in the directory."""
    directory = rounds.got("round_full", "SHARE_KEYS", 1, KeyDirectory)
    fresh = named_bytes("another key", 32)
    keep = directory.entries
    about = {
        "its sealing key": keep[:96] + fresh + keep[128:],
        "its mask key": keep[:128] + fresh + keep[160:],
        "the commitment to its nonce": keep[:160]
        + nonce_commitment(keep[96:128], keep[128:160], named_bytes("the server's nonce", 16))
        + keep[192:],
    }
    cases = [
        rounds.to_client("round_full", "SHARE_KEYS", 1, "InvalidKey", which, entries=entries)
        for which, entries in about.items()
    ]
    missing = {"users": encode_users(np.array([0, 2, 3, 4]), 5), "entries": keep[:96] + keep[192:]}
    cases.append(
        rounds.to_client("round_full", "SHARE_KEYS", 1, "PolicyViolation", "the user itself is missing", **missing)
    )
    return cases
