"""A server that lies in a round: other members, keys, contexts and survivors for some, shares asked for twice."""

from __future__ import annotations

import msgspec
import numpy as np

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.lab.attacks.base import attack
from sparsesecagg.lab.attacks.world import (
    TOLERANCE,
    World,
    without_counting,
    without_ledger,
    without_policy,
    without_refusal,
    without_tags,
)
from sparsesecagg.lab.audit.adversary import spread_votes, told_dropped


def apart(world: World, tags_of_victim: str) -> None:
    """Let the victim mask with fewer peers than the others know of; have exactly those opened by the others."""
    victim, others = world.victim, world.others
    absent, peers = others[: world.spare], others[world.spare :]
    told = world.show(without=absent)
    for index in world.everyone:
        world.upload(index, told if index == victim else None)
    if victim not in world.uploads:
        return
    for holder, gone in spread_votes(peers, others, world.spare).items():
        mine = {"own": world.tag(victim, holder), "reflected": world.tag(holder, victim), "none": bytes(8)}
        survivors = [index for index in world.uploads if index not in gone]
        world.unmask(holder, survivors, tags={victim: mine[tags_of_victim]})
    world.play.values += world.right([victim], told.header)


@attack(without_tags, World)
def other_members(world: World) -> None:
    """One user is told that some of its group have left; then its remaining peers are declared dropped to the others.

    Users that were shown different members never end up in a sum that reveals one of them.
    """
    apart(world, "own")


@attack(without_tags, World)
def reflected_tags(world: World) -> None:
    """The same, and every holder gets its own tag back as the victim's.

    A tag counts only from its sender to its receiver.
    """
    apart(world, "reflected")


@attack(without_tags, World)
def withheld_tags(world: World) -> None:
    """The same, without any tag of the victim.

    A survivor without a valid tag counts as dropped: its upload stays behind its private mask.
    """
    apart(world, "none")


@attack(without_refusal("another mask key"), World)
def own_mask_keys(world: World) -> None:
    """The server puts mask keys of its own for all peers of one user into everybody's header.

    A user uploads only if the header has its own mask key as it was shared.
    """
    shown = world.show(forged=world.others)
    world.unmask_all(world.upload_all(shown), shown.header)
    world.play.values += world.right([world.victim])


@attack(without_refusal("different parameters, keys or context"), World)
def other_context(world: World) -> None:
    """All users but one are given another learning rate, so that their updates are zero and the sum is the one's.

    The header's context covers everything that decides what a user contributes; a user refuses anything else.
    """
    told, others = digest("context", b"learning rate 0.1"), digest("context", b"learning rate 0")
    shown, contexts = world.show(context=told), {world.victim: told}
    for index in world.others:
        world.updates[index] = np.zeros(world.params.dim, np.float32)
    survivors = [i for i in world.everyone if world.upload(i, shown, context=contexts.get(i, others))]
    if world.victim in survivors:
        world.unmask_all(survivors, shown.header)
        world.play.values += world.right(survivors)


@attack(without_ledger, World)
def restarted_round(world: World) -> None:
    """A round that users have answered is started again under another header.

    A round has one header; a second one is refused.
    """
    copies = world.saved()  # An upload erases what it needs.
    world.upload_all()
    world.put_back(copies)
    world.play.values += len(world.upload_all(world.show(without=world.others[: world.spare])))


@attack(without_ledger, World)
def second_header(world: World) -> None:
    """Before a user uploads, the server tries header after header on it, each with another model.

    A header is on record before the user trains, and the user refuses any other header of that round.
    """
    for number in range(20):
        context = digest("context", bytes([number]))
        data = world.header_for(world.victim, world.show(context=context))
        with world.play.noting():
            world.client(world.victim).accept(data, context=context)
            world.play.values += int(number > 0)


@attack(without_ledger, World)
def second_package(world: World) -> None:
    """Key packages are said to be lost, and made again from copies of the users' states.

    A user makes one key package per round, even from a restored or copied state, so there is no second mask key.
    """
    copies = world.saved()
    first = {index: [*world.client(index).share_keys(2)] for index in copies}
    world.put_back(copies)
    for index in copies:
        with world.play.noting():
            world.play.values += int(first[index] != [*world.client(index).share_keys(2)])


# Shares


@attack(without_counting, World)
def thin_group(world: World) -> None:
    """Everybody in the victim's group but the victim is declared dropped.

    No sum is opened with fewer survivors than the threshold.
    """
    world.upload_all()
    for holder in world.everyone:
        world.unmask(holder, {world.victim, holder})
    world.play.values += world.right([world.victim])


@attack(without_policy, World, promised=("authenticated",), colluding=0.1, odd=True)
def weak_parameters(world: World) -> None:
    """The server names the smallest threshold that users accept and tells every holder another set of survivors, with a
    tenth of the users colluding.

    A roster makes users demand two honest users or more in every sum, against a malicious server and a tenth colluding;
    no parameter of the server weakens that.
    """
    uploaded = world.upload_all()
    honest = [index for index in uploaded if index not in world.colluders]
    told = told_dropped(honest, len(uploaded), world.params.threshold, len(world.colluders))
    for holder in honest:
        world.unmask(holder, [index for index in uploaded if index not in told.get(holder, ())])
    world.restore()
    world.play.values += sum(world.right(part) for part in world.sums() if len(part) == 1)


@attack(without_ledger, World)
def second_unmask(world: World) -> None:
    """Clients are restored from copies of their state, and asked for shares again with the victim declared dropped.

    A client gives one answer per stage, even from a restored or copied state.
    """
    world.upload_all()
    copies = world.saved()
    world.unmask_all(world.everyone)
    world.restore()
    world.put_back(copies)
    world.unmask_all(world.others)
    world.play.values += world.right([world.victim])


@attack(without_ledger, World)
def same_round_again(world: World) -> None:
    """A round is run again without the victim, from copies of the clients' states, and the sums are subtracted.

    A round is never run twice.
    """
    copies, sums = world.saved(), []
    for without in ((), (world.victim,)):
        shown = world.show(without=without)
        if without:
            world.put_back(copies)
        uploaded = world.upload_all(shown)
        world.unmask_all(uploaded, shown.header)
        world.restore()
        opened = world.read(uploaded) if uploaded else None
        if opened is None:
            return
        sums.append(np.concatenate([values for _, values, _ in opened.pieces()]))
        places = np.concatenate([np.arange(world.params.dim)[where] for where, _, _ in opened.pieces()])
    error = (sums[0] - sums[1] - world.truth[world.victim][places]) / world.params.quantizer.limit
    world.play.values += int(np.count_nonzero(np.abs(error) < TOLERANCE))


@attack(without_ledger, World)
def failed_round(world: World) -> None:
    """A colluder commits to a false seed: the round fails, is opened with the colluder's help, and is asked for again
    without the victim.

    A round that failed may have been opened; nobody answers it again, so there is nothing to subtract.
    """
    colluder = world.others[0]
    seed = world.client(colluder)._state.packages[1].for_upload().private_seed.reveal()
    false = msgspec.structs.replace(world.packages[colluder], commitment=bytes(32))
    world.packages = {**world.packages, colluder: false}
    world.seeds[colluder] = SharedSecret(seed)
    same_round_again(world)
