"""Users that lie: bad tags, false shares, wrong packages, weights and values by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import Decoded
from sparsesecagg.crypto.prime_field import PRIME
from sparsesecagg.errors import PolicyViolation, ProtocolError
from sparsesecagg.lab.attacks.base import Loot, Setting, attack, replaced
from sparsesecagg.lab.attacks.world import World
from sparsesecagg.patterns.sliced import SlicedSum
from sparsesecagg.protocol import Result, Server, checks, opening
from sparsesecagg.protocol.messages import ShareKeys, Unmask, Upload, decode_client_message, decode_users, encode
from sparsesecagg.rounding import Clip

Change = Callable[[int, Any], Any]
"""Given a user and its message, return what it sends instead."""


def _same(user: int, message: Any) -> Any:
    return message


def play_round(world: World, changed: Change = _same, weight: int = 1) -> Result | None:
    """Run a round with the honest server, some of whose users lie; None if the victim's group is lost."""
    run, server = world.run, world.run.server
    index_of = world.epoch.group.index_of

    def send(user: int, data: bytes) -> None:
        server.receive(encode(changed(user, decode_client_message(data))), user)

    try:
        for user, header in server.begin_round().items():
            send(user, run.clients[user].upload(header, world.updates[index_of[user]], weight))
            for package in run.clients[user].share_keys(server.round_number):
                send(user, package)
        for user, request in server.close_stage().items():
            send(user, run.clients[user].unmask(request))
        server.close_stage()
    except ProtocolError as failure:
        world.loot.refused(failure)
        return None
    result = server.result
    return result if result and world.epoch.group.number not in result.lost else None


@contextmanager
def without_exclusion() -> Iterator[None]:
    """Let the server invite everybody again."""
    with replaced(Server, "_exclude", lambda self: {}):
        yield


@contextmanager
def with_closed_groups() -> Iterator[None]:
    """Let a bad tag keep a whole group closed, as version 2 did."""
    kept = checks.own_survivors

    def strict(header: Any, index: int, message: Any, tags: Any) -> set[int]:
        found = kept(header, index, message, tags)
        if len(found) < len(decode_users(message.survivors, len(header.epoch.group))):
            raise PolicyViolation("a declared survivor has no valid tag")
        return found

    with replaced(checks, "own_survivors", strict):
        yield


@attack(
    "One user sends tags of zeros with every upload.",
    "Tags that are bad for all holders cost their sender alone.",
    with_closed_groups,
)
def zero_tags(setting: Setting, loot: Loot) -> None:
    """S10: count the rounds that the group loses."""
    world = World(setting, loot, default_threshold=True)
    liar = world.epoch.user(world.others[0])

    def lie(user: int, message: Any) -> Any:
        if user == liar and isinstance(message, Upload):
            return msgspec.structs.replace(message, tags=bytes(len(message.tags)))
        return message

    loot.values += sum(play_round(world, lie) is None for _ in range(3))


@attack(
    "One user sends valid tags to some holders only, so that neither of its secrets opens, in every round.",
    "A user that more holders accuse than can collude gets no more rounds: selective tags cost a group one round.",
    without_exclusion,
)
def selective_tags(setting: Setting, loot: Loot) -> None:
    """Count the rounds beyond the first that the group loses."""
    world = World(setting, loot, default_threshold=True)
    liar = world.epoch.user(world.others[0])

    def lie(user: int, message: Any) -> Any:
        if user == liar and isinstance(message, Upload):
            good = (world.params.threshold - 2) * 8  # With the liar itself one fewer than t know its seed.
            return msgspec.structs.replace(message, tags=message.tags[:good] + bytes(len(message.tags) - good))
        return message

    loot.values += max(0, sum(play_round(world, lie) is None for _ in range(3)) - 1)


@attack(
    "One user deals false shares of its secrets to half of the holders, in every key package.",
    "A user whose secrets cannot be restored is named and gets no more rounds; its group loses one round.",
    without_exclusion,
)
def false_package(setting: Setting, loot: Loot) -> None:
    """Count the rounds beyond the first that the group loses."""
    world = World(setting, loot, default_threshold=True)
    liar = world.epoch.user(world.others[0])

    def lie(user: int, message: Any) -> Any:
        if user == liar and isinstance(message, ShareKeys):
            half = len(message.shares) // 2
            return msgspec.structs.replace(message, shares=bytes(half) + message.shares[half:])
        return message

    group, index = world.run.server._epoch.group_of(liar)
    for packages in group.packages.values():
        packages[index] = lie(liar, packages[index])
    loot.values += max(0, sum(play_round(world, lie) is None for _ in range(4)) - 1)


