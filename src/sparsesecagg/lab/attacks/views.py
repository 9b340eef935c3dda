"""A server that shows users different things: members, heads, tags, survivors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, refusal_of, replaced
from sparsesecagg.lab.attacks.world import World, everybody
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.protocol import acceptance, release
from sparsesecagg.protocol.messages import (
    ConfirmRequest,
    Unmask,
    decode_client_message,
    decode_users,
    encode,
    encode_users,
)
from sparsesecagg.protocol.package import mask_private
from sparsesecagg.protocol.pod_round import PodRound


@contextmanager
def without_tags() -> Iterator[None]:
    """Let every survivor count as one that has shown the order."""
    with replaced(release, "shown_survivors", lambda order, place, message, survivors, tags: survivors):
        yield


@contextmanager
def without_own_head() -> Iterator[None]:
    """Let a client take whatever head the order has for it."""
    kept = acceptance._checked_heads

    def unchecked(order: object, message: object, place: int, own: int, head: bytes) -> object:
        members = order.committee(own).tolist()  # type: ignore[attr-defined]
        pieces = acceptance.pieces(message.heads, len(members), acceptance.HEAD_SIZE, "the heads")  # type: ignore[attr-defined]
        return dict(zip(members, pieces, strict=True))

    with replaced(acceptance, "_checked_heads", unchecked):
        yield
    assert acceptance._checked_heads is kept  # noqa: S101


@contextmanager
def without_confirmations() -> Iterator[None]:
    """Let a client release shares whatever others have confirmed, and confirm what it is asked to."""
    with replaced(release, "require_confirmations", lambda order, message, tags, settled: None):
        yield


def confirm(
    world: World, pod_round: PodRound, survivors: Collection[int], asked: Collection[int] | None = None
) -> dict[int, dict[int, bytes]]:
    """Let survivors confirm a set where the run asks for it; return the tags by sender and receiver."""
    if not world.params.confirm:
        return {}
    pod, order = pod_round.epoch.pod, pod_round.order
    bitmap = encode_users(world.places(survivors, world.pod_of(next(iter(survivors)))), len(pod))
    request = encode(ConfirmRequest(order.round_number, order.view, bitmap))
    found: dict[int, dict[int, bytes]] = {}
    for user in survivors if asked is None else asked:
        answer = world._ask(partial(world.clients[user].confirm, request))
        if answer is None:
            continue
        tags = decode_client_message(answer).tags  # type: ignore[union-attr]
        others = [int(pod.users[each]) for each in order.partners(pod.place[user]).tolist()]
        others = [each for each in others if each in survivors]
        found[user] = {each: tags[8 * spot : 8 * spot + 8] for spot, each in enumerate(others)}
    return found


def collect(
    world: World,
    pod_round: PodRound,
    survivors: Collection[int],
    holders: Collection[int],
    tags: dict[int, dict[int, bytes]],
) -> dict[int, Unmask]:
    """Ask holders for shares of one set of survivors, confirmations first where the run asks for them."""
    confirmed = confirm(world, pod_round, survivors)
    answers = {}
    for holder in holders:
        mine = {sender: made[holder] for sender, made in confirmed.items() if holder in made}
        answer = world.unmask(holder, world.unmask_request(pod_round, holder, survivors, tags, mine))
        if answer is not None:
            answers[holder] = answer
    return answers


def leave_alone(world: World, victim: int, before: Callable[[list[int]], None] = lambda survivors: None) -> Reading:
    """Take all uploads, declare all of the victim's committee but itself dropped, and read what then opens.

    `before` is called with the survivors before they are asked for shares.
    """
    shown = world.pod_round(victim)
    orders = world.orders(shown)
    for user in everybody(shown):
        world.upload(user, orders[user])
    peers = [user for user in world.committee_of(victim) if user != victim]
    survivors = [user for user in everybody(shown) if user not in peers]
    tags = {user: world.tags_of(shown, user) for user in survivors}
    before(survivors)
    secrets = world.secrets(shown, collect(world, shown, survivors, survivors, tags), survivors)
    seeds = {user: secret for user, secret in secrets.items() if user in survivors}
    masks = {user: secret for user, secret in secrets.items() if user not in survivors}
    return Reading(world.read(shown, [victim], seeds, masks), refusal_of(world.refusals))


def other_members(setting: Setting) -> Reading:
    """Attack 1: the victim masks with fewer peers than the others know of, and exactly those are declared dropped."""
    world = World(setting)
    victim = world.victim
    committee = world.committee_of(victim)
    others = [user for user in committee if user != victim]
    least = world.params.survivors_of(len(committee))
    kept, hidden = others[: least - 1], others[least - 1 :]
    shown = world.pod_round(victim)
    told = world.pod_round(victim, without=kept)  # To the victim: those who will survive have left.
    orders, lie = world.orders(shown), world.orders(told)
    for user in everybody(shown):
        world.upload(user, lie[victim] if user == victim and victim in lie else orders[user])
    survivors = [user for user in everybody(shown) if user not in hidden and user in world.uploads]
    if victim not in world.uploads:
        return Reading(0, refusal_of(world.refusals))
    tags = {user: world.tags_of(told if user == victim else shown, user) for user in survivors}
    holders = [user for user in survivors if user != victim]
    answers = collect(world, shown, survivors, holders, tags)
    secrets = world.secrets(shown, answers, survivors)
    seeds = {user: secret for user, secret in secrets.items() if user in survivors}
    masks = {user: secret for user, secret in secrets.items() if user not in survivors}
    return Reading(world.read(told, [victim], seeds, masks, shown.packages), refusal_of(world.refusals))


def reflected_tags(setting: Setting) -> Reading:
    """The same, with each holder's own tags for the victim handed back to it as the victim's."""
    return _lie_about_one(setting, reflect=True)


def withheld_tags(setting: Setting) -> Reading:
    """The same, with no tag of the victim at all."""
    return _lie_about_one(setting, reflect=False)


def _lie_about_one(setting: Setting, reflect: bool) -> Reading:
    world = World(setting)
    victim = world.victim
    committee = world.committee_of(victim)
    least = world.params.survivors_of(len(committee))
    others = [user for user in committee if user != victim]
    kept, hidden = others[: least - 1], others[least - 1 :]
    shown, told = world.pod_round(victim), world.pod_round(victim, without=kept)
    orders, lie = world.orders(shown), world.orders(told)
    for user in everybody(shown):
        world.upload(user, lie.get(victim, orders[victim]) if user == victim else orders[user])
    if victim not in world.uploads:
        return Reading(0, refusal_of(world.refusals))
    survivors = [user for user in everybody(shown) if user not in hidden and user in world.uploads]
    tags = {user: world.tags_of(shown, user) for user in survivors if user != victim}
    if reflect:
        tags[victim] = {user: tags[user][victim] for user in tags if victim in tags[user]}
    answers = collect(world, shown, survivors, [user for user in survivors if user != victim], tags)
    secrets = world.secrets(shown, answers, survivors)
    seeds = {user: secret for user, secret in secrets.items() if user in survivors}
    masks = {user: secret for user, secret in secrets.items() if user not in survivors}
    return Reading(world.read(told, [victim], seeds, masks, shown.packages), refusal_of(world.refusals))


def own_mask_keys(setting: Setting) -> Reading:
    """The server puts mask keys of its own for all peers of the victim into everybody's order."""
    world = World(setting)
    victim = world.victim
    peers = [user for user in world.committee_of(victim) if user != victim]
    epoch = world.pod_of(victim).epoch
    secrets, heads = {}, {}
    for user in peers:
        secrets[user] = SharedSecret(world.rng.bytes(16))
        heads[user] = public_key(mask_private(epoch, 1, user, secrets[user])) + bytes(32)
    honest, forged = world.pod_round(victim), world.pod_round(victim, heads=heads)
    orders = world.orders(forged)
    for user in everybody(honest):
        world.upload(user, orders[user])
    if victim not in world.uploads:
        return Reading(0, refusal_of(world.refusals))
    survivors = [user for user in everybody(forged) if user in world.uploads]
    tags = {user: world.tags_of(forged, user) for user in survivors}
    answers = collect(world, forged, survivors, survivors, tags)
    seeds = world.secrets(forged, answers, survivors)
    return Reading(world.read(forged, [victim], seeds, secrets), refusal_of(world.refusals))


