"""Orders, histories, survivors and tags that a user must refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.protocol.messages import (
    Confirm,
    ConfirmRequest,
    Order,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    encode,
    encode_users,
)
from vectors.forging import MALFORMED, Case, Runs, flip
from vectors.form import named_bytes

REFUSED = "PolicyViolation"


def with_heads(runs: Runs, name: str, user: int, heads: bytes, **changes: Any) -> bytes:
    """Return a user's order with other heads in its committee, whose digest fits them."""
    order = runs.got(name, "UPLOAD", user, Order)
    pod = next(pod for pod in runs.pods(name) if user in pod["users"])
    own = next(number for number, members in enumerate(pod["committees"]) if user in members)
    bitmap = int.from_bytes(changes.get("members", order.members), "little")
    names = [each for each in pod["committees"][own] if bitmap >> pod["users"].index(each) & 1]
    pieces = [heads[start : start + 64] for start in range(0, len(heads), 64)]
    joined = b"".join(each.to_bytes(4, "little") for each in names)
    fresh = digest("heads", order.round_number.to_bytes(8, "little"), joined, *pieces)
    committees = order.committees[: 32 * own] + fresh + order.committees[32 * own + 32 :]
    return encode(msgspec.structs.replace(order, heads=heads, committees=committees, **changes))


def _left(runs: Runs, name: str, user: int, members: Iterable[int]) -> bytes:
    """Return a user's order in which only some users are members, all lengths fitting."""
    order = runs.got(name, "UPLOAD", user, Order)
    pod = next(pod for pod in runs.pods(name) if user in pod["users"])
    places = {each: place for place, each in enumerate(pod["users"])}
    bitmap = int.from_bytes(order.members, "little")
    before = [each for each in pod["users"] if bitmap >> places[each] & 1]
    committee = next(each for each in pod["committees"] if user in each)
    heads = [each for each in before if each in committee]
    chosen = sorted(members)
    kept = b"".join(order.heads[64 * place :][:64] for place, each in enumerate(heads) if each in chosen)
    dealers = [each for each in before if each != user]
    shares = b"".join(order.shares[48 * place :][:48] for place, each in enumerate(dealers) if each in chosen)
    users = encode_users(np.array([places[each] for each in chosen]), len(places))
    return with_heads(runs, name, user, kept, members=users, shares=shares)


def bad_order(runs: Runs) -> list[Case]:
    """What a user looks at before it masks anything."""
    name = "run_committee"
    pod = runs.pods(name)[0]
    user = next(each for each in pod["committees"][1] if each in pod["present"])
    order = runs.got(name, "UPLOAD", user, Order)
    place = runs.find(name, "UPLOAD", receiver=user)
    mates = [each for each in pod["committees"][1] if each in pod["present"]]
    at = 64 * mates.index(user)
    other = 64 * ((mates.index(user) + 1) % len(mates))
    later = runs.sent(name, "SHARE_KEYS", user, ShareKeys, nth=1).head
    peers = order.heads[:other] + named_bytes("the server's own head", 64) + order.heads[other + 64 :]
    own = order.heads[:at] + named_bytes("a head that was never dealt", 64) + order.heads[at + 64 :]
    stale = order.heads[:at] + later + order.heads[at + 64 :]
    users, present = pod["users"], pod["present"]

    def case(data: bytes, error: str, about: str) -> Case:
        return runs.raw_to_client(name, place, user, data, error, about)

    def changed(error: str, about: str, **changes: Any) -> Case:
        return runs.to_client(name, "UPLOAD", user, error, about, **changes)

    members = int.from_bytes(order.members, "little")
    size = len(order.members)
    without = (members & ~(1 << users.index(user))).to_bytes(size, "little")
    stranger = (members | 1 << users.index(6)).to_bytes(size, "little")
    sparse = "run_full_neighbours"
    return [
        case(with_heads(runs, name, user, own), "InvalidKey", "its own head is another, in everybody's order"),
        case(with_heads(runs, name, user, stale), "InvalidKey", "its own head is that of the next round"),
        changed("WrongView", "a peer's head is another than the digest says", heads=peers),
        changed("WrongView", "another digest of its own committee", committees=flip(order.committees, 40)),
        changed("WrongView", "other terms", terms=bytes(32)),
        changed(REFUSED, "its own package is not used", members=without),
        changed(REFUSED, "a member that advertised no key", members=stranger),
        case(_left(runs, name, user, [*mates, present[0]][:4]), REFUSED, "fewer members than the threshold"),
        case(
            _left(runs, name, user, {user, *(each for each in present if each not in mates)}),
            REFUSED,
            "alone in its committee",
        ),
        runs.raw_to_client(
            sparse,
            runs.find(sparse, "UPLOAD", receiver=0),
            0,
            _lonely(runs, sparse),
            REFUSED,
            "one neighbour in a sparse graph",
        ),
        changed(MALFORMED, "a head too few", heads=order.heads[64:]),
        changed(MALFORMED, "a digest too few", committees=order.committees[32:]),
        changed(MALFORMED, "a pair of shares too many", shares=order.shares + bytes(48)),
        changed(MALFORMED, "a member beyond the pod", members=order.members[:-1] + b"\xff"),
        changed(MALFORMED, "terms of 31 bytes", terms=bytes(31)),
    ]