@contextmanager
def without_decoding() -> Iterator[None]:
    """Restore from the first holders only, whatever they sent."""

    def naive(shares: Any, holders: Any, threshold: int, genuine: Any, *_: Any) -> Decoded:
        found = shamir.combine(shares[:, :threshold], tuple(holders[:threshold].tolist()))
        kept = [each if each is not None and genuine(row, each) else None for row, each in enumerate(found)]
        return Decoded(kept, np.zeros(shares.shape[:2], np.bool_))

    with replaced(opening, "restore", naive):
        yield


@attack(
    "(n − t)/2 holders give false shares.",
    "False shares are corrected, their senders are named, and no round is lost.",
    without_decoding,
)
def false_shares(setting: Setting, loot: Loot) -> None:
    """Attack 14 of version 1: count what is lost, and the liars that are not named."""
    world = World(setting, loot)
    liars = {world.epoch.user(index) for index in world.everyone[: world.spare // 2]}

    def lie(user: int, message: Any) -> Any:
        if user in liars and isinstance(message, Unmask):
            shares = (np.frombuffer(message.shares, "<u4") ^ 1) % PRIME
            return msgspec.structs.replace(message, shares=shares.astype("<u4").tobytes())
        return message

    result = play_round(world, lie)
    loot.values += len(world.everyone) if result is None else len(liars.difference(result.false_shares))


@contextmanager
def without_plausibility() -> Iterator[None]:
    """Let the server believe any sum."""
    with replaced(SlicedSum, "problem", lambda self: ""):
        yield


def _add(message: Upload, where: slice, by: int, world: World) -> Upload:
    """Add to some words of an upload by hand; masks stay on."""
    words = np.frombuffer(message.words, "<u4").astype(np.int64)
    words[where] = (words[where] + by) % world.params.word.modulus
    return msgspec.structs.replace(message, words=memoryview(words.astype("<u4").tobytes()))


def _beside(world: World) -> int:
    """Return where the digits of the weight begin in an upload."""
    return -world.params.shape.digits.total


@attack(
    "One user shifts its private weight by hand, so that the mean explodes.",
    "The server discards a sum beyond what its users may send; it cannot check single users.",
    without_plausibility,
)
def shifted_weight(setting: Setting, loot: Loot) -> None:
    """Attack 13 of version 1: count means beyond the clip."""
    world = World(setting, loot, max_weight=100)
    liar, total = world.epoch.user(world.victim), 100 * len(world.everyone)

    def lie(user: int, message: Any) -> Any:
        if user == liar and isinstance(message, Upload):
            first = _beside(world)
            return _add(message, slice(first, first + 1), 1 - total, world)
        return message

    result = play_round(world, lie, 100)
    if result is not None:
        loot.values += int(np.count_nonzero(np.abs(result.mean()) > 1.01 * world.params.clip))


@attack(
    "One user adds to its masked words by hand, and moves the mean of its group where it likes.",
    "Not promised: nobody sees a single update, so nobody can reject one; the clip binds honest users only.",
    promised=(),
)
def moved_mean(setting: Setting, loot: Loot) -> None:
    """S11: count the coordinates that one user moves by half a clip or more."""
    world = World(setting, loot)
    liar = world.epoch.user(world.victim)
    by = len(world.everyone) * world.params.quantizer.limit * 6 // 10
    for index in world.everyone:
        world.updates[index] = world.updates[index] / 100

    def lie(user: int, message: Any) -> Any:
        if user == liar and isinstance(message, Upload):
            return _add(message, slice(0, _beside(world)), by, world)
        return message

    result = play_round(world, lie)
    if result is not None:
        loot.values += int(np.count_nonzero(np.abs(result.mean()) > world.params.clip / 2))


@contextmanager
def with_naive_rounding() -> Iterator[None]:
    """Scale in float32 before anything is looked at, as the first version did."""

    def naive(self: Clip, piece: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            scaled = piece.astype(np.float32) * np.float32(self._rate)
            return np.nan_to_num(scaled.astype(np.float64), nan=-(2.0**31))

    with replaced(Clip, "apply", naive):
        yield


@attack(
    "A user has weight 0 and a value beyond float32.",
    "No value beyond the limit leaves a user; a non-finite value counts as 0.",
    with_naive_rounding,
)
def huge_value(setting: Setting, loot: Loot) -> None:
    """Attack 15 of version 1: NaN became the most negative integer."""
    world = World(setting, loot, max_weight=100)
    world.updates[world.victim] = np.full(world.params.dim, 1e300)
    world.upload(world.victim, world.show(), 0)
    loot.values += int(np.count_nonzero(np.abs(world.truth[world.victim]) > world.params.quantizer.limit))
