"""A lying server reads nobody. Each attack has a control: with one check taken out it reads its victim, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from protocol.lying import Integers, Liar
from protocol.rounds import Run, grouped, small, with_roster
from sparsesecagg.crypto import sealing
from sparsesecagg.errors import AlreadyAnswered, InvalidKey, PolicyViolation
from sparsesecagg.protocol import Parameters, Stage, acceptance, release
from sparsesecagg.protocol.messages import HEAD_SIZE, Upload, decode_client_message, pieces

SETTINGS: dict[str, Callable[[], Parameters]] = {
    "one committee": lambda: small(clients=7, min_survivors=4),
    "one committee, pairwise": lambda: small(clients=7, pattern="pairwise", min_survivors=4),
    "two pods of two committees": lambda: grouped(clients=20, min_survivors=3),
    "min_survivors 2": lambda: grouped(clients=18, committees=3, pods=1, min_survivors=2),
    "six slices of eight": lambda: grouped(clients=25, dim=60, committees=8, pods=2, served=6, min_survivors=2),
    "with a roster": lambda: with_roster(grouped, clients=20, pods=1, min_survivors=3),
    "with a roster, without CONFIRM": lambda: with_roster(grouped, clients=20, pods=1, min_survivors=3, confirm=False),
    "with a roster, two pods": lambda: with_roster(
        grouped, clients=30, committees=6, pods=2, served=2, min_survivors=2, max_weight=1
    ),
}


@pytest.fixture(params=list(SETTINGS.values()), ids=list(SETTINGS))
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param())


def no_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out the check of tags over the order."""
    monkeypatch.setattr(release, "shown_survivors", lambda order, place, message, survivors, tags: survivors)


def no_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take sender and receiver out of the tags."""
    made = sealing.tags

    def tags(secrets: Any, purpose: str, sender: int, receivers: Any, statement: bytes) -> list[bytes]:
        return [
            made([secret], purpose, min(sender, receiver), [max(sender, receiver)], statement)[0]
            for secret, receiver in zip(secrets, receivers, strict=True)
        ]

    monkeypatch.setattr(sealing, "tags", tags)


def no_own_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let users take any head for their own."""
    checked = acceptance._checked_heads

    def lax(order: Any, message: Any, place: int, own: int, head: bytes) -> dict[int, bytes]:
        members = order.committee(own).tolist()
        shown = dict(zip(members, pieces(message.heads, len(members), HEAD_SIZE, "heads"), strict=True))
        return checked(order, message, place, own, shown[place])

    monkeypatch.setattr(acceptance, "_checked_heads", lax)


# One user is told something else


def told_of_other_members(run: Run) -> Liar:
    """Attack 1. The victim is told that most of its committee left, and masks with so few that they can be dropped."""
    liar = Liar(run, victim=run.committees()[0][0])
    liar.show_members(liar.victim, liar.peers[liar.least - 1 :])
    liar.collect_uploads()
    return liar


def survivors_of_attack_1(liar: Liar) -> dict[int, list[int]]:
    """Everybody else is told that the few who mask with the victim dropped out."""
    dropped = liar.peers[: liar.least - 1]
    survivors = [user for user in liar.users if user not in dropped]
    return {user: survivors for user in survivors if user != liar.victim}


def read_by_attack_1(liar: Liar) -> Integers | None:
    """The victim's values: its private seed and its peers' mask secrets take all masks away."""
    dropped = liar.peers[: liar.least - 1]
    secrets = {user: liar.secret_of(user) for user in (liar.victim, *dropped)}
    if any(secret is None for secret in secrets.values()):
        return None
    found = {user: secret for user, secret in secrets.items() if secret is not None}
    pairs = [liar.agreed(peer, liar.victim, found[peer]) for peer in dropped]
    return liar.open([liar.victim], {liar.victim: found[liar.victim]}, pairs)


def told_of_other_heads(run: Run) -> Liar:
    """The victim is told mask keys of the server's own for all its peers."""
    liar = Liar(run, victim=run.committees()[-1][1])
    liar.show_own_keys(liar.victim, liar.peers)
    liar.collect_uploads()
    return liar


def everybody_survives(liar: Liar) -> dict[int, list[int]]:
    return {user: liar.users for user in liar.users if user != liar.victim}