def _lonely(runs: Runs, name: str) -> bytes:
    """Return an order of user 0 with one of its neighbours, and two others that are none."""
    order = runs.got(name, "UPLOAD", 0, Order)
    held = runs.sent(name, "UNMASK", 0, msgspec.Struct)
    bitmap = int.from_bytes(held.owners, "little")  # type: ignore[attr-defined]
    everybody = [user for user in range(7) if int.from_bytes(order.members, "little") >> user & 1]
    near = [user for user in everybody if bitmap >> user & 1 and user != 0]
    far = [user for user in everybody if not bitmap >> user & 1]
    members = sorted([0, near[0], *far])
    heads = b"".join(order.heads[64 * place :][:64] for place, user in enumerate(everybody) if user in members)
    users = encode_users(np.array(members), 7)
    return with_heads(runs, name, 0, heads, members=users, shares=order.shares[:48])


def bad_history(runs: Runs) -> list[Case]:
    """Sets of survivors in an order: of the wrong form, or not what the user knows."""
    name, user = "run_rounds", 0
    history = runs.got(name, "UPLOAD", user, Order, nth=1).history
    size = len(history)

    def changed(error: str, about: str, history: bytes) -> Case:
        return runs.to_client(name, "UPLOAD", user, error, about, nth=1, history=history)

    second = (2).to_bytes(8, "little") + history[8:]
    lost = "run_lost"
    place = runs.find(lost, "UPLOAD", receiver=3, nth=3)
    return [
        changed(MALFORMED, "cut short", history[:-1]),
        changed(MALFORMED, "a round twice", history + history),
        changed(MALFORMED, "the round that begins", history + second),
        changed(MALFORMED, "a survivor beyond the pod", history[: size - 1] + b"\xff"),
        changed("WronglyExcluded", "another set than it has released shares for", flip(history, 8)),
        changed(REFUSED, "a round that it helped to open is missing", b""),
        runs.raw_to_client(
            lost, place, 3, runs.data(lost, place), "WronglyExcluded", "declared dropped three times of three"
        ),
    ]


def bad_release(runs: Runs) -> list[Case]:
    """Sets of survivors, and tags that do not show them; every refusal uses UNMASK up, a malformed request does not."""
    name = "run_full"
    request = runs.got(name, "UNMASK", 0, UnmaskRequest)  # Survivors 0 to 3 of 5; tags of 1, 2 and 3.
    mine = runs.sent(name, "UPLOAD", 0, Upload).tags
    committee = "run_committee"
    pod = runs.pods(committee)[0]
    user = runs.busy(committee, "UNMASK")
    asked = runs.got(committee, "UNMASK", user, UnmaskRequest)
    stranger = int.from_bytes(asked.survivors, "little") | 1 << pod["users"].index(6)
    sparse = runs.got("run_full_neighbours", "UNMASK", 0, UnmaskRequest)

    def changed(error: str, about: str, **changes: Any) -> Case:
        return runs.to_client(name, "UNMASK", 0, error, about, **changes)

    return [
        changed(REFUSED, "a tag with a bit flipped", tags=flip(request.tags, 9)),
        changed(REFUSED, "a survivor without a tag", tags=bytes(8) + request.tags[8:]),
        changed(REFUSED, "its own tag returned as the peer's", tags=mine[:8] + request.tags[8:]),
        changed(REFUSED, "two tags swapped", tags=request.tags[8:16] + request.tags[:8] + request.tags[16:]),
        changed(REFUSED, "one who never uploaded is a survivor", survivors=b"\x1f", tags=request.tags + bytes(8)),
        changed(REFUSED, "this user counts as dropped", survivors=b"\x0e", tags=request.tags),
        changed(REFUSED, "fewer survivors than the threshold", survivors=b"\x03", tags=request.tags[:8]),
        runs.to_client(
            committee,
            "UNMASK",
            user,
            REFUSED,
            "a survivor whose package is not used",
            survivors=stranger.to_bytes(len(asked.survivors), "little"),
        ),
        runs.to_client(
            "run_full_neighbours",
            "UNMASK",
            0,
            REFUSED,
            "enough for the threshold, too few for the sum",
            survivors=_three(runs),
            tags=sparse.tags[: 8 * 2],
        ),
        _in_parts(runs),
        changed(MALFORMED, "a tag cut short", tags=request.tags[:-1]),
        changed(MALFORMED, "a tag too many", tags=request.tags + bytes(8)),
        changed(MALFORMED, "tags of sixteen bytes", tags=request.tags * 2),
        changed(MALFORMED, "a survivor beyond the pod", survivors=b"\x2f"),
    ]


