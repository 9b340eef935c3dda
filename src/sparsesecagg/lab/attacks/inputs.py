"""Parameters, weights, values and shares that nobody should accept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, refusal_of, replaced
from sparsesecagg.lab.attacks.views import collect, leave_alone
from sparsesecagg.lab.attacks.world import World, everybody
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import Decoded
from sparsesecagg.crypto.prime_field import PRIME
from sparsesecagg.errors import InvalidInput, ProtocolError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, Parameters, Policy, acceptance, client, opening
from sparsesecagg.protocol.messages import decode_client_message, encode
from sparsesecagg.protocol.order import OrderView
from sparsesecagg.protocol.parameters import MAX_DIM
from sparsesecagg.protocol.sliced import Sliced
from sparsesecagg.rounding import Quantizer


@contextmanager
def without_policy() -> Iterator[None]:
    """Let clients take part in anything."""
    anything = Policy(min_anonymity=1, min_survivors=1, max_dim=MAX_DIM, patterns=frozenset(PATTERNS))
    with (
        replaced(Policy, "check_parameters", lambda self, params: None),
        replaced(Policy, "check_structure", lambda self, params, structure: None),
        replaced(Policy, "min_survivors", anything.min_survivors),
    ):
        yield


def weak_parameters(setting: Setting) -> Reading:
    """Attack 9: the server names committees that are opened with a single survivor; the default policy decides."""
    world = World(setting, Policy(), min_survivors=1, confirm=False)
    if not world.run.members:
        return Reading(0)
    # Larger committees demand the same part of their users: somebody of a smallest one is alone.
    victim = min(range(setting.clients), key=lambda user: len(world.committee_of(user)))

    def forget_policy(survivors: list[int]) -> None:
        for user in survivors:  # A policy that was taken out demands nothing here either.
            world.clients[user].policy = Policy(min_anonymity=1, min_survivors=1)

    return leave_alone(world, victim, forget_policy)


def published_pattern(setting: Setting) -> Reading:
    """Attack 9 too: the server names the published pattern, which gives single values away."""
    params = Parameters.create(clients=setting.clients, dim=100, pattern="pairwise", alpha=setting.alpha)
    accepted = sum(_accepts(user, params) for user in range(setting.clients))
    return Reading(accepted, None if accepted else "PolicyViolation")


def huge_parameters(setting: Setting) -> Reading:
    """Attack 16: the server names a model that would take terabytes."""
    params = Parameters.create(clients=setting.clients, dim=MAX_DIM, alpha=setting.alpha)
    accepted = sum(_accepts(user, params) for user in range(setting.clients))
    return Reading(accepted, None if accepted else "PolicyViolation")


def _accepts(user: int, params: Parameters) -> bool:
    try:
        Client(user, params)
    except ProtocolError:
        return False
    return True


@contextmanager
def with_weight_refusals() -> Iterator[None]:
    """Let clients refuse weights above the limit, as the first version did."""

    def strict(weight: int, params: Parameters) -> int:
        if weight > params.max_weight:
            raise InvalidInput("weight", f"must be from 0 to {params.max_weight}")
        return weight

    with replaced(client, "checked_weight", strict):
        yield


def weight_oracle(setting: Setting) -> Reading:
    """Attack 12: the server sets the largest weight and watches who refuses."""
    world = World(setting, max_weight=50)
    shown = world.pod_round(world.victim)
    orders = world.orders(shown)
    told = 0
    for user in everybody(shown):
        try:
            world.upload(user, orders[user], weight=1 + 2 * user % 100)
        except InvalidInput:
            told += 1  # The server knows on which side of the limit the weight is.
    return Reading(told, refusal_of(world.refusals))


@contextmanager
def without_plausibility() -> Iterator[None]:
    """Let the server believe any sum."""
    with replaced(Sliced, "problem", lambda self: ""):
        yield


def shifted_weight(setting: Setting) -> Reading:
    """Attack 13: one user shifts its weight's digits by hand, so that the total weight is nearly zero."""
    world = World(setting, max_weight=100, confirm=False)
    victim, server = world.victim, world.run.server
    orders = server.begin_round()
    liar = victim
    committee = world.committee_of(liar)
    for user, order in orders.items():
        answer = world.clients[user].upload(order, world.updates[user], 100)
        if user == liar:
            answer = _shift_weight(world, answer, -(100 * len(committee) - 1))
        server.receive(answer)
    for user, request in server.close_stage().items():
        server.receive(world.clients[user].unmask(request))
    try:
        server.close_stage()
    except ProtocolError as refusal:
        return Reading(0, type(refusal).__name__)
    assert server.result is not None  # noqa: S101
    beyond = np.abs(server.result.mean()) > 1.01 * world.params.clip
    return Reading(int(np.count_nonzero(beyond)))


