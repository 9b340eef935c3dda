"""A server that gives orders it should not: other terms for one user, a second order, thin committees, exclusion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, refusal_of, replaced
from sparsesecagg.lab.attacks.repeats import without_ledger
from sparsesecagg.lab.attacks.views import collect, leave_alone
from sparsesecagg.lab.attacks.world import World, everybody
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import ProtocolError
from sparsesecagg.protocol import acceptance, client, history, release
from sparsesecagg.protocol.messages import Order
from sparsesecagg.protocol.order import OrderView


@contextmanager
def without_terms() -> Iterator[None]:
    """Let clients accept an order whatever terms it names."""
    kept = acceptance.accept_order

    def lenient(epoch: Any, message: Order, *, terms: bytes, **options: Any) -> Any:
        return kept(epoch, message, terms=message.terms, **options)

    with replaced(client, "accept_order", lenient):
        yield


@contextmanager
def without_counting() -> Iterator[None]:
    """Let clients open committees with any number of survivors."""
    kept = release.released_shares

    def open_all(order: OrderView, survivors: Any, shown: Any, held: Any, min_survivors: int) -> Any:
        floors = order.epoch.min_survivors
        order.epoch.min_survivors = [1] * len(floors)
        try:
            return kept(order, survivors, shown, held, 1)
        finally:
            order.epoch.min_survivors = floors

    with replaced(release, "released_shares", open_all):
        yield


@contextmanager
def without_history() -> Iterator[None]:
    """Let clients go on whatever was declared."""
    kept = history.Declared.result
    with replaced(history.Declared, "result", lambda self, number: (kept(self, number)[0], "")):
        yield


def other_terms(setting: Setting) -> Reading:
    """Attack 3: all but one node get a learning rate of zero; the sum is that one's update."""
    world = World(setting, confirm=False)
    victim = world.victim
    for user in world.updates:
        if user != victim:
            world.updates[user] = np.zeros(world.params.dim, np.float32)
    told, others = digest("terms", b"learning rate 0.1"), digest("terms", b"learning rate 0")
    shown = world.pod_round(victim, terms=told)
    orders = world.orders(shown)
    for user in everybody(shown):
        world.upload(user, orders[user], terms=told if user == victim else others)
    survivors = [user for user in everybody(shown) if user in world.uploads]
    if victim not in survivors:
        return Reading(0, refusal_of(world.refusals))
    tags = {user: world.tags_of(shown, user) for user in survivors}
    secrets = world.secrets(shown, collect(world, shown, survivors, survivors, tags), survivors)
    group = [user for user in world.committee_of(victim) if user in survivors]
    seeds = {user: secret for user, secret in secrets.items() if user in survivors}
    masks = {user: secret for user, secret in secrets.items() if user not in survivors}
    return Reading(world.read(shown, group, seeds, masks), refusal_of(world.refusals))


def restarted_round(setting: Setting) -> Reading:
    """The round is started again under another order, which some have left; counts who answers both."""
    world = World(setting, confirm=False)
    victim = world.victim
    committee = world.committee_of(victim)
    least = world.params.survivors_of(len(committee))
    hidden = [user for user in committee if user != victim][least - 1 :]
    for shown in (world.pod_round(victim), world.pod_round(victim, without=hidden)):
        world.uploads.clear()
        orders = world.orders(shown)
        for user in everybody(shown):
            world.upload(user, orders[user])
    return Reading(len(world.uploads), refusal_of(world.refusals))


def thin_committee(setting: Setting) -> Reading:
    """All but the victim of its committee are declared dropped."""
    world = World(setting)
    return leave_alone(world, world.victim)


def left_out(setting: Setting) -> Reading:
    """A user that uploads is declared dropped again and again, to compare its committee with and without it."""
    world = World(setting, confirm=False, dropout=0.01)
    victim, server = world.victim, world.run.server
    times, rounds = 0, 7
    for _ in range(rounds):
        orders = server.begin_round()
        for user, order in orders.items():
            client_of = world.clients[user]
            try:
                answer = client_of.upload(order, world.updates[user])
            except ProtocolError as refusal:
                world.refusals.append(refusal)
                continue
            finally:
                for package in client_of.share_keys(server.round_number):
                    server.receive(package)
            if user == victim:
                times += 1  # Its upload is there; the server says that it is not.
            else:
                server.receive(answer)
        for user, request in server.close_stage().items():
            server.receive(world.clients[user].unmask(request))
        server.close_stage()
    return Reading(max(0, times - 4), refusal_of(world.refusals))


ATTACKS = [
    Attack(
        "other-terms",
        "All users but one are given another learning rate, so that their updates are zero and the sum is the one's.",
        "Everything that decides what a user contributes is in the order: who sees anything else does not upload.",
        other_terms,
        without_terms,
    ),
    Attack(
        "restarted-round",
        "A round that users have answered is started again under another order.",
        "A round has one order; a second one is refused.",
        restarted_round,
        without_ledger,
    ),
    Attack(
        "thin-committee",
        "Everybody in the victim's committee but the victim is declared dropped.",
        "No committee is opened with fewer survivors than the parameters and the client's policy demand.",
        thin_committee,
        without_counting,
    ),
    Attack(
        "left-out",
        "A user that uploads is declared dropped in every round.",
        "A user stops when it is left out more often than the dropout rate explains; it is noticed, not prevented.",
        left_out,
        without_history,
    ),
]
