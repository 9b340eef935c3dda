"""Users that lie: bad tags, false shares, wrong packages, weights and values by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from msgspec.structs import replace as _with
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import Decoded
from sparsesecagg.crypto.shamir import PRIME
from sparsesecagg.errors import PolicyViolation
from sparsesecagg.lab.attacks.base import attack, without
from sparsesecagg.lab.attacks.world import World
from sparsesecagg.patterns.sliced import SlicedSum
from sparsesecagg.protocol import Result, Server, checks, opening
from sparsesecagg.protocol.messages import ShareKeys, Unmask, Upload, decode_client_message, decode_users, encode
from sparsesecagg.rounding import Clip

Change = Callable[[int, Any], Any]  # Given a user and its message, return what it sends instead.


def lie(liars: Collection[int], kind: type, change: Callable[[Any], Any]) -> Change:
    """Return what changes the messages of one kind that some users send."""
    return lambda user, message: change(message) if user in liars and isinstance(message, kind) else message


def play_round(world: World, changed: Change = lambda user, message: message, weight: int = 1) -> Result | None:
    """Run a round with the honest server, some of whose users lie; None if the victim's group is lost."""
    run, server = world.run, world.run.server
    index_of = world.epoch.group.index_of

    def send(user: int, data: bytes) -> None:
        server.receive(user, encode(changed(user, decode_client_message(data))))

    result = None
    with world.play.noting():
        for user, header in server.begin_round().items():
            send(user, run.clients[user].upload(header, world.updates[index_of[user]], weight))
            for package in run.clients[user].share_keys(server.round_number):
                send(user, package)
        for user, request in server.close_stage().items():
            send(user, run.clients[user].unmask(request))
        server.close_stage()
        result = server.result
    return result if result and world.epoch.group.number not in result.lost else None


def lost_rounds(world: World, changed: Change, rounds: int = 3) -> int:
    """Return how many rounds the group of the victim loses, some of whose users lie."""
    return sum(play_round(world, changed) is None for _ in range(rounds))


without_exclusion = without(Server, _exclude=lambda self: {})  # The server invites everybody again.


def _strict(header: Any, index: int, message: Any, tags: Any, kept: Any = checks.own_survivors) -> Any:
    """Let a bad tag keep a whole group closed, as version 2 did."""
    found = kept(header, index, message, tags)
    if len(found) < len(decode_users(message.survivors, len(header.epoch.group))):
        raise PolicyViolation("a declared survivor has no valid tag")
    return found


@attack(without(checks, own_survivors=_strict), World, default_threshold=True)
def zero_tags(world: World) -> None:
    """One user sends tags of zeros with every upload.

    Tags that are bad for all holders cost their sender alone.
    """
    zeros = lie([world.liar], Upload, lambda message: _with(message, tags=bytes(len(message.tags))))
    world.play.values += lost_rounds(world, zeros)


@attack(without_exclusion, World, default_threshold=True)
def selective_tags(world: World) -> None:
    """One user sends valid tags to some holders only, so that neither of its secrets opens, in every round.

    A user that more holders accuse than can collude gets no more rounds: selective tags cost a group one round.
    """
    good = (world.params.threshold - 2) * 8  # With the liar itself one fewer than t know its seed.

    def change(message: Upload) -> Upload:
        return _with(message, tags=message.tags[:good] + bytes(len(message.tags) - good))

    world.play.values += max(0, lost_rounds(world, lie([world.liar], Upload, change)) - 1)


@attack(without_exclusion, World, default_threshold=True)
def false_package(world: World) -> None:
    """One user deals false shares of its secrets to half of the holders, in every key package.

    A user whose secrets cannot be restored is named and gets no more rounds; its group loses one round.
    """

    def change(message: ShareKeys) -> ShareKeys:
        half = len(message.shares) // 2
        return _with(message, shares=bytes(half) + message.shares[half:])

    group, index = world.run.server._epoch.group_of(world.liar)
    for packages in group.packages.values():
        packages[index] = change(packages[index])
    world.play.values += max(0, lost_rounds(world, lie([world.liar], ShareKeys, change), 4) - 1)


