"""Messages that server or client must refuse for what they are: damaged, misplaced, or with keys that can't be used."""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.crypto.checksum import CHECKSUM_SIZE
from sparsesecagg.protocol.messages import (
    AdvertiseKeys,
    EpochKeys,
    Order,
    ShareKeys,
    UnmaskRequest,
    encode,
    user_number,
)
from vectors.forging import MALFORMED, Case, Runs, flip, with_checksum
from vectors.form import named_bytes
from vectors.refused_orders import with_heads

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
        "an unknown version": with_checksum(b"\x01" + whole[1:-CHECKSUM_SIZE]),
    }.items():
        cases.append(runs.raw_to_server(name, place, data, MALFORMED, f"to the server: {about}"))
    place = runs.find(name, "ADVERTISE_KEYS", receiver=2)
    whole = runs.data(name, place)
    for about, data in {"half of it": whole[: len(whole) // 2], "a bit of a key flipped": flip(whole, 150)}.items():
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
        "a view of seven bytes": [*array[:2], array[2][:7], *array[3:]],
        "a user number of one byte": [*array[:3], b"\0", *array[4:]],
        "a key of 31 bytes": [*array[:4], array[4][:31], *array[5:]],
        "a key as text": [*array[:4], "x" * 32, *array[5:]],
        "a message that only the server sends": ["confirm request", array[1], array[2], b"\x1f"],
        "a message of a draw, in a run without one": ["draw reveal", 1, bytes(4), bytes(96)],
    }
    cases = [
        runs.raw_to_server(name, place, with_checksum(b"\x02" + msgspec.msgpack.encode(content)), MALFORMED, about)
        for about, content in forged.items()
    ]
    body = runs.data(name, place)[:-CHECKSUM_SIZE]
    cases.append(runs.raw_to_server(name, place, with_checksum(body + b"\xc0"), MALFORMED, "a second value"))
    name = "run_authenticated"
    advertised, drawing = runs.find(name, "ADVERTISE_KEYS", sender=0), runs.closing_of(name, "DRAW")
    about = "anything but a reveal while a draw is held"
    cases.append(runs.raw_to_server(name, drawing, runs.data(name, advertised), MALFORMED, about))
    return cases


def wrong_round(runs: Runs) -> list[Case]:
    """Messages that name another round, and packages for rounds that are not the next two."""
    error, name = "WrongRound", "run_rounds"
    packages = [runs.find(name, "SHARE_KEYS", sender=0, nth=nth) for nth in range(3)]
    settled = runs.busy("run_confirm", "CONFIRM")
    return [
        runs.to_server("run_full", "ADVERTISE_KEYS", 1, error, "an epoch that is to come", round_number=2),
        runs.to_server(name, "UPLOAD", 0, error, "an upload of another round", round_number=2),
        runs.to_server(name, "UNMASK", 0, error, "an answer of another round", round_number=2),
        runs.raw_to_server(name, packages[0], runs.data(name, packages[2]), error, "a package three rounds ahead"),
        runs.raw_to_server(name, packages[2], runs.data(name, packages[0]), error, "a package for the round itself"),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "an epoch that begins with round 0", first_round=0),
        runs.to_client(name, "UNMASK", 0, error, "to a user, at UNMASK", round_number=2),
        runs.to_client("run_confirm", "CONFIRM", settled, error, "to a user, at CONFIRM", round_number=9),
    ]


def wrong_view(runs: Runs) -> list[Case]:
    """Messages whose view is not that of parameters, epoch or order."""
    error, view = "WrongView", bytes(8)
    upload = runs.sent("run_full", "UPLOAD", 1, msgspec.Struct)
    package = runs.sent("run_full", "SHARE_KEYS", 1, ShareKeys)
    return [
        runs.to_server("run_full", "ADVERTISE_KEYS", 1, error, "other parameters, to the server", view=view),
        runs.to_server("run_full", "SHARE_KEYS", 1, error, "another epoch, to the server", view=view),
        runs.to_server("run_full", "UPLOAD", 1, error, "an upload with the epoch's view", view=package.view),
        runs.to_server("run_full", "UNMASK", 0, error, "another order, to the server", view=view),
        runs.to_client("run_full", "ADVERTISE_KEYS", 1, error, "other parameters, to a user", view=view),
        runs.to_client("run_full", "UPLOAD", 1, error, "another epoch, to a user", view=view),
        runs.to_client("run_full", "UPLOAD", 1, error, "an order with the order's view", view=_view(upload)),
        runs.to_client("run_full", "UNMASK", 0, error, "another order, to a user", view=package.view),
    ]