def _shift_weight(world: World, answer: bytes, by: int) -> bytes:
    """Add to the first digit of the weight in each slice of an upload; masks stay on."""
    message = decode_client_message(answer)
    params = world.params
    words = np.frombuffer(message.words, "<u4").astype(np.int64).reshape(-1, params.width)  # type: ignore[union-attr]
    words[:, params.slices.length] = (words[:, params.slices.length] + by) % params.word.modulus
    return encode(msgspec.structs.replace(message, words=memoryview(words.astype("<u4").tobytes())))


@contextmanager
def with_naive_rounding() -> Iterator[None]:
    """Quantise as the first version did: in float32, weighed before it is looked at."""

    def naive(self: Quantizer, values: Any, factor: float, rng: Any) -> tuple[Any, int]:
        with np.errstate(all="ignore"):
            scaled = values.astype(np.float32) * np.float32(self.scale * factor)
            return scaled.astype(np.int32), 0

    with replaced(Quantizer, "quantize", naive):
        yield


def huge_value(setting: Setting) -> Reading:
    """Attack 15: weight 0 and a value beyond float32, which became the most negative integer."""
    quantizer = Parameters.create(clients=setting.clients, dim=100, alpha=setting.alpha).quantizer
    values = np.full(100, 1e300)
    try:
        integers, _ = quantizer.quantize(values, 0.0, np.random.default_rng(setting.seed))
    except InvalidInput as refusal:
        return Reading(0, type(refusal).__name__)
    return Reading(int(np.count_nonzero(np.abs(integers.astype(np.int64)) > quantizer.limit)))


@contextmanager
def without_decoding() -> Iterator[None]:
    """Restore from the first holders only, whatever they sent."""

    def naive(shares: Any, holders: Any, threshold: int, genuine: Any, present: Any = None) -> Decoded:
        found = shamir.combine(shares[:, :threshold], tuple(holders[:threshold].tolist()))
        kept = [each if each is not None and genuine(row, each) else None for row, each in enumerate(found)]
        return Decoded(kept, np.zeros(shares.shape[:2], np.bool_))

    with replaced(opening, "restore", naive):
        yield