def _undecoded(shares: Any, holders: Any, threshold: int, genuine: Any, *_: Any) -> Decoded:
    """Restore from the first holders only, whatever they sent."""
    found = shamir.combine(shares[:, :threshold], tuple(holders[:threshold].tolist()))
    kept = [each if each is not None and genuine(row, each) else None for row, each in enumerate(found)]
    return Decoded(kept, np.zeros(shares.shape[:2], np.bool_))


@attack(without(opening, restore=_undecoded), World)
def false_shares(world: World) -> None:
    """(n − t)/2 holders give false shares.

    False shares are corrected, their senders are named, and no round is lost.
    """
    liars = {world.epoch.user(index) for index in world.everyone[: world.spare // 2]}

    def change(message: Unmask) -> Unmask:
        return _with(message, shares=((np.frombuffer(message.shares, "<u4") ^ 1) % PRIME).astype("<u4").tobytes())

    result = play_round(world, lie(liars, Unmask, change))
    world.play.values += len(world.everyone) if result is None else len(liars.difference(result.false_shares))


def _added(world: World, where: slice, by: int, weight: int = 1) -> NDArray[Any]:
    """Return the mean of a round whose victim adds to some of its masked words by hand; nothing if it is lost."""

    def change(message: Upload) -> Upload:
        words = np.frombuffer(message.words, "<u4").astype(np.int64)
        words[where] = (words[where] + by) % world.params.word.modulus
        return _with(message, words=memoryview(words.astype("<u4").tobytes()))

    result = play_round(world, lie([world.epoch.user(world.victim)], Upload, change), weight)
    return np.zeros(0) if result is None else result.mean()


def _beside(world: World) -> int:
    """Return where the digits of the weight begin in an upload."""
    return -world.params.shape.digits.total


@attack(without(SlicedSum, problem=lambda self: ""), World, max_weight=100)
def shifted_weight(world: World) -> None:
    """One user shifts its private weight by hand, so that the mean explodes.

    The server discards a sum beyond what its users may send; it cannot check single users.
    """
    first = _beside(world)
    mean = _added(world, slice(first, first + 1), 1 - 100 * len(world.everyone), 100)
    world.play.values += int(np.count_nonzero(np.abs(mean) > 1.01 * world.params.clip))


@attack(stage=World, promised=())
def moved_mean(world: World) -> None:
    """One user adds to its masked words by hand, and moves the mean of its group where it likes.

    Not promised: nobody sees a single update, so nobody can reject one; the clip binds honest users only.
    """
    for index in world.everyone:
        world.updates[index] = world.updates[index] / 100
    mean = _added(world, slice(0, _beside(world)), len(world.everyone) * world.params.quantizer.limit * 6 // 10)
    world.play.values += int(np.count_nonzero(np.abs(mean) > world.params.clip / 2))


def _naive(self: Clip, piece: NDArray[Any]) -> NDArray[Any]:
    """Scale in float32 before anything is looked at, as the first version did."""
    with np.errstate(all="ignore"):
        scaled = piece.astype(np.float32) * np.float32(self._rate)
        return np.nan_to_num(scaled.astype(np.float64), nan=-(2.0**31))


@attack(without(Clip, apply=_naive), World, max_weight=100)
def huge_value(world: World) -> None:
    """A user has weight 0 and a value beyond float32.

    No value beyond the limit leaves a user; a non-finite value counts as 0.
    """
    world.updates[world.victim] = np.full(world.params.dim, 1e300)
    world.upload(world.victim, weight=0)
    world.play.values += int(np.count_nonzero(np.abs(world.truth[world.victim]) > world.params.quantizer.limit))
