"""A server that asks twice: restored copies, two processes, rounds that are run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, refusal_of, replaced
from sparsesecagg.lab.attacks.views import collect
from sparsesecagg.lab.attacks.world import TOLERANCE, World, everybody
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.protocol import Client
from sparsesecagg.protocol.journal import Journal
from sparsesecagg.protocol.opening import orphaned_pairs
from sparsesecagg.protocol.order import commitment_of
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.work import Total
from sparsesecagg.protocol.works import work_of


@contextmanager
def without_ledger() -> Iterator[None]:
    """Let clients answer without looking at what they have answered before."""
    kept = Journal.answered

    def unasked(self: Journal, message: Any, stage: Any, data: bytes) -> None:
        return None

    def unrecorded(self: Journal, state: Any, request: bytes = b"", answer: bytes = b"") -> None:
        self.state = state

    with replaced(Journal, "answered", unasked), replaced(Journal, "record", unrecorded):
        yield
    assert Journal.answered is kept  # noqa: S101


def second_unmask(setting: Setting) -> Reading:
    """Attack 2: copies of the clients' state are made, and UNMASK is asked twice with other survivors."""
    world = World(setting, confirm=False)
    victim = world.victim
    shown = world.pod_round(victim)
    orders = world.orders(shown)
    everyone = everybody(shown)
    for user in everyone:
        world.upload(user, orders[user])
    tags = {user: world.tags_of(shown, user) for user in everyone}
    copies = {user: world.clients[user].save() for user in everyone}
    first = collect(world, shown, everyone, everyone, tags)
    seeds = world.secrets(shown, first, everyone)
    others = [user for user in everyone if user != victim]
    second = {}
    for user in others:
        again = _copy(world, user, copies[user])
        answer = world.unmask(user, world.unmask_request(shown, user, others, tags), again)
        if answer is not None:
            second[user] = answer
    masks = {user: secret for user, secret in world.secrets(shown, second, others).items() if user == victim}
    return Reading(world.read(shown, [victim], seeds, masks), refusal_of(world.refusals))


def _copy(world: World, user: int, state: bytes) -> Client:
    """Return a client that was restored from a copy of the state, on the same node and so with the same ledger."""
    kept = world.clients[user]
    identity = world.identities[user] if world.identities else None
    return Client.restore(state, kept.policy, identity=identity, ledger=kept._journal.ledger)


def same_round_again(setting: Setting) -> Reading:
    """Attack 4: a round is run again without the victim, from copies of the states; then sums are subtracted."""
    return _run_twice(World(setting, confirm=False), {}, {})


def failed_round(setting: Setting) -> Reading:
    """Attack 5: a colluder deals a false seed, so the round fails; it is opened with its help, and asked for again."""
    world = World(setting, confirm=False)
    colluder = next(user for user in world.committee_of(world.victim) if user != world.victim)
    client, number = world.clients[colluder], world.run.server.round_number + 1
    package = client._state.packages[number]
    commitment = commitment_of(package.head)
    head = package.head.replace(commitment, bytes(len(commitment)))
    false = msgspec.structs.replace(package, head=head)
    client._journal.state = client._state.with_changes(packages={**client._state.packages, number: false})
    seed = SharedSecret(package.private_seed.reveal())
    reading = _run_twice(world, {colluder: head}, {colluder: seed})
    if colluder in world.opened:
        raise AssertionError("the round did not fail: the colluder's seed fits what it committed to")
    return reading


def _run_twice(world: World, heads: dict[int, bytes], told: dict[int, SharedSecret]) -> Reading:
    """Run a round, and again without the victim, from copies of the states; subtract the sums.

    Of colluders, `heads` are what they claim to have dealt, `told` the seeds that they tell the server.
    """
    victim = world.victim
    everyone = everybody(world.pod_round(victim))
    copies = {user: world.clients[user].save() for user in everyone}
    sums = []
    for attempt in range(2):
        without = [victim] if attempt else []
        if attempt:
            for user in everyone:
                world.clients[user] = _copy(world, user, copies[user])
        shown = world.pod_round(victim, without=without, heads=heads)
        sums.append(_committee_sum(world, shown, victim, told))
        if sums[-1] is None:
            return Reading(0, refusal_of(world.refusals))
    quantizer, truth = world.params.quantizer, world.truth[victim]
    sent = np.flatnonzero(truth)
    difference = (sums[0][sent] - sums[1][sent] - truth[sent]) / quantizer.limit
    return Reading(int(np.count_nonzero(np.abs(difference) < TOLERANCE)), refusal_of(world.refusals))


def _committee_sum(world: World, shown: PodRound, victim: int, told: dict[int, SharedSecret]) -> Any:
    """Run a round honestly, as far as the clients answer, and return the sum of the victim's committee, if it opens."""
    orders = world.orders(shown)
    kept = dict(world.truth)
    uploaded = [user for user in everybody(shown) if user in orders and world.upload(user, orders[user]) is not None]
    world.truth = {**world.truth, **{victim: kept[victim]}} if victim in kept else world.truth
    tags = {user: world.tags_of(shown, user) for user in uploaded}
    answers = collect(world, shown, uploaded, uploaded, tags)
    secrets = world.secrets(shown, answers, uploaded)
    world.opened = set(secrets)
    secrets = secrets | told
    pod = shown.epoch.pod
    number = int(pod.committee_of[pod.place[victim]])
    members = [user for user in uploaded if pod.committee_of[pod.place[user]] == number]
    if not members or not set(members) <= set(secrets):
        return None
    work = work_of(shown.order, number)
    for user in members:
        work.add(world.uploads[user])
    survived = {pod.place[user] for user in uploaded}
    by_place = {pod.place[user]: secret for user, secret in secrets.items()}
    work.open(
        {user: secrets[user] for user in members},
        orphaned_pairs(shown.order, number, survived, by_place, shown.packages),
    )
    total = Total(world.params)
    work.add_to(total)
    return total.values.astype(np.int64)


ATTACKS = [
    Attack(
        "second-unmask",
        "Clients are restored from copies of their state, and asked UNMASK again with the victim declared dropped.",
        "A client gives one answer per stage, whoever restores or copies its state.",
        second_unmask,
        without_ledger,
    ),
    Attack(
        "same-round-again",
        "A round is run again without the victim, from copies of the clients' state, and the sums are subtracted.",
        "A round is never run twice.",
        same_round_again,
        without_ledger,
    ),
    Attack(
        "failed-round",
        "A colluder deals a false seed: the round fails, is opened with the colluder's help, and is asked for again "
        "without the victim.",
        "A round that failed may have been opened; nobody answers it again, so there is nothing to subtract.",
        failed_round,
        without_ledger,
    ),
]
