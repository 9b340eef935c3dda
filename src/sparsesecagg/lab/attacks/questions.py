"""A server that asks questions: what a refusal tells, what parameters it may name, what differences of sums give."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import SparseSecAggError, require
from sparsesecagg.lab.attacks.base import Play, attack, without
from sparsesecagg.lab.attacks.users import play_round
from sparsesecagg.lab.attacks.world import TOLERANCE, World, without_policy, without_refusal
from sparsesecagg.privacy.mechanism import Noise
from sparsesecagg.protocol import Client, Parameters, RoundOptions, checks, ledger
from sparsesecagg.protocol.epoch import AHEAD, Header
from sparsesecagg.protocol.parameters import MAX_DIM
from sparsesecagg.rounding import Clip


def _finite(self: Clip, piece: NDArray[Any], kept: Any = Clip.apply) -> Any:
    """Refuse what is not finite, as version 2 did."""
    require("update", bool(np.isfinite(piece).all()), "must be finite")
    return kept(self, piece)


@attack(without(Clip, apply=_finite), World, max_weight=100)
def data_oracle(world: World) -> None:
    """The server sends a model that overflows on some users' data, and watches who refuses, with which words.

    No answer depends on private data: the same messages get the same kind of answer, of the same size.
    """
    bad, answers = [np.nan, np.inf, -np.inf, 1e300, 0.0], []
    for place, index in enumerate(world.everyone[:12]):
        update = world.updates[index].astype(np.float64)
        if place:
            update[:] = bad[place % len(bad)]
        weight, header = (1, 0, -3, 10**30)[place % 4], world.header_for(index, world.shown)
        try:
            answers.append(f"{len(world.client(index).upload(header, update, weight))} bytes")
        except SparseSecAggError as refusal:
            world.play.refusals.append(type(refusal).__name__)
            answers.append(str(refusal))
    world.play.values += sum(each != answers[0] for each in answers)


def _small(weight: int, params: Parameters) -> int:
    """Refuse weights above the limit, as the first version did."""
    require("weight", weight <= params.max_weight, f"must be from 0 to {params.max_weight}")
    return weight


@attack(without(checks, checked_weight=_small), World, max_weight=5)
def weight_oracle(world: World) -> None:
    """The server sets the largest weight and watches who refuses.

    A weight above the limit is clamped, and no answer differs by it.
    """
    world.play.values += sum(not world.upload(index, weight=1 + index) for index in world.everyone)


@attack(stage=World, promised=(), max_weight=100)
def unequal_weights(world: World) -> None:
    """One user has a large weight and all others have none: the sum of the group is that user's update.

    Not promised: anonymity counts users, not weight. Leave weights equal, or bound their ratio.
    """
    for index in world.everyone:
        world.upload(index, weight=100 if index == world.victim else 0)
    world.unmask_all(world.everyone)
    world.play.values += world.right(world.everyone)


@attack(stage=World, promised=())
def differences(world: World) -> None:
    """The server runs a round with all users and a later one, with the same model and slice, without the victim; it
    subtracts the sums.

    Not promised without noise: a server can leave anybody out, and sums over different users can be subtracted.
    """
    _subtract(world, TOLERANCE)


TOLD_APART = 0.2  # Correlation of 600 values, five deviations from what chance gives.
NOISY: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 4.0, "default_threshold": True, "values": 600}


@attack(without(Noise, apply=lambda self, piece: piece), World, **NOISY)
def differences_with_noise(world: World) -> None:
    """The same in a run with differential privacy.

    Users add noise themselves: a difference of sums tells no more than their budgets allow.
    """
    _subtract(world, None)  # Rounding blurs single values.


def _subtract(world: World, tolerance: float | None) -> None:
    """Run a round with all, and one with the same slice without the victim; count the values of the difference.

    Those that are right; without a tolerance all of them, if the difference tells the victim's update from chance.
    """
    server, absent = world.run.server, world.epoch.user(world.victim)
    for index, update in world.updates.items():
        world.updates[index] = update / np.linalg.norm(update) if world.params.clip_norm else update
    first = play_round(world)
    block = world.params.shape.block  # type: ignore[attr-defined]  # Rounds until the same slice is sent again.
    period = block * -(-2 * AHEAD // block)  # So far ahead that the victim has sent no key package for it yet.
    server.catch_up(period)
    for user, each in world.run.clients.items():
        for package in each.share_keys(period):
            if user != absent:
                server.receive(user, package)
    second = play_round(world)
    if first is None or second is None:
        return
    truth = world.updates[world.victim]
    sent = first.updated & second.updated & (truth != 0)
    found = (first.sum() - second.sum())[sent]
    if tolerance is None:
        world.play.values += int(np.corrcoef(found, truth[sent])[0, 1] > TOLD_APART) * len(found)
    else:
        error = (found - truth[sent]) / world.params.clip
        world.play.values += int(np.count_nonzero(np.abs(error) < tolerance))


@attack(without_policy)
def published_pattern(play: Play) -> None:
    """The server names the published pattern, which gives single values away.

    Users take part in pairwise only if their owner has asked for it.
    """
    _count_takers(play, RoundOptions(pattern="pairwise", alpha=play.setting.alpha), 100)


@attack(without_policy)
def huge_parameters(play: Play) -> None:
    """The server names a model of 2^40 coordinates.

    A user's policy bounds the size of model and cohort before anything is allocated.
    """
    _count_takers(play, RoundOptions(alpha=play.setting.alpha), MAX_DIM)


def _count_takers(play: Play, options: RoundOptions, dim: int) -> None:
    params = Parameters.create(play.setting.clients, dim, options)
    for user in range(play.setting.clients):
        with play.noting():
            Client(user, params)
            play.values += 1


LEAP = ledger.LARGEST_SKIP + 10


@attack(without(ledger, LARGEST_SKIP=1 << 40), World)
def leap(world: World) -> None:
    """The server claims to be thousands of rounds ahead, so that users follow and are of no use to anybody else.

    A user follows a bounded number of rounds; a larger leap is refused and changes nothing.
    """
    for index in world.everyone[:3]:
        with world.play.noting():
            world.client(index).share_keys(LEAP)
        world.play.values += world.client(index).round_number > 0


def _sparse(play: Play, degree: int = 0) -> World:
    """Return a world with a sparse graph, which plain runs alone have."""
    return World(play, pattern="full", alpha=1.0, neighbours=degree or max(4, play.setting.clients // 6))


@attack(without_refusal("share masks with this one"), _sparse, modes=("plain",))
def no_mask_partners(world: World) -> None:
    """In a sparse graph, one user is told that all with whom it shares masks have left.

    A user uploads only if enough of its mask partners take part.
    """
    if world.upload(world.victim, world.show(without=world.epoch.partners(world.victim).tolist())):
        world.play.values += int(np.count_nonzero(world.truth[world.victim]))


@attack(without(Header, components=lambda self, indices: [set(indices)]), _sparse, modes=("plain",), degree=4)
def split_graph(world: World) -> None:
    """In a sparse graph, survivors are chosen so that the mask graph falls apart.

    Users count the parts that masks join, not survivors.
    """
    world.upload_all()
    circle, size, half = world.epoch.group.graph._circle, 5, 2  # Cut five neighbours out of the circle.
    start = int(np.flatnonzero(circle == world.victim)[0])
    part, before, behind = (
        {int(circle[(start + step) % len(circle)]) for step in steps}
        for steps in (range(size), range(-half, 0), range(size, size + half))
    )
    world.unmask_all([index for index in world.everyone if index not in before | behind])
    world.play.values += world.right(part)