def two_survivor_sets(setting: Setting) -> Reading:
    """Attack 6: different holders are told different survivors, so that more members' mask secrets come together."""
    world = World(setting)
    victim = world.victim
    committee = world.committee_of(victim)
    shown = world.pod_round(victim)
    orders = world.orders(shown)
    for user in everybody(shown):
        world.upload(user, orders[user])
    everyone = everybody(shown)
    tags = {user: world.tags_of(shown, user) for user in everyone}
    spare = len(committee) - world.params.survivors_of(len(committee))
    others = [user for user in committee if user != victim]
    answers_by_set: dict[frozenset[int], dict[int, Unmask]] = {}
    for holder, dropped in _told(everyone, others, spare, shown.epoch.threshold).items():
        survivors = [user for user in everyone if user not in dropped]
        confirm(world, shown, survivors, [holder])
        answer = world.unmask(holder, world.unmask_request(shown, holder, survivors, tags, {}))
        if answer is not None:
            answers_by_set.setdefault(dropped, {})[holder] = answer
    seeds, masks = _pooled(shown, answers_by_set)
    group = [user for user in committee if user in seeds and user not in masks]
    if not group or len(group) >= world.params.survivors_of(len(committee)):
        return Reading(0, refusal_of(world.refusals))
    return Reading(world.read(shown, group, seeds, masks), refusal_of(world.refusals))


