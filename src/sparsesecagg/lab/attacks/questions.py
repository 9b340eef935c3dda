"""A server that asks questions: what a refusal tells, what parameters it may name, what differences of sums give."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, SparseSecAggError
from sparsesecagg.lab.attacks.base import Loot, Setting, attack, without
from sparsesecagg.lab.attacks.users import play_round
from sparsesecagg.lab.attacks.world import TOLERANCE, World, without_policy, without_refusal
from sparsesecagg.privacy.mechanism import Noise
from sparsesecagg.protocol import Client, Parameters, RoundOptions, checks, state
from sparsesecagg.protocol.epoch import AHEAD
from sparsesecagg.protocol.header import Header
from sparsesecagg.protocol.parameters import MAX_DIM
from sparsesecagg.rounding import Clip


def _finite(self: Clip, piece: NDArray[Any], kept: Any = Clip.apply) -> Any:
    """Refuse what is not finite, as version 2 did."""
    if not np.isfinite(piece).all():
        raise InvalidInput("update", "must be finite")
    return kept(self, piece)


@attack(
    "The server sends a model that overflows on some users' data, and watches who refuses, with which words.",
    "No answer depends on private data: the same messages get the same kind of answer, of the same size.",
    without(Clip, "apply", _finite),
)
def data_oracle(setting: Setting, loot: Loot) -> None:
    """S3: count the users whose data can be told from an ordinary update's by the kind of answer."""
    world = World(setting, loot, max_weight=100)
    bad = [np.nan, np.inf, -np.inf, 1e300, 0.0]
    shown, answers = world.show(), []
    for place, index in enumerate(world.everyone[:12]):
        update = world.updates[index].astype(np.float64)
        if place:
            update[:] = bad[place % len(bad)]
        try:
            weight = (1, 0, -3, 10**30)[place % 4]
            answer = world.client(index).upload(world.header_for(index, shown), update, weight)
            answers.append(f"{len(answer)} bytes")
        except SparseSecAggError as refusal:
            loot.refusals.append(type(refusal).__name__)
            answers.append(str(refusal))
    loot.values += sum(each != answers[0] for each in answers)


def _small(weight: int, params: Parameters) -> int:
    """Refuse weights above the limit, as the first version did."""
    if weight > params.max_weight:
        raise InvalidInput("weight", f"must be from 0 to {params.max_weight}")
    return weight


@attack(
    "The server sets the largest weight and watches who refuses.",
    "A weight above the limit is clamped, and no answer differs by it.",
    without(checks, "checked_weight", _small),
)
def weight_oracle(setting: Setting, loot: Loot) -> None:
    """Attack 12 of version 1: count those of whom the server learns on which side of the limit their weight is."""
    world = World(setting, loot, max_weight=5)
    shown = world.show()
    loot.values += sum(not world.upload(index, shown, 1 + index) for index in world.everyone)


@attack(
    "One user has a large weight and all others have none: the sum of the group is that user's update.",
    "Not promised: anonymity counts users, not weight. Leave weights equal, or bound their ratio.",
    promised=(),
)
def unequal_weights(setting: Setting, loot: Loot) -> None:
    """S7, without any lie."""
    world = World(setting, loot, max_weight=100)
    shown = world.show()
    for index in world.everyone:
        world.upload(index, shown, 100 if index == world.victim else 0)
    world.unmask_all(shown.header, world.everyone)
    loot.values += world.right(world.everyone)


@attack(
    "The server runs a round with all users and a later one, with the same model and slice, without the victim; it "
    "subtracts the sums.",
    "Not promised without noise: a server can leave anybody out, and sums over different users can be subtracted.",
    promised=(),
)
def differences(setting: Setting, loot: Loot) -> None:
    """S6: a user that is not invited notices nothing."""
    _subtract(World(setting, loot), TOLERANCE)


TOLD_APART = 0.2
"""Correlation of 600 values, five deviations from what chance gives."""