def false_shares(setting: Setting) -> Reading:
    """Attack 14: as many holders as can be stood give false shares; counts the coordinates that are lost."""
    world = World(setting, confirm=False)
    server = world.run.server
    orders = server.begin_round()
    for user, order in orders.items():
        server.receive(world.clients[user].upload(order, world.updates[user]))
    requests = server.close_stage()
    liars = set()
    for pod in server._epoch.pods:
        assert pod is not None  # noqa: S101
        members = pod.epoch.pod.users.tolist()
        liars |= set(members[: (len(members) - pod.epoch.threshold) // 2])
    for user, request in requests.items():
        answer = world.clients[user].unmask(request)
        if user in liars:
            message = decode_client_message(answer)
            shares = (np.frombuffer(message.shares, "<u4") ^ 1) % PRIME  # type: ignore[union-attr]
            answer = encode(msgspec.structs.replace(message, shares=shares.astype("<u4").tobytes()))
        server.receive(answer)
    try:
        server.close_stage()
    except ProtocolError as refusal:
        return Reading(world.params.dim, type(refusal).__name__)
    assert server.result is not None  # noqa: S101
    unnamed = liars.difference(server.result.false_shares)
    return Reading(round((1 - server.result.coordinates_updated) * world.params.dim) + len(unnamed))


# Sparse graphs


@contextmanager
def without_company() -> Iterator[None]:
    """Let a client mask with whoever is left, nobody included."""
    with replaced(acceptance, "require_company", lambda order, place, own, min_survivors: None):
        yield


def no_mask_peers(setting: Setting) -> Reading:
    """Attack 7: the victim is told that all with whom it shares masks have left."""
    world = World(setting, pattern="full", alpha=None, neighbours=max(4, setting.clients // 6))
    victim = world.victim
    pod = world.pod_of(victim)
    near = [int(pod.epoch.pod.users[place]) for place in pod.epoch.partners(pod.epoch.pod.place[victim]).tolist()]
    told = world.pod_round(victim, without=near)
    orders = world.orders(told)
    if victim in orders:
        world.upload(victim, orders[victim])
    if victim not in world.uploads:
        return Reading(0, refusal_of(world.refusals))
    # No pair mask at all: only the private one hides it, and its seed is opened with every sum.
    seed = world.truth[victim]
    return Reading(int(np.count_nonzero(seed)), refusal_of(world.refusals))


@contextmanager
def without_parts() -> Iterator[None]:
    """Count survivors, not the parts that masks still join."""
    with replaced(OrderView, "joined", lambda self, places: [places]):
        yield


def split_graph(setting: Setting) -> Reading:
    """Attack 8: the survivors are chosen so that the mask graph falls apart and a small part is opened alone."""
    degree = 4
    world = World(setting, pattern="full", alpha=None, neighbours=degree, threshold=degree // 2 + 1, min_survivors=10)
    victim = world.victim
    shown = world.pod_round(victim)
    orders = world.orders(shown)
    for user in everybody(shown):
        world.upload(user, orders[user])
    epoch = shown.epoch
    circle = epoch.pod.graph._circle
    start = int(np.flatnonzero(circle == epoch.pod.place[victim])[0])
    half = degree // 2
    size = 5
    part = [int(circle[(start + step) % len(circle)]) for step in range(size)]
    cut = [int(circle[(start + step) % len(circle)]) for step in (*range(-half, 0), *range(size, size + half))]
    survivors = [user for user in everybody(shown) if epoch.pod.place[user] not in cut]
    tags = {user: world.tags_of(shown, user) for user in survivors}
    secrets = world.secrets(shown, collect(world, shown, survivors, survivors, tags), survivors)
    seeds = {user: secret for user, secret in secrets.items() if user in survivors}
    masks = {user: secret for user, secret in secrets.items() if user not in survivors}
    group = [int(epoch.pod.users[place]) for place in part]
    return Reading(world.read(shown, group, seeds, masks), refusal_of(world.refusals))


ATTACKS = [
    Attack(
        "weak-parameters",
        "The server names committees that may be opened with a single survivor.",
        "The default policy refuses any run in which the sum of a single user could be opened.",
        weak_parameters,
        without_policy,
    ),
    Attack(
        "published-pattern",
        "The server names the published pattern, which gives single values away.",
        "Clients take part in pairwise only if their owner has asked for it.",
        published_pattern,
        without_policy,
    ),
    Attack(
        "huge-parameters",
        "The server names a model of 2^40 coordinates.",
        "The client's policy bounds the size of model and cohort before anything is allocated.",
        huge_parameters,
        without_policy,
    ),
    Attack(
        "weight-oracle",
        "The server sets the largest weight and watches who refuses.",
        "A weight above the limit is clamped, and no answer differs by it.",
        weight_oracle,
        with_weight_refusals,
    ),
    Attack(
        "shifted-weight",
        "One user shifts its private weight by hand, so that the mean explodes.",
        "A sum beyond what its users may send is thrown away; honest ranges are not enforced otherwise.",
        shifted_weight,
        without_plausibility,
    ),
    Attack(
        "huge-value",
        "A user has weight 0 and a value beyond float32.",
        "No value leaves the quantiser beyond its limit.",
        huge_value,
        with_naive_rounding,
    ),
    Attack(
        "false-shares",
        "As many holders as (n − t)/2 give false shares.",
        "They are corrected and named, and nothing is lost.",
        false_shares,
        without_decoding,
    ),
    Attack(
        "no-mask-peers",
        "In a sparse graph, one user is told that all with whom it shares masks have left.",
        "A client uploads only if enough of its mask peers take part.",
        no_mask_peers,
        without_company,
        modes=("plain",),
        promised=("plain",),
    ),
    Attack(
        "split-graph",
        "In a sparse graph, survivors are chosen so that the mask graph falls apart.",
        "Clients count the parts that masks join, not survivors.",
        split_graph,
        without_parts,
        modes=("plain",),
        promised=("plain",),
    ),
]