def _in_parts(runs: Runs) -> Case:
    """Return a case in which survivors of a sparse graph fall into two parts, one of them a single user."""
    name = "run_sparse"
    near = {user: runs.sent(name, "UNMASK", user, Unmask).owners[0] for user in range(6)}
    partner = next(user for user in range(1, 6) if near[0] >> user & 1)
    far = next(user for user in range(1, 6) if not (near[0] | near[partner]) >> user & 1)
    tags = runs.got(name, "UNMASK", 0, UnmaskRequest).tags[:8]
    survivors = bytes([1 | 1 << partner | 1 << far])
    about = "two survivors and one that no mask joins to them"
    return runs.to_client(name, "UNMASK", 0, REFUSED, about, survivors=survivors, tags=tags)


def _three(runs: Runs) -> bytes:
    """Return user 0 and its first two surviving neighbours."""
    held = runs.sent("run_full_neighbours", "UNMASK", 0, msgspec.Struct)
    bitmap = held.owners[0]  # type: ignore[attr-defined]
    survivors = runs.got("run_full_neighbours", "UNMASK", 0, UnmaskRequest).survivors[0]
    near = [user for user in range(1, 7) if bitmap & survivors & 1 << user]
    return bytes([1 | 1 << near[0] | 1 << near[1]])


def bad_confirmation(runs: Runs) -> list[Case]:
    """Tags that are false, of the wrong users, or of the wrong number."""
    name = "run_confirm"
    user = runs.busy(name, "CONFIRM", "UNMASK")
    request = runs.got(name, "UNMASK", user, UnmaskRequest)
    confirmers = int.from_bytes(request.confirmers, "little")
    first = [each for each in range(9) if confirmers >> each & 1]
    few = {
        "confirmers": sum(1 << each for each in first[:3]).to_bytes(2, "little"),
        "confirmations": request.confirmations[:24],
    }
    false = request.confirmations[:16] + bytes(len(request.confirmations) - 16)
    survivors = runs.got(name, "CONFIRM", user, ConfirmRequest).survivors
    bits = int.from_bytes(survivors, "little")
    fewer = (bits & ~(1 << next(each for each in range(9) if bits >> each & 1 and each != user))).to_bytes(2, "little")
    without = (bits & ~(1 << user)).to_bytes(2, "little")
    tags = runs.sent(name, "CONFIRM", user, Confirm).tags

    def changed(error: str, about: str, **changes: Any) -> Case:
        return runs.to_client(name, "UNMASK", user, error, about, **changes)

    return [
        changed(REFUSED, "two valid tags, five are needed with its own", confirmations=false),
        changed(REFUSED, "three confirmers", **few),
        changed(REFUSED, "no confirmers", confirmers=b"", confirmations=b""),
        changed(REFUSED, "tags over the order in place of confirmations", confirmations=_order_tags(request, first)),
        changed(REFUSED, "other survivors than it has settled for", survivors=fewer),
        changed(MALFORMED, "a confirmation cut short", confirmations=request.confirmations[:-1]),
        runs.to_client(name, "CONFIRM", user, REFUSED, "to be confirmed: this user has dropped out", survivors=without),
        runs.to_client(name, "CONFIRM", user, REFUSED, "to be confirmed: too few", survivors=b"\x0f\x00"),
        runs.to_server(name, "CONFIRM", user, MALFORMED, "a tag too many, to the server", tags=tags + bytes(8)),
    ]


def _order_tags(request: UnmaskRequest, confirmers: list[int]) -> bytes:
    """Return order tags in as many bytes as the confirmations take."""
    return (request.tags * 2)[: 8 * len(confirmers)]
