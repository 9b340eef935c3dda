"""A server that shows users different things, or the same thing twice: members, mask keys, contexts, tags."""

from __future__ import annotations

import numpy as np

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.lab.attacks.base import Loot, Setting, attack
from sparsesecagg.lab.attacks.world import World, without_ledger, without_refusal, without_tags
from sparsesecagg.lab.audit.adversary import spread_votes
from sparsesecagg.protocol.epoch import mask_private


def apart(setting: Setting, loot: Loot, tags_of_victim: str) -> None:
    """Let the victim mask with fewer peers than the others know of; have exactly those opened by the others."""
    world = World(setting, loot)
    victim, others = world.victim, world.others
    absent = others[: world.spare]
    shown, told = world.show(), world.show(without=absent)
    peers = [index for index in others if index not in absent]
    for index in world.everyone:
        world.upload(index, told if index == victim else shown)
    if victim not in world.uploads:
        return
    for holder, gone in spread_votes(peers, others, world.spare).items():
        mine = {"own": world.tag(victim, holder), "reflected": world.tag(holder, victim), "none": bytes(8)}
        survivors = [index for index in world.uploads if index not in gone]
        world.unmask(holder, shown.header, survivors, {victim: mine[tags_of_victim]})
    loot.values += world.right([victim], told.header)


@attack(
    "One user is told that some of its group have left; then its remaining peers are declared dropped to the others.",
    "Users that were shown different members never end up in a sum that reveals one of them.",
    without_tags,
)
def other_members(setting: Setting, loot: Loot) -> None:
    """Attack 1 of version 1."""
    apart(setting, loot, "own")


@attack(
    "The same, and every holder gets its own tag back as the victim's.",
    "A tag counts only from its sender to its receiver.",
    without_tags,
)
def reflected_tags(setting: Setting, loot: Loot) -> None:
    """The same with reflected tags."""
    apart(setting, loot, "reflected")


@attack(
    "The same, without any tag of the victim.",
    "A survivor without a valid tag counts as dropped: its upload stays behind its private mask.",
    without_tags,
)
def withheld_tags(setting: Setting, loot: Loot) -> None:
    """The same without tags."""
    apart(setting, loot, "none")


@attack(
    "The server puts mask keys of its own for all peers of one user into everybody's header.",
    "A user uploads only if the header has its own mask key as it was shared.",
    without_refusal("another mask key"),
)
def own_mask_keys(setting: Setting, loot: Loot) -> None:
    """A user that sees a key in place of its own refuses; only the victim does not."""
    world = World(setting, loot)
    rng = np.random.default_rng(setting.seed)
    forged = {index: SharedSecret(rng.bytes(16)) for index in world.others}
    keys = {
        index: public_key(mask_private(world.epoch, 1, world.epoch.user(index), secret))
        for index, secret in forged.items()
    }
    shown = world.show(mask_keys=keys)
    survivors = world.upload_all(shown)
    world.unmask_all(shown.header, survivors)
    world.mask_secrets |= forged
    loot.values += world.right([world.victim])


@attack(
    "All users but one are given another learning rate, so that their updates are zero and the sum is the one's.",
    "The header's context covers everything that decides what a user contributes; a user refuses anything else.",
    without_refusal("different parameters, keys or context"),
)
def other_context(setting: Setting, loot: Loot) -> None:
    """Attack 3 of version 1."""
    world = World(setting, loot)
    told, others = digest("context", b"learning rate 0.1"), digest("context", b"learning rate 0")
    for index in world.others:
        world.updates[index] = np.zeros(world.params.dim, np.float32)
    shown = world.show(context=told)
    survivors = [
        index
        for index in world.everyone
        if world.upload(index, shown, context=told if index == world.victim else others)
    ]
    if world.victim not in survivors:
        return
    world.unmask_all(shown.header, survivors)
    loot.values += world.right(survivors)


@attack(
    "A round that users have answered is started again under another header.",
    "A round has one header; a second one is refused.",
    without_ledger,
)
def restarted_round(setting: Setting, loot: Loot) -> None:
    """Count who answers both. Copies of the users' states are asked: an upload erases what it needs."""
    world = World(setting, loot)
    copies = {index: world.client(index).save() for index in world.everyone}
    world.upload_all(world.show())
    for index, state in copies.items():
        world.run.clients[world.epoch.user(index)] = world.copy_of(index, state)
    loot.values += len(world.upload_all(world.show(without=world.others[: world.spare])))


@attack(
    "Before a user uploads, the server tries header after header on it, each with another model.",
    "A header is on record before the user trains, and the user refuses any other header of that round.",
    without_ledger,
)
def second_header(setting: Setting, loot: Loot) -> None:
    """S3: count the headers beyond the first that the victim would train for."""
    world = World(setting, loot)
    for number in range(20):
        context = digest("context", bytes([number]))
        data = world.header_for(world.victim, world.show(context=context))
        with loot.noting():
            world.client(world.victim).accept(data, context=context)
            loot.values += int(number > 0)


@attack(
    "Key packages are said to be lost, and made again from copies of the users' states.",
    "A user makes one key package per round, even from a restored or copied state, so there is no second mask key.",
    without_ledger,
)
def second_package(setting: Setting, loot: Loot) -> None:
    """Count users with two different packages for one round."""
    world = World(setting, loot)
    copies = {index: world.client(index).save() for index in world.everyone}
    for index, state in copies.items():
        both = world.client(index), world.copy_of(index, state)
        with loot.noting():
            first, second = ([*user.share_keys(2)] for user in both)
            loot.values += int(first != second)