def _view(message: Any) -> bytes:
    view: bytes = message.view
    return view


def wrong_stage(runs: Runs) -> list[Case]:
    """Messages that are early or late, and an order for a round without a package."""
    name, error = "run_full", "WrongStage"
    advertise, upload = (runs.find(name, stage, sender=0) for stage in ("ADVERTISE_KEYS", "UPLOAD"))
    unmask, epoch = runs.find(name, "UNMASK", sender=0), runs.find(name, "ADVERTISE_KEYS", receiver=0)
    order, request = (runs.find(name, stage, receiver=0) for stage in ("UPLOAD", "UNMASK"))
    confirm, late = "run_confirm", "run_full_neighbours"
    other_epoch = encode(msgspec.structs.replace(runs.got(name, "ADVERTISE_KEYS", 0, EpochKeys), first_round=2))
    survivors = runs.got(name, "UNMASK", 0, UnmaskRequest)
    settle = ["confirm request", survivors.round_number, survivors.view, survivors.survivors]
    confirm_request = with_checksum(b"\x02" + msgspec.msgpack.encode(settle))
    other = runs.data(late, runs.find(late, "UPLOAD", receiver=0))
    user = runs.busy(confirm, "CONFIRM", "UNMASK")
    to_confirm, before = (runs.find(confirm, stage, receiver=user) for stage in ("UNMASK", "CONFIRM"))
    return [
        runs.raw_to_server(name, advertise, runs.data(name, upload), error, "an upload before keys"),
        runs.raw_to_server(name, upload, runs.data(name, advertise), error, "keys when uploads are due"),
        runs.raw_to_server(name, upload, runs.data(name, unmask), error, "shares when uploads are due"),
        runs.raw_to_server(name, order - 1, runs.data(name, upload), error, "an upload before the round begins"),
        runs.raw_to_client(name, epoch, 0, runs.data(name, order), error, "an order before the epoch keys"),
        runs.raw_to_client(name, order, 0, other_epoch, error, "other epoch keys than those it has accepted"),
        runs.raw_to_client(name, request, 0, confirm_request, error, "a request to confirm where there is no CONFIRM"),
        runs.raw_to_client(confirm, before, user, runs.data(confirm, to_confirm), error, "UNMASK before CONFIRM"),
        runs.raw_to_client(late, runs.find(late, "UPLOAD", receiver=0), 2, other, error, "no package for this round"),
    ]


def already_answered(runs: Runs) -> list[Case]:
    """What is over is over: another order for an answered round, another request, an earlier round."""
    name, error = "run_rounds", "AlreadyAnswered"
    order = runs.find(name, "UPLOAD", receiver=0)
    uploaded, request = runs.find(name, "UPLOAD", sender=0), runs.find(name, "UNMASK", receiver=0)
    answered, later = runs.find(name, "UNMASK", sender=0), runs.find(name, "UPLOAD", sender=0, nth=1)
    other = encode(msgspec.structs.replace(runs.got(name, "UPLOAD", 0, Order), terms=bytes(32)))
    asked = runs.got(name, "UNMASK", 0, UnmaskRequest)
    others = asked.survivors[0] & ~1
    fewer = encode(msgspec.structs.replace(asked, survivors=bytes([asked.survivors[0] & ~(others & -others)])))
    return [
        runs.raw_to_client(name, uploaded + 1, 0, other, error, "another order for a round that it has uploaded in"),
        runs.raw_to_client(name, answered + 1, 0, fewer, error, "other survivors, after it has released shares"),
        runs.raw_to_client(name, answered + 1, 0, runs.data(name, order), error, "the order, after UNMASK"),
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
        runs.to_server(
            "run_committee", "SHARE_KEYS", 0, error, "a package of one who sent no key", number=user_number(6)
        ),
        runs.raw_to_server(name, place, runs.data(name, place), error, about, transport_sender=2),
    ]


