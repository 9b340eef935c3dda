"""The rule of release: per committee, all or nothing, and only for survivors that show the holder's own order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from protocol.lying import Liar
from protocol.rounds import Run, flipped, grouped, lenient, small, tampered, with_roster
from protocol.test_life_of_a_round import refuses
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.secrets import RoundSecret
from sparsesecagg.errors import MalformedMessage, PolicyViolation
from sparsesecagg.protocol import Stage, release
from sparsesecagg.protocol.messages import (
    Unmask,
    UnmaskRequest,
    decode_client_message,
    decode_server_message,
    decode_users,
    encode_users,
    pieces,
)
from sparsesecagg.protocol.tags import CONFIRM_TAG, ORDER_TAG, Tags, confirmed


@pytest.fixture
def run() -> Run:
    return Run(grouped(clients=20, pods=1)).run_to(Stage.UNMASK)


def request_of(run: Run, user: int) -> UnmaskRequest:
    message = decode_server_message(run.inbox[user])
    assert isinstance(message, UnmaskRequest)
    return message


def partners(run: Run, user: int) -> list[int]:
    return [each for each in run.pod(user).users.tolist() if each != user]


def with_survivors(run: Run, user: int, survivors: Iterable[int]) -> bytes:
    """Return the request with other survivors, and the tags that belong to them."""
    told = set(survivors)
    tags = dict(zip(partners(run, user), pieces(request_of(run, user).tags, 19, TAG_SIZE, ""), strict=True))
    kept = b"".join(tag for sender, tag in tags.items() if sender in told)
    return tampered(run.inbox[user], survivors=run.bitmap(told), tags=kept)


def with_tag(run: Run, user: int, sender: int, tag: bytes) -> bytes:
    """Return the request with another tag of one survivor."""
    others = partners(run, user)
    tags = pieces(request_of(run, user).tags, len(others), TAG_SIZE, "")
    tags[others.index(sender)] = tag
    return tampered(run.inbox[user], tags=b"".join(tags))


def released(run: Run, user: int, data: bytes) -> dict[int, bytes]:
    """Return the shares that a user gives away, by owner."""
    answer = decode_client_message(run.clients[user].unmask(data))
    assert isinstance(answer, Unmask)
    pod = run.pod(user)
    owners = pod.users[decode_users(answer.owners, len(pod))].tolist()
    return dict(zip(owners, pieces(answer.shares, len(owners), 20, ""), strict=True))


class TestTags:
    def test_one_bad_tag_withholds_its_committee_and_no_other(self, run: Run) -> None:
        for user in range(20):
            victim = next(each for each in partners(run, user) if each not in run.committee(user))
            found = released(run, user, with_tag(run, user, victim, bytes(TAG_SIZE)))
            assert set(found) == set(range(20)) - set(run.committee(victim))

    @pytest.mark.parametrize("bit", [0, 7])
    def test_every_byte_of_a_tag_counts(self, run: Run, bit: int) -> None:
        sender = partners(run, 0)[0]
        genuine = pieces(request_of(run, 0).tags, 19, TAG_SIZE, "")[0]
        found = released(run, 0, with_tag(run, 0, sender, flipped(genuine, bit)))
        assert set(found) == set(range(20)) - set(run.committee(sender))

    def test_the_own_committee_is_withheld_like_any_other(self, run: Run) -> None:
        peer = next(user for user in run.committee(0) if user != 0)
        found = released(run, 0, with_tag(run, 0, peer, bytes(TAG_SIZE)))
        assert set(found) == set(range(20)) - set(run.committee(0))

    def test_if_no_committee_is_left_the_client_refuses(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="no committee has enough survivors that show the same order"):
            run.answer(0, tampered(run.inbox[0], tags=bytes(19 * TAG_SIZE)))

    @pytest.mark.parametrize("change", [-1, 1, -TAG_SIZE, TAG_SIZE])
    def test_tags_of_the_wrong_length_are_refused(self, run: Run, change: int) -> None:
        """A survivor without a tag makes them too short."""
        tags = request_of(run, 0).tags
        wrong = tags[:change] if change < 0 else tags + bytes(change)
        refuses(run, 0, tampered(run.inbox[0], tags=wrong), MalformedMessage)
        run.answer(0)

    def test_a_tag_names_purpose_sender_receiver_and_statement(self) -> None:
        users = np.array([3, 5, 9])
        secrets = {1: RoundSecret(b"1" * 32), 2: RoundSecret(b"2" * 32)}
        tags = Tags(users, 0, secrets)
        other = Tags(users, 1, {0: secrets[1]})
        made = tags.make(ORDER_TAG, [1], b"s" * 32)
        assert len(made) == TAG_SIZE == 8
        assert other.valid(ORDER_TAG, 0, b"s" * 32, made)
        assert not other.valid(CONFIRM_TAG, 0, b"s" * 32, made)
        assert not other.valid(ORDER_TAG, 0, b"t" * 32, made)
        assert not tags.valid(ORDER_TAG, 1, b"s" * 32, made), "reflected"
        assert not tags.valid(ORDER_TAG, 2, b"s" * 32, made)
        assert not tags.valid(ORDER_TAG, 0, b"s" * 32, made), "nobody shares a secret with itself"
        assert not other.valid(ORDER_TAG, 0, b"s" * 32, made[:-1])

    def test_confirmations_name_order_and_survivors(self) -> None:
        assert len({confirmed(order, who) for order in (b"a" * 32, b"b" * 32) for who in (b"\1", b"\2")}) == 4


class TestSurvivors:
    def test_who_survived_is_asked_for_its_seed_and_who_did_not_for_its_mask_secret(self, run: Run) -> None:
        """One kind per owner: the other one is what it gives to other survivors only."""
        dropped = next(user for user in run.committee(0) if user != 0)
        twin = run.copied(0)
        everybody = released(run, 0, run.inbox[0])
        run.clients[0] = twin
        without = released(run, 0, with_survivors(run, 0, set(range(20)) - {dropped}))
        assert set(everybody) == set(without) == set(range(20))
        assert [user for user in everybody if everybody[user] != without[user]] == [dropped]

    def test_being_declared_dropped_and_asked_all_the_same_is_refused(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="counts this user as dropped"):
            run.answer(0, with_survivors(run, 0, range(1, 20)))

    def test_survivors_below_the_threshold_of_the_pod_are_refused(self, run: Run) -> None:
        """Eleven of twenty restore a secret."""
        few = [0, *partners(run, 0)[:9]]
        twin = run.copied(0)
        with pytest.raises(PolicyViolation, match="only 10 users survive, 11 are needed"):
            run.answer(0, with_survivors(run, 0, few))
        run.clients[0] = twin
        run.answer(0, with_survivors(run, 0, [0, *partners(run, 0)[:10]]))

    def test_a_survivor_whose_package_is_not_used_is_refused(self) -> None:
        run = Run(grouped(clients=20, pods=1), late=[7]).run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation, match="whose package is not used"):
            run.answer(0, tampered(run.inbox[0], survivors=run.bitmap(range(20))))

    @pytest.mark.parametrize(("least", "own"), [(2, 1), (3, 1), (1, 3), (5, 1)])
    def test_a_committee_below_the_least_gets_nothing_of_either_kind(self, least: int, own: int) -> None:
        """The run's minimum or the client's own, whichever is more; others are opened."""
        params = grouped(clients=20, pods=1, min_survivors=least)
        run = Run(params, policy=lenient(min_survivors=own)).run_to(Stage.UNMASK)
        committee = next(each for each in run.committees() if 0 not in each)
        needed = max(least, own)
        dropped = committee[: 5 - needed + 1]
        twin = run.copied(0)
        found = released(run, 0, with_survivors(run, 0, set(range(20)) - set(dropped)))
        assert set(found) == set(range(20)) - set(committee)
        run.clients[0] = twin
        enough = released(run, 0, with_survivors(run, 0, set(range(20)) - set(dropped[1:])))
        assert set(enough) == set(range(20))

    def test_a_committee_of_which_nobody_survived_gets_nothing(self, run: Run) -> None:
        committee = next(each for each in run.committees() if 0 not in each)
        found = released(run, 0, with_survivors(run, 0, set(range(20)) - set(committee)))
        assert set(found) == set(range(20)) - set(committee)

    @pytest.mark.parametrize("survivors", [b"", b"\xff\xff", b"\xff\xff\xff", b"\xff\xff\x0f\x00"])
    def test_a_set_of_another_pod_is_refused(self, run: Run, survivors: bytes) -> None:
        refuses(run, 0, tampered(run.inbox[0], survivors=survivors), MalformedMessage)

    def test_in_a_sparse_graph_those_that_share_no_secret_count_as_shown(self) -> None:
        run = Run(small(clients=12, neighbours=4, min_survivors=6)).run_to(Stage.UNMASK)
        assert len(request_of(run, 0).tags) == 4 * TAG_SIZE
        found = released(run, 0, run.inbox[0])
        assert len(found) == 5
        other = Run(small(clients=12, neighbours=4, min_survivors=6)).run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation, match="no committee"):
            other.answer(0, tampered(other.inbox[0], tags=flipped(request_of(other, 0).tags)))


class TestConfirm:
    """With CONFIRM nothing is released unless a threshold of users was told the same survivors."""

    @pytest.fixture
    def run(self) -> Run:
        return Run(with_roster(small, clients=7)).run_to(Stage.CONFIRM)

    def test_survivors_other_than_the_confirmed_ones_are_refused(self, run: Run) -> None:
        run.run_to(Stage.UNMASK)
        six = run.bitmap(set(range(7)) - {partners(run, 0)[0]})
        request = request_of(run, 0)
        with pytest.raises(PolicyViolation, match="not those that this user has confirmed"):
            run.answer(0, tampered(run.inbox[0], survivors=six, tags=request.tags[TAG_SIZE:]))

    @pytest.mark.parametrize("left", [3, 4])
    def test_a_threshold_of_confirmations_is_needed_the_own_included(self, run: Run, left: int) -> None:
        """Seven users, five of them: four of others will do, three will not."""
        run.run_to(Stage.UNMASK)
        assert run.params.threshold == 5
        request = request_of(run, 0)
        pod = run.pod(0)
        confirmers = decode_users(request.confirmers, 7)[:left]
        changed = tampered(
            run.inbox[0],
            confirmers=encode_users(confirmers, len(pod)),
            confirmations=request.confirmations[: left * TAG_SIZE],
        )
        if left == 4:
            run.answer(0, changed)
            return
        with pytest.raises(PolicyViolation, match="only 4 users have confirmed the same survivors, 5 are needed"):
            run.answer(0, changed)

    def test_a_confirmation_that_does_not_fit_counts_for_nothing(self, run: Run) -> None:
        run.run_to(Stage.UNMASK)
        request = request_of(run, 0)
        false = flipped(flipped(request.confirmations, 0), TAG_SIZE)
        twin = run.copied(0)
        assert released(run, 0, tampered(run.inbox[0], confirmations=false))
        run.clients[0] = twin
        worse = flipped(false, 2 * TAG_SIZE)
        with pytest.raises(PolicyViolation, match="only 4 users"):
            run.answer(0, tampered(run.inbox[0], confirmations=worse))

    def test_nobody_confirms_for_oneself_twice(self, run: Run) -> None:
        """The server names the holder itself as a confirmer, with whatever tag."""
        run.run_to(Stage.UNMASK)
        request = request_of(run, 0)
        made = dict(
            zip(
                decode_users(request.confirmers, 7).tolist(),
                pieces(request.confirmations, 6, TAG_SIZE, ""),
                strict=True,
            )
        )
        named = {place: made[place] for place in list(made)[:3]} | {run.place(0): bytes(TAG_SIZE)}
        changed = tampered(
            run.inbox[0],
            confirmers=encode_users(np.array(sorted(named)), 7),
            confirmations=b"".join(named[place] for place in sorted(named)),
        )
        with pytest.raises(PolicyViolation, match="only 4 users"):
            run.answer(0, changed)

    def test_tags_over_the_order_are_no_confirmations(self, run: Run) -> None:
        run.run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation, match="only 1 users"):
            run.answer(0, tampered(run.inbox[0], confirmations=request_of(run, 0).tags))

    @pytest.mark.parametrize("change", [-1, 1, -TAG_SIZE, TAG_SIZE])
    def test_confirmations_of_the_wrong_length_are_refused(self, run: Run, change: int) -> None:
        run.run_to(Stage.UNMASK)
        made = request_of(run, 0).confirmations
        wrong = made[:change] if change < 0 else made + bytes(change)
        refuses(run, 0, tampered(run.inbox[0], confirmations=wrong), MalformedMessage)
        run.answer(0)

    def test_without_any_confirmation_nothing_is_released(self, run: Run) -> None:
        run.run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation, match="only 1 users"):
            run.answer(0, tampered(run.inbox[0], confirmers=b"", confirmations=b""))

    @pytest.mark.parametrize("survivors", [b"\x3e", b"\x07"])
    def test_survivors_that_can_not_be_are_not_confirmed(self, run: Run, survivors: bytes) -> None:
        """Without this user, or too few."""
        user = int(run.pod(0).users[0])
        refuses(run, user, tampered(run.inbox[user], survivors=survivors), PolicyViolation)
        run.answer(user)

    def test_only_survivors_are_sent_a_confirmation(self, run: Run) -> None:
        user = int(run.pod(0).users[0])
        answer = decode_client_message(run.answer(user, tampered(run.inbox[user], survivors=b"\x3f")))
        assert len(answer.tags) == 5 * TAG_SIZE  # type: ignore[union-attr]

    def test_two_sets_of_survivors_open_nothing(self, run: Run) -> None:
        """Half of the users are told that one dropped out; nobody collects enough confirmations."""
        run.server._stage = Stage.DONE
        run.deal()
        liar = Liar(run, victim=0)
        liar.collect_uploads()
        six = [user for user in range(7) if user != 6]
        liar.unmask({user: six if user < 4 else list(range(7)) for user in range(6)})
        assert not liar.released
        assert all("have confirmed the same survivors" in str(each) for each in liar.refusals.values())


def told_apart(liar: Liar) -> dict[int, list[int]]:
    """Tell each of nine holders another five survivors, so that everybody but two users is dropped by five of them."""
    target, rest = liar.users[:2], liar.users[2:]
    told = {}
    for number, holder in enumerate(rest):
        gone = {rest[(number + step) % 7] for step in (1, 2, 3, 4)}
        told[holder] = [user for user in liar.users if user not in gone]
    told[target[0]] = [user for user in liar.users if user not in rest[:4]]
    told[target[1]] = [user for user in liar.users if user not in rest[3:]]
    return told


def sum_of_two(liar: Liar) -> np.ndarray | None:
    """The sum of two users out of nine with five survivors declared to each, if the shares are there."""
    target, rest = liar.users[:2], liar.users[2:]
    told = told_apart(liar)
    secrets = {}
    for user in liar.users:
        holders = [holder for holder in told if (user in told[holder]) == (user in target)]
        found = liar.secret_of(user, holders)
        if found is None:
            return None
        secrets[user] = found
    pairs = [
        pair._replace(user=survivor, peer=gone)
        for gone in rest
        for survivor in target
        for pair in [liar.agreed(gone, survivor, secrets[gone])]
    ]
    return liar.open(target, {user: secrets[user] for user in target}, pairs)


def contributions(liar: Liar) -> np.ndarray:
    """The plain sum of the two: quantised again with the same randomness is not possible, so within one step each."""
    values = np.sum([liar.run.updates[user].astype(np.float64) for user in liar.users[:2]], axis=0)
    return np.asarray(values * liar.run.params.quantizer.scale)


@pytest.mark.parametrize("confirm", [True, False])
def test_what_confirm_is_for(confirm: bool) -> None:
    """Nine users, t = s = 5. Without CONFIRM a sum of two can be opened, as the planner says: 5 − ⌊4·4/5⌋."""
    run = Run(small(clients=9, min_survivors=5, threshold=5, confirm=confirm, clip=10.0))
    liar = Liar(run, victim=run.pod(0).users.tolist()[0])
    liar.collect_uploads()
    liar.unmask(told_apart(liar))
    found = sum_of_two(liar)
    if confirm:
        assert found is None
        assert not liar.released
    else:
        assert found is not None
        assert np.abs(found - contributions(liar)).max() <= 2


def test_confirmations_are_checked_by_the_client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same server, and clients that do not look."""
    monkeypatch.setattr(release, "require_confirmations", lambda *_: None)
    run = Run(small(clients=9, min_survivors=5, threshold=5, confirm=True, clip=10.0))
    liar = Liar(run, victim=run.pod(0).users.tolist()[0])
    liar.collect_uploads()
    liar.unmask(told_apart(liar))
    found = sum_of_two(liar)
    assert found is not None
    assert np.abs(found - contributions(liar)).max() <= 2
