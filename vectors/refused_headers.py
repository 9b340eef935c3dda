"""Headers, survivors and tags that a user must refuse."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.protocol.messages import RoundHeader, ShareKeys, Unmask, UnmaskRequest, Upload, encode, encode_users
from vectors.forging import MALFORMED, Case, Runs, flip
from vectors.form import named_bytes

REFUSED = "PolicyViolation"


def bad_header(runs: Runs) -> list[Case]:
    """What a user looks at before it masks anything."""
    name, user = "run_sliced", 1  # User 6 of eight advertised no key.
    header = runs.got(name, "UPLOAD", user, RoundHeader)
    keys = header.mask_keys
    later = runs.sent(name, "SHARE_KEYS", user, ShareKeys, nth=1).mask_key
    sparse = "run_full_neighbours"

    def changed(error: str, about: str, **changes: Any) -> Case:
        return runs.to_client(name, "UPLOAD", user, error, about, **changes)

    return [
        changed("InvalidKey", "another mask key for it", mask_keys=keys[:32] + named_bytes("a key", 32) + keys[64:]),
        changed("InvalidKey", "its mask key of the next round", mask_keys=keys[:32] + later + keys[64:]),
        changed("WrongBinding", "another context", context=bytes(32)),
        changed(REFUSED, "its own package is not used", **_left(header, 8, {0, 2, 3, 4, 5, 7})),
        changed(REFUSED, "a member that advertised no key", members=b"\xff", mask_keys=_wider(keys)),
        changed(REFUSED, "fewer members than the threshold", **_left(header, 8, {0, 1, 2, 3}, user)),
        runs.to_client(sparse, "UPLOAD", 0, REFUSED, "one neighbour in a sparse graph", **_lonely(runs, sparse)),
        changed(MALFORMED, "a mask key too few", mask_keys=keys[32:]),
        changed(MALFORMED, "a pair of shares too many", shares=header.shares + bytes(48)),
        changed(MALFORMED, "a pair of shares cut short", shares=header.shares[:-1]),
        changed(MALFORMED, "a longer set of members", members=header.members + b"\0"),
        changed(MALFORMED, "a context of 31 bytes", context=bytes(31)),
        runs.to_client("run_full", "UPLOAD", 0, MALFORMED, "a member beyond the group", members=b"\x3f"),
    ]


def _wider(keys: bytes) -> bytes:
    """Return the mask keys of seven members with an eighth for user 6."""
    return keys[: 32 * 6] + named_bytes("a stranger's key", 32) + keys[32 * 6 :]


def _left(header: RoundHeader, size: int, members: Collection[int], user: int | None = None) -> dict[str, Any]:
    """Return fields in which only some are members, all lengths fitting; `user` gets the shares of the others."""
    bitmap = int.from_bytes(header.members, "little")
    before = [each for each in range(size) if bitmap >> each & 1]
    keys = b"".join(header.mask_keys[32 * place :][:32] for place, each in enumerate(before) if each in members)
    dealers = [each for each in before if each != user]
    shares = b"".join(header.shares[48 * place :][:48] for place, each in enumerate(dealers) if each in members)
    return {"members": encode_users(np.array(sorted(members)), size), "mask_keys": keys, "shares": shares}


def _lonely(runs: Runs, name: str) -> dict[str, Any]:
    """Return fields of a header of user 0 with one of its neighbours, and others that are none."""
    header = runs.got(name, "UPLOAD", 0, RoundHeader)
    held = int.from_bytes(runs.sent(name, "UNMASK", 0, Unmask).owners, "little")
    everybody = [user for user in range(7) if int.from_bytes(header.members, "little") >> user & 1]
    near = [user for user in everybody if held >> user & 1 and user != 0]
    far = [user for user in everybody if not held >> user & 1]
    return _left(header, 7, {0, near[0], *far}) | {"shares": header.shares[:48]}


def bad_release(runs: Runs) -> list[Case]:
    """Sets of survivors, and tags that do not show them; every refusal uses UNMASK up, a malformed request does not."""
    name = "run_full"
    request = runs.got(name, "UNMASK", 0, UnmaskRequest)  # Survivors 0 to 3 of 5, four are needed; tags of 1, 2 and 3.
    mine = runs.sent(name, "UPLOAD", 0, Upload).tags
    absent = "run_sliced"

    def changed(error: str, about: str, **changes: Any) -> Case:
        return runs.to_client(name, "UNMASK", 0, error, about, **changes)

    return [
        changed(REFUSED, "a tag with a bit flipped: three are left", tags=flip(request.tags, 9)),
        changed(REFUSED, "its own tag returned as the peer's", tags=mine[:8] + request.tags[8:]),
        changed(REFUSED, "two tags swapped", tags=request.tags[8:16] + request.tags[:8] + request.tags[16:]),
        changed(
            REFUSED,
            "one who never uploaded in place of a survivor",
            survivors=b"\x17",
            tags=request.tags[:16] + bytes(8),
        ),
        changed(REFUSED, "this user counts as dropped", survivors=b"\x0e"),
        changed(REFUSED, "fewer survivors than the threshold", survivors=b"\x07", tags=request.tags[:16]),
        runs.to_client(absent, "UNMASK", 0, REFUSED, "a survivor that is no member", survivors=b"\xff"),
        runs.to_client(
            "run_full_neighbours",
            "UNMASK",
            0,
            REFUSED,
            "enough for the threshold, too few for the sum",
            **_near(runs, "run_full_neighbours", 2),
        ),
        _in_parts(runs),
        changed(MALFORMED, "a tag cut short", tags=request.tags[:-1]),
        changed(MALFORMED, "a tag too many", tags=request.tags + bytes(8)),
        changed(MALFORMED, "tags of sixteen bytes", tags=request.tags * 2),
        changed(MALFORMED, "a survivor beyond the group", survivors=b"\x2f"),
    ]


def _near(runs: Runs, name: str, count: int) -> dict[str, Any]:
    """Return a request of user 0 with its first surviving neighbours alone."""
    held = runs.sent(name, "UNMASK", 0, Unmask).owners[0]
    request = runs.got(name, "UNMASK", 0, UnmaskRequest)
    near = [user for user in range(1, 7) if held & request.survivors[0] & 1 << user][:count]
    return {"survivors": bytes([1 | sum(1 << user for user in near)]), "tags": request.tags[: 8 * count]}


def _in_parts(runs: Runs) -> Case:
    """Return a case in which the survivors of a circle are enough, and fall into two parts."""
    name = "run_circle"
    near = {user: runs.sent(name, "UNMASK", user, Unmask).owners[0] for user in range(6)}
    beside = [user for user in range(1, 6) if near[0] >> user & 1]
    opposite = next(user for user in range(1, 6) if not near[user] & near[0])
    survivors = bytes([1 | sum(1 << user for user in (*beside, opposite))])
    about = "four survivors, of whom masks join three"
    return runs.to_client(name, "UNMASK", 0, REFUSED, about, survivors=survivors)


def other_header(runs: Runs, name: str, user: int) -> bytes:
    """Return a header of the same round that says something else."""
    return encode(msgspec.structs.replace(runs.got(name, "UPLOAD", user, RoundHeader), context=bytes(32)))