def duplicate_message(runs: Runs) -> list[Case]:
    """The same message twice."""
    cases = []
    for stage in ("ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "CONFIRM", "UNMASK"):
        name = "run_confirm"
        sender = runs.busy(name, stage)
        place = runs.find(name, stage, sender=sender)
        cases.append(runs.raw_to_server(name, place + 1, runs.data(name, place), "DuplicateMessage", f"at {stage}"))
    name = "run_full"
    place = runs.find(name, "SHARE_KEYS", sender=1)
    other = runs.sent(name, "SHARE_KEYS", 1, ShareKeys)
    second = encode(msgspec.structs.replace(other, head=named_bytes("another head", 64)))
    cases.append(runs.raw_to_server(name, place + 1, second, "DuplicateMessage", "another package for the same round"))
    return cases


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
    head = runs.sent(name, "SHARE_KEYS", 1, ShareKeys).head
    heads = runs.got(name, "UPLOAD", 0, Order).heads
    order = with_heads(runs, name, 0, heads[:64] + bad + heads[96:])
    place = runs.find(name, "UPLOAD", receiver=0)
    return [
        *cases,
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "a sealing key, to the server", sealing_key=bad),
        runs.to_server(name, "SHARE_KEYS", 1, error, "a mask key, to the server", head=bad + head[32:]),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "a partner's sealing key", keys=keys[:64] + bad + keys[96:]),
        runs.raw_to_client(name, place, 0, order, error, "a peer's mask key"),
    ]


def duplicate_key(runs: Runs) -> list[Case]:
    """Keys used twice, seen by server and user."""
    name, error = "run_full", "InvalidKey"
    first = runs.sent(name, "ADVERTISE_KEYS", 0, AdvertiseKeys)
    keys = runs.got(name, "ADVERTISE_KEYS", 0, EpochKeys).keys
    heads = [runs.sent(name, "SHARE_KEYS", user, ShareKeys).head for user in (0, 1)]
    order = runs.got(name, "UPLOAD", 0, Order).heads
    twice = with_heads(runs, name, 0, order[:128] + order[64:96] + order[160:])
    place = runs.find(name, "UPLOAD", receiver=0)
    return [
        runs.to_server(name, "ADVERTISE_KEYS", 1, error, "another's sealing key", sealing_key=first.sealing_key),
        runs.to_server(name, "SHARE_KEYS", 1, error, "another's mask key", head=heads[0][:32] + heads[1][32:]),
        runs.to_client(name, "ADVERTISE_KEYS", 0, error, "two with one sealing key", keys=keys[:96] + keys[64:128]),
        runs.raw_to_client(name, place, 0, twice, error, "two with one mask key"),
    ]


def replaced_key(runs: Runs) -> list[Case]:
    """A user looks itself up in the epoch keys and in the draw."""
    name, error = "run_full", "InvalidKey"
    message = runs.got(name, "ADVERTISE_KEYS", 1, EpochKeys)
    keys, draw, fresh = message.keys, message.draw, named_bytes("another key", 32)
    without = {"present": bytes([message.present[0] & ~2]), "keys": keys[:32] + keys[64:]}
    nonce = 33 + 16
    no_nonce = draw[:32] + bytes([draw[32] & ~2]) + draw[33:nonce] + draw[nonce + 16 :]
    changed: list[tuple[str, str, dict[str, Any]]] = [
        (error, "its sealing key", {"keys": keys[:32] + fresh + keys[64:]}),
        (error, "its sealing key is missing", without),
        (error, "another nonce for it in the draw", {"draw": draw[:nonce] + bytes(16) + draw[nonce + 16 :]}),
        (error, "no nonce for it in the draw", {"draw": no_nonce}),
        (error, "another seed than the server committed to", {"draw": fresh + draw[32:]}),
        (MALFORMED, "a draw that is too short", {"draw": draw[:32]}),
        (MALFORMED, "a draw with half a nonce", {"draw": draw[:-8]}),
    ]
    return [runs.to_client(name, "ADVERTISE_KEYS", 1, kind, about, **fields) for kind, about, fields in changed]