def read_by_own_keys(liar: Liar) -> Integers | None:
    """The victim's values: the server knows all its pair masks, and needs the private seed only."""
    seed = liar.secret_of(liar.victim)
    if seed is None:
        return None
    return liar.open([liar.victim], {liar.victim: seed}, [liar.known_pair(peer) for peer in liar.peers])


Attack = tuple[Callable[[Run], Liar], Callable[[Liar], dict[int, list[int]]], Callable[[Liar], Integers | None]]
TOLD_APART: dict[str, Attack] = {
    "other members": (told_of_other_members, survivors_of_attack_1, read_by_attack_1),
    "other heads": (told_of_other_heads, everybody_survives, read_by_own_keys),
}


def forged_tags(liar: Liar, how: str) -> dict[int, dict[int, bytes]]:
    """What the server shows holders as the victim's tag, by holder."""
    others = [user for user in liar.users if user != liar.victim]
    if how == "own":  # As the victim made it, over its own order.
        return {}
    if how == "zeros":
        return {user: {liar.victim: bytes(sealing.TAG_SIZE)} for user in others}
    if how == "reflected":  # The holder's own tag for the victim.
        return {user: {liar.victim: liar.tag(user, liar.victim)} for user in others}
    # A tag that another survivor made for this holder, which is valid under that name.
    return {user: {liar.victim: liar.tag(next(each for each in others if each != user), user)} for user in others}


def possible(run: Run, attack: Attack) -> bool:
    """Whether so few peers can be named that they can be dropped: only beside other committees, whose members hold."""
    return attack is not TOLD_APART["other members"] or run.params.committees > run.params.pods


@pytest.mark.parametrize("attack", TOLD_APART.values(), ids=TOLD_APART.keys())
def test_who_is_told_something_else_is_opened_by_nobody(run: Run, attack: Attack) -> None:
    """No share of its committee leaves, of either kind, whatever the server shows as the victim's tag."""
    begin, survivors, read = attack
    liar = begin(run)
    assert liar.victim in liar.uploads
    for how in ("own", "zeros", "reflected", "another user's"):
        run.clients = {user: run.copied(user) for user in run.clients}
        liar.released = {}
        liar.unmask(survivors(liar), forged_tags(liar, how))
        assert all(not liar.shares_of(user) for user in (liar.victim, *liar.peers))
        assert read(liar) is None