@attack(
    "The same in a run with differential privacy.",
    "Users add noise themselves: a difference of sums tells no more than their budgets allow.",
    without(Noise, "apply", lambda self, piece: piece),
)
def differences_with_noise(setting: Setting, loot: Loot) -> None:
    """Without noise the difference correlates with the victim's update, though rounding blurs single values."""
    _subtract(World(setting, loot, clip_norm=1.0, noise_multiplier=4.0, default_threshold=True, values=600), None)


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
                server.receive(package, user)
    second = play_round(world)
    if first is None or second is None:
        return
    truth = world.updates[world.victim]
    sent = first.updated & second.updated & (truth != 0)
    found = (first.sum() - second.sum())[sent]
    if tolerance is None:
        world.loot.values += int(np.corrcoef(found, truth[sent])[0, 1] > TOLD_APART) * len(found)
    else:
        error = (found - truth[sent]) / world.params.clip
        world.loot.values += int(np.count_nonzero(np.abs(error) < tolerance))


@attack(
    "The server names the published pattern, which gives single values away.",
    "Users take part in pairwise only if their owner has asked for it.",
    without_policy,
)
def published_pattern(setting: Setting, loot: Loot) -> None:
    """Attack 9 of version 1: count who takes part."""
    _count_takers(setting, loot, RoundOptions(pattern="pairwise", alpha=setting.alpha), 100)


@attack(
    "The server names a model of 2^40 coordinates.",
    "A user's policy bounds the size of model and cohort before anything is allocated.",
    without_policy,
)
def huge_parameters(setting: Setting, loot: Loot) -> None:
    """Attack 16 of version 1: count who takes part."""
    _count_takers(setting, loot, RoundOptions(alpha=setting.alpha), MAX_DIM)


def _count_takers(setting: Setting, loot: Loot, options: RoundOptions, dim: int) -> None:
    params = Parameters.create(setting.clients, dim, options)
    for user in range(setting.clients):
        with loot.noting():
            Client(user, params)
            loot.values += 1


LEAP = state.LARGEST_SKIP + 10


@attack(
    "The server claims to be thousands of rounds ahead, so that users follow and are of no use to anybody else.",
    "A user follows a bounded number of rounds; a larger leap is refused and changes nothing.",
    without(state, "LARGEST_SKIP", 1 << 40),
)
def leap(setting: Setting, loot: Loot) -> None:
    """S15: count users that can't take part in the next round any more."""
    world = World(setting, loot)
    for index in world.everyone[:3]:
        with loot.noting():
            world.client(index).share_keys(LEAP)
        loot.values += world.client(index).round_number > 0


# Sparse graphs, which exist in plain runs only


@attack(
    "In a sparse graph, one user is told that all with whom it shares masks have left.",
    "A user uploads only if enough of its mask partners take part.",
    without_refusal("share masks with this one"),
    modes=("plain",),
    promised=("plain",),
)
def no_mask_partners(setting: Setting, loot: Loot) -> None:
    """Attack 7 of version 1: count the values that leave without any mask of a pair."""
    world = World(setting, loot, pattern="full", alpha=1.0, neighbours=max(4, setting.clients // 6))
    shown = world.show(without=world.epoch.partners(world.victim).tolist())
    if world.upload(world.victim, shown):
        loot.values += int(np.count_nonzero(world.truth[world.victim]))


@attack(
    "In a sparse graph, survivors are chosen so that the mask graph falls apart.",
    "Users count the parts that masks join, not survivors.",
    without(Header, "components", lambda self, indices: [set(indices)]),
    modes=("plain",),
    promised=("plain",),
)
def split_graph(setting: Setting, loot: Loot) -> None:
    """Attack 8 of version 1: cut five neighbours out of the circle."""
    degree, size = 4, 5
    world = World(setting, loot, pattern="full", alpha=1.0, neighbours=degree)
    shown = world.show()
    world.upload_all(shown)
    circle = world.epoch.group.graph._circle
    start = int(np.flatnonzero(circle == world.victim)[0])
    part, *cut = (
        [int(circle[(start + step) % len(circle)]) for step in steps]
        for steps in (range(size), range(-degree // 2, 0), range(size, size + degree // 2))
    )
    gone = {index for side in cut for index in side}
    survivors = [index for index in world.everyone if index not in gone]
    world.unmask_all(shown.header, survivors)
    loot.values += world.right(part)
