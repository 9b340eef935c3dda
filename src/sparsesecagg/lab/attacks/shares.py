"""A server that asks for shares it should not get: other survivors, asked twice, rounds run again."""

from __future__ import annotations

import msgspec
import numpy as np

from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.lab.attacks.base import Loot, Setting, attack
from sparsesecagg.lab.attacks.world import TOLERANCE, World, without_counting, without_ledger, without_policy
from sparsesecagg.lab.audit.adversary import told_dropped

TENTH = 0.1


@attack(
    "Everybody in the victim's group but the victim is declared dropped.",
    "No sum is opened with fewer survivors than the threshold.",
    without_counting,
)
def thin_group(setting: Setting, loot: Loot) -> None:
    """One survivor is declared to all."""
    world = World(setting, loot)
    shown = world.show()
    world.upload_all(shown)
    for holder in world.everyone:
        world.unmask(holder, shown.header, {world.victim, holder})
    loot.values += world.right([world.victim])


@attack(
    "The server names the smallest threshold that users accept and tells every holder another set of survivors, with a "
    "tenth of the users colluding.",
    "A roster makes users demand two honest users or more in every sum, against a malicious server and a tenth "
    "colluding; no parameter of the server weakens that.",
    without_policy,
    promised=("authenticated",),
)
def weak_parameters(setting: Setting, loot: Loot) -> None:
    """S1, and attacks 6 and 9 of version 1: with 2t ≤ P + c both secrets of everybody open."""
    world = World(setting, loot, colluding=TENTH)
    shown = world.show()
    uploaded = world.upload_all(shown)
    honest = [index for index in uploaded if index not in world.colluders]
    told = told_dropped(honest, len(uploaded), world.params.threshold, len(world.colluders))
    for holder in honest:
        world.unmask(holder, shown.header, [index for index in uploaded if index not in told.get(holder, ())])
    world.restore()
    loot.values += sum(world.right(part) for part in world.sums() if len(part) == 1)


@attack(
    "Clients are restored from copies of their state, and asked for shares again with the victim declared dropped.",
    "A client gives one answer per stage, even from a restored or copied state.",
    without_ledger,
)
def second_unmask(setting: Setting, loot: Loot) -> None:
    """Attack 2 of version 1."""
    world = World(setting, loot)
    shown = world.show()
    world.upload_all(shown)
    copies = {index: world.client(index).save() for index in world.everyone}
    world.unmask_all(shown.header, world.everyone)
    world.restore()
    for holder in world.others:
        world.unmask(holder, shown.header, world.others, by=world.copy_of(holder, copies[holder]))
    loot.values += world.right([world.victim])


@attack(
    "A round is run again without the victim, from copies of the clients' states, and the sums are subtracted.",
    "A round is never run twice.",
    without_ledger,
)
def same_round_again(setting: Setting, loot: Loot) -> None:
    """Attack 4 of version 1."""
    _run_twice(World(setting, loot))


@attack(
    "A colluder commits to a false seed: the round fails, is opened with the colluder's help, and is asked for again "
    "without the victim.",
    "A round that failed may have been opened; nobody answers it again, so there is nothing to subtract.",
    without_ledger,
)
def failed_round(setting: Setting, loot: Loot) -> None:
    """Attack 5 of version 1."""
    world = World(setting, loot)
    colluder = world.others[0]
    seed = world.client(colluder)._state.packages[1].for_upload().private_seed.reveal()
    world.packages = {
        index: msgspec.structs.replace(each, commitment=bytes(32)) if index == colluder else each
        for index, each in world.packages.items()
    }
    world.seeds[colluder] = SharedSecret(seed)
    _run_twice(world)


def _run_twice(world: World) -> None:
    """Run a round, and again without the victim, from copies of the states; subtract the sums."""
    copies = {index: world.client(index).save() for index in world.everyone}
    sums = []
    for without in ((), (world.victim,)):
        shown = world.show(without=without)
        if without:
            for index, state in copies.items():
                world.run.clients[world.epoch.user(index)] = world.copy_of(index, state)
        uploaded = world.upload_all(shown)
        world.unmask_all(shown.header, uploaded)
        world.restore()
        opened = world.read(uploaded) if uploaded else None
        if opened is None:
            return
        sums.append(np.concatenate([values for _, values, _ in opened.pieces()]))
        places = np.concatenate([np.arange(world.params.dim)[where] for where, _, _ in opened.pieces()])
    error = (sums[0] - sums[1] - world.truth[world.victim][places]) / world.params.quantizer.limit
    world.loot.values += int(np.count_nonzero(np.abs(error) < TOLERANCE))