@pytest.mark.parametrize(("weaken", "tags"), [(no_tags, "zeros"), (no_direction, "reflected")])
@pytest.mark.parametrize("attack", TOLD_APART.values(), ids=TOLD_APART.keys())
def test_without_tags_or_names_in_them_who_is_told_something_else_is_read(
    run: Run, attack: Attack, weaken: Callable[[pytest.MonkeyPatch], None], tags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not possible(run, attack):
        return
    weaken(monkeypatch)
    begin, survivors, read = attack
    liar = begin(run)
    liar.unmask(survivors(liar), forged_tags(liar, tags))
    found = read(liar)
    assert found is not None
    assert liar.truth.any()
    assert np.array_equal(found, liar.truth)


def uploaded(run: Run, user: int, order: bytes) -> Upload:
    """Return what a client uploads."""
    message = decode_client_message(run.clients[user].upload(order, run.updates[user]))
    assert isinstance(message, Upload)
    return message


@pytest.mark.parametrize("attack", TOLD_APART.values(), ids=TOLD_APART.keys())
def test_a_tag_of_an_earlier_round_does_not_help(run: Run, attack: Attack) -> None:
    begin, survivors, read = attack
    victims = {run.committees()[0][0], run.committees()[-1][1]}
    earlier = {
        victim: uploaded(run, victim, data).tags for victim, data in run.begin().inbox.items() if victim in victims
    }
    run.server._stage = Stage.DONE
    run.deal()
    liar = begin(run)
    partners = [user for user in liar.users if user != liar.victim]
    old = dict(zip(partners, pieces(earlier[liar.victim], len(partners), sealing.TAG_SIZE, "tags"), strict=True))
    liar.unmask(survivors(liar), {user: {liar.victim: old[user]} for user in partners})
    assert all(not liar.shares_of(user) for user in (liar.victim, *liar.peers))
    assert read(liar) is None


def test_a_holder_that_was_told_something_else_itself_releases_nothing_of_the_others(run: Run) -> None:
    """Seen from the victim, everybody else is the one without a valid tag."""
    liar = told_of_other_heads(run)
    liar.unmask({liar.victim: liar.users})
    assert isinstance(liar.refusals[liar.victim], PolicyViolation)
    assert liar.victim not in liar.released


# Everybody is told the same lie


def own_keys_for_everybody(run: Run) -> Liar:
    """The server puts mask keys of its own for all peers of one user into everybody's order."""
    liar = Liar(run, victim=run.committees()[0][-1])
    liar.show_own_keys(liar.victim, liar.peers)
    liar.same_for_all(liar.victim)
    liar.collect_uploads()
    return liar


def test_keys_of_the_servers_own_in_everybodys_order_are_refused_by_their_owners(run: Run) -> None:
    """So the victim is alone in its committee, and no share of it leaves, whoever is declared to survive."""
    liar = own_keys_for_everybody(run)
    assert set(liar.refusals) == set(liar.peers)
    assert all(isinstance(refusal, InvalidKey) for refusal in liar.refusals.values())
    others = [user for user in liar.users if user not in liar.peers]
    everybody = dict.fromkeys(others, liar.users)
    told = dict.fromkeys(others, others) if run.params.committees > run.params.pods else everybody
    liar.unmask(told)
    assert all(not liar.shares_of(user) for user in (liar.victim, *liar.peers))
    assert read_by_own_keys(liar) is None


def test_if_owners_did_not_look_for_their_heads_the_victim_would_be_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_own_head(monkeypatch)
    liar = own_keys_for_everybody(run)
    assert not liar.refusals
    liar.unmask(dict.fromkeys(liar.users, liar.users))
    assert np.array_equal(read_by_own_keys(liar), liar.truth)  # type: ignore[arg-type]


# A round is repeated


def read_by_both_secrets(first: Liar, second: Liar) -> Integers | None:
    """The victim's values, if the private seed was released in one try and the mask secret in the other."""
    seed, mask = first.secret_of(first.victim), second.secret_of(second.victim)
    if seed is None or mask is None:
        return None
    pairs = [first.agreed(first.victim, peer, mask)._replace(user=first.victim, peer=peer) for peer in first.peers]
    return first.open([first.victim], {first.victim: seed}, pairs)


def test_a_round_that_is_restarted_under_another_order_is_refused(run: Run) -> None:
    """Private seed in one try, mask secret in the other: together they would open the victim's upload."""
    liar = Liar(run, victim=run.committees()[0][0])
    liar.collect_uploads()
    liar.unmask(dict.fromkeys(liar.users, liar.users))
    assert liar.secret_of(liar.victim) is not None
    again = liar.another_try()
    again.uploads = {}
    bystander = next((user for user in liar.users if user not in (liar.victim, *liar.peers)), None)
    for user in liar.users:
        if bystander is None:
            again.show_own_keys(user, [each for each in liar.peers if each != user][:1])
        elif user != bystander:
            again.show_members(user, [bystander])
    again.collect_uploads()
    assert set(again.refusals) == set(liar.users)
    assert all(isinstance(refusal, AlreadyAnswered) for refusal in again.refusals.values())


def test_clients_that_forget_what_they_answered_are_read(run: Run) -> None:
    """The control: the same clients without their ledgers, asked once for seeds and once for mask secrets."""
    liar = Liar(run, victim=run.committees()[0][0])
    liar.collect_uploads()
    forgetful = {user: run.copied(user) for user in liar.users}
    liar.unmask(dict.fromkeys(liar.users, liar.users))
    again = liar.another_try()
    run.clients = {**run.clients, **forgetful}
    survivors = [user for user in liar.users if user != liar.victim]
    again.unmask(dict.fromkeys(survivors, survivors))
    found = read_by_both_secrets(liar, again)
    assert np.array_equal(found, liar.truth)  # type: ignore[arg-type]


def test_the_same_clients_with_their_ledgers_are_not(run: Run) -> None:
    liar = Liar(run, victim=run.committees()[0][0])
    liar.collect_uploads()
    liar.unmask(dict.fromkeys(liar.users, liar.users))
    survivors = [user for user in liar.users if user != liar.victim]
    released, liar.released = liar.released, {}
    liar.refusals.clear()
    if run.params.confirm:
        liar.run.params = run.params.replace(confirm=False)
    liar.unmask(dict.fromkeys(survivors, survivors))
    assert not liar.released
    assert set(liar.refusals) == set(survivors)
    assert released