def _told(holders: list[int], others: list[int], spare: int, threshold: int) -> dict[int, frozenset[int]]:
    """Return whom each holder is told to have dropped out, such that as many as possible can be taken away.

    A holder believes `spare` of them at most, and none that it is itself; each of those that are to go must be called
    dropped by `threshold` holders.
    """
    for count in range(min(len(others), len(holders) * spare // threshold), 0, -1):
        gone, turn = others[:count], 0
        told: dict[int, frozenset[int]] = {}
        for holder in holders:
            for _ in gone:  # The next stretch of those that are to go, without the holder itself.
                dropped = frozenset(gone[(turn * spare + step) % count] for step in range(min(spare, count)))
                turn += 1
                if holder not in dropped:
                    told[holder] = dropped
                    break
        if all(sum(user in dropped for dropped in told.values()) >= threshold for user in gone):
            return told
    return {}


def _pooled(
    shown: PodRound, answers_by_set: dict[frozenset[int], dict[int, Unmask]]
) -> tuple[dict[int, SharedSecret], dict[int, SharedSecret]]:
    """Restore both kinds of secrets from answers about different sets of survivors."""
    pod = shown.epoch.pod
    kinds: tuple[dict[int, dict[int, bytes]], dict[int, dict[int, bytes]]] = ({}, {})
    for dropped, answers in answers_by_set.items():
        for holder, message in answers.items():
            owners = decode_users(message.owners, len(pod)).tolist()
            for spot, place in enumerate(owners):
                owner = int(pod.users[place])
                share = message.shares[spot * shamir.SHARE_SIZE : (spot + 1) * shamir.SHARE_SIZE]
                kinds[owner in dropped].setdefault(owner, {})[pod.place[holder]] = share
    found: list[dict[int, SharedSecret]] = []
    for shares in kinds:
        restored = {}
        for owner, held in shares.items():
            if len(held) < shown.epoch.threshold:
                continue
            places = sorted(held)[: shown.epoch.threshold]
            elements = shamir.decode_shares(b"".join(held[place] for place in places))
            assert elements is not None  # noqa: S101
            (secret,) = shamir.combine(elements.reshape(1, -1, shamir.LIMBS), tuple(places))
            if secret is not None:
                restored[owner] = SharedSecret(secret)
        found.append(restored)
    return found[0], found[1]


ATTACKS = [
    Attack(
        "other-members",
        "One user is told that some of its committee have left; then its remaining peers are declared dropped.",
        "Users who were shown different members never end in a sum that opens one of them.",
        other_members,
        without_tags,
    ),
    Attack(
        "reflected-tags",
        "The same, and every holder gets its own tag back as the victim's.",
        "A tag counts only from its sender to its receiver.",
        reflected_tags,
        without_tags,
    ),
    Attack(
        "withheld-tags",
        "The same, without any tag of the victim.",
        "A survivor without a valid tag keeps its whole committee closed.",
        withheld_tags,
        without_tags,
    ),
    Attack(
        "own-mask-keys",
        "The server puts mask keys of its own for all peers of one user into everybody's order.",
        "A user uploads only if its own keys stand in the order exactly as it dealt them.",
        own_mask_keys,
        without_own_head,
    ),
    Attack(
        "two-survivor-sets",
        "Different holders are told different survivors, until the mask secrets of nearly a whole committee are open.",
        "With CONFIRM, different survivor sets for different users open nothing.",
        two_survivor_sets,
        without_confirmations,
        promised=("authenticated",),
    ),
]
