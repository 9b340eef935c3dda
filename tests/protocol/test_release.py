"""The rule of release: t own survivors or nothing; of these the private seeds, of other members the mask secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from protocol.malicious_server import MaliciousServer
from protocol.rounds import Run, flipped, small, tampered
from protocol.test_life_of_a_round import refuses
from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.kdf import names
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.shamir import SHARE_SIZE
from sparsesecagg.errors import AlreadyAnswered, InvalidKey, MalformedMessage, PolicyViolation
from sparsesecagg.protocol import Stage, checks
from sparsesecagg.protocol.epoch import Header, Tags
from sparsesecagg.protocol.messages import Unmask, decode_client_message, decode_users, pieces

USERS, THRESHOLD = 10, 7


@pytest.fixture
def run() -> Run:
    return Run(small(clients=USERS, dim=8, threshold=THRESHOLD)).run_to(Stage.UNMASK)


def released(run: Run, user: int, data: bytes) -> tuple[dict[int, bytes], set[int]]:
    """Return the shares that a user gives away, by owner, and those that it counts as survivors."""
    answer = decode_client_message(run.clients[user].unmask(data))
    assert isinstance(answer, Unmask)
    owners = decode_users(answer.owners, run.params.clients).tolist()
    shares = dict(zip(owners, pieces(answer.shares, len(owners), SHARE_SIZE, ""), strict=True))
    return shares, set(decode_users(answer.survivors, run.params.clients).tolist())


def kinds(run: Run, user: int, data: bytes) -> tuple[set[int], set[int]]:
    """Return of whom a user releases the private seed, and of whom the mask secret."""
    secrets = run.clients[user]._ciphers(1)
    package = run.clients[user]._state.packages[1]
    message, header = run.clients[user]._accepted()
    held = checks.held_shares(header, user, message, package, secrets)
    shares, _ = released(run, user, data)
    seeds = {owner for owner, share in shares.items() if share == held[owner][SHARE_SIZE:]}
    masks = {owner for owner, share in shares.items() if share == held[owner][:SHARE_SIZE]}
    return seeds, masks


class TestRule:
    @pytest.mark.parametrize("left", range(THRESHOLD, USERS + 1))
    def test_one_share_per_member_of_the_kind_that_fits(self, run: Run, left: int) -> None:
        seeds, masks = kinds(run, 0, run.told(0, range(left)))
        assert (seeds, masks) == (set(range(left)), set(range(left, USERS)))

    def test_who_has_no_valid_tag_counts_as_dropped(self, run: Run) -> None:
        """Declared or not: it is the same for a holder."""
        seeds, masks = kinds(run, 0, run.told(0, range(USERS), bad=[3, 9]))
        assert (seeds, masks) == (set(range(USERS)) - {3, 9}, {3, 9})

    @pytest.mark.parametrize(("told", "bad"), [(6, 0), (7, 1), (10, 4), (10, 9)])
    def test_below_the_threshold_nothing_is_released(self, run: Run, told: int, bad: int) -> None:
        """Whether too few are declared or too few tags are valid; and it is used up."""
        near = told - bad
        data = run.told(0, range(told), bad=range(told - bad, told))
        with pytest.raises(PolicyViolation, match=f"{near} survivors have valid tags for this round, 7 are needed"):
            run.answer(0, data)
        with pytest.raises(AlreadyAnswered):
            run.answer(0)

    def test_a_threshold_of_own_survivors_is_enough(self, run: Run) -> None:
        seeds, _ = kinds(run, 0, run.told(0, range(10), bad=[7, 8, 9]))
        assert len(seeds) == THRESHOLD

    def test_being_declared_dropped_and_asked_all_the_same_is_refused(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="this user was declared dropped"):
            run.answer(0, run.told(0, range(1, USERS)))

    def test_a_survivor_that_is_not_a_member_is_refused(self) -> None:
        run = Run(small(clients=USERS, threshold=THRESHOLD), late=[7]).run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation, match="a declared survivor is not part of the round"):
            run.answer(0, tampered(run.inbox[0], survivors=run.bitmap(range(USERS))))

    @pytest.mark.parametrize("survivors", [b"", b"\xff", b"\xff\xff", b"\xff\x03\x00"])
    def test_a_set_of_another_group_is_refused(self, run: Run, survivors: bytes) -> None:
        refuses(run, 0, tampered(run.inbox[0], survivors=survivors), MalformedMessage)
        run.answer(0)

    @pytest.mark.parametrize("change", [-1, 1, -TAG_SIZE, TAG_SIZE])
    def test_there_is_one_tag_per_other_survivor(self, run: Run, change: int) -> None:
        tags = run.request_of(0).tags
        refuses(
            run, 0, tampered(run.inbox[0], tags=tags[:change] if change < 0 else tags + bytes(change)), MalformedMessage
        )
        run.answer(0)

    def test_the_answer_says_who_was_counted(self, run: Run) -> None:
        _, counted = released(run, 0, run.told(0, range(9), bad=[4]))
        assert counted == set(range(9)) - {4}


class TestSparseGraph:
    """SecAgg+: a user shares secrets with its neighbours only, who are those whose tags it can check."""

    @pytest.fixture
    def run(self) -> Run:
        return Run(small(clients=12, neighbours=4, threshold=3)).run_to(Stage.UNMASK)

    def test_shares_are_those_of_the_neighbours(self, run: Run) -> None:
        near = run.clients[0]._joined()[0].partners(0).tolist()
        assert len(run.request_of(0).tags) == 4 * TAG_SIZE
        shares, _ = released(run, 0, run.inbox[0])
        assert set(shares) == {0, *near}

    def test_a_threshold_of_neighbours_must_show_the_header(self, run: Run) -> None:
        tags = pieces(run.request_of(0).tags, 4, TAG_SIZE, "")
        with pytest.raises(PolicyViolation, match="2 survivors have valid tags for this round, 3 are needed"):
            run.answer(0, tampered(run.inbox[0], tags=b"".join([tags[0], *[bytes(TAG_SIZE)] * 3])))

    def test_half_of_all_must_be_joined_by_masks(self, run: Run) -> None:
        near = run.clients[0]._joined()[0].partners(0).tolist()
        few = sorted([0, *near, *[user for user in range(12) if user and user not in near][:1]])
        with pytest.raises(PolicyViolation, match=r"masks join only \d of the survivors, 7 are needed"):
            run.answer(0, tampered(run.inbox[0], survivors=run.bitmap(few)))


class TestTags:
    @pytest.mark.parametrize("byte", range(TAG_SIZE))
    def test_every_byte_of_a_tag_counts(self, run: Run, byte: int) -> None:
        tags = run.request_of(0).tags
        _, counted = released(run, 0, tampered(run.inbox[0], tags=flipped(tags, byte)))
        assert counted == set(range(USERS)) - {1}

    def test_a_tag_names_sender_receiver_and_header(self) -> None:
        run = Run(small()).begin()
        header = Header(run.clients[0]._joined()[0], run.header_of(0))
        other = Header(header.epoch, replace(run.header_of(0), context=b"c" * 32))
        mine, yours = (Tags(header, user, run.clients[user]._ciphers(1)) for user in (0, 1))
        tag = mine.make([1])
        assert len(tag) == TAG_SIZE == 8
        assert yours.valid(0, tag)
        assert not mine.valid(1, tag), "reflected"
        assert not yours.valid(2, tag), "another sender"
        assert not Tags(header, 2, run.clients[2]._ciphers(1)).valid(0, tag), "another receiver"
        assert not Tags(other, 1, run.clients[1]._ciphers(1)).valid(0, tag), "another header"
        assert not Tags(header, 1, run.clients[1]._ciphers(2)).valid(0, tag), "another round"
        assert not mine.valid(0, tag), "nobody shares a secret with itself"
        assert not yours.valid(0, tag[:-1])


# Lies to real clients, each with a control: with one check taken out the server reads its victim, exactly


VICTIM = 0
Lie = Callable[[Run], MaliciousServer]


def told_of_few_members(run: Run) -> MaliciousServer:
    """Attack 1. The victim masks with so few that these can be dropped; everybody else is told that they did."""
    server = MaliciousServer(run)
    few = range(THRESHOLD)
    server.show_to(VICTIM, few)
    server.collect_uploads()
    told = [VICTIM, *range(THRESHOLD, USERS)]
    rest = {user: {*told, *range(1, 5)} for user in range(1, USERS)}
    server.unmask({user: {*survivors, user} for user, survivors in rest.items()})
    return server


def shown_keys_of_the_server(run: Run) -> MaliciousServer:
    """The victim is shown mask keys of the server's own for all its peers; the others release its private seed."""
    server = MaliciousServer(run)
    server.show_to(VICTIM, range(USERS), forged=range(1, USERS))
    server.collect_uploads()
    server.unmask({user: range(USERS) for user in range(1, USERS)})
    return server


def with_other_own_key(run: Run) -> MaliciousServer:
    """Everybody is shown keys of the server's own for all but the victim: one header, whose tags are valid."""
    server = MaliciousServer(run)
    for user in range(USERS):
        server.show_to(user, range(USERS), forged=range(1, USERS))
    server.collect_uploads()
    server.unmask({user: range(USERS) for user in range(USERS)})
    return server


def no_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out the check of tags over the header."""
    monkeypatch.setattr(Tags, "valid", lambda self, sender, tag: True)


def any_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let users take any mask key for their own."""
    checked = checks.check_header

    def lax(epoch: Any, index: int, message: Any, package: Any, context: bytes) -> None:
        shown = Header(epoch, message).mask_key[index]
        checked(epoch, index, message, replace(package, mask_key=shown), context)

    monkeypatch.setattr("sparsesecagg.protocol.checks.check_header", lax)


@pytest.fixture(params=[False, True], ids=["plain", "roster"])
def fresh(request: pytest.FixtureRequest) -> Run:
    return Run(small(clients=USERS, dim=8, threshold=THRESHOLD, roster=request.param))


def reads_the_victim(server: MaliciousServer) -> bool:
    return frozenset({VICTIM}) in server.readable()


@pytest.mark.parametrize(
    ("lie", "check"),
    [(shown_keys_of_the_server, no_tags), (with_other_own_key, any_own_key)],
)
def test_a_lie_reads_nobody_and_its_control_reads_the_victim(
    fresh: Run, monkeypatch: pytest.MonkeyPatch, lie: Lie, check: Callable[[pytest.MonkeyPatch], None]
) -> None:
    server = lie(fresh)
    assert not any(len(users) < 5 for users in server.readable()), "five honest users at least, with one colluding"
    assert not reads_the_victim(server)
    check(monkeypatch)
    twin = Run(fresh.params)
    assert reads_the_victim(lie(twin))


def test_own_keys_of_the_server_for_everybody_are_refused_by_everybody(fresh: Run) -> None:
    server = with_other_own_key(fresh)
    assert set(server.uploads) == {VICTIM}
    assert all(isinstance(refusal, InvalidKey) for user, refusal in server.refusals.items() if user != VICTIM)
    assert isinstance(server.refusals[VICTIM], PolicyViolation)


def test_a_victim_that_masks_with_few_is_not_read(fresh: Run) -> None:
    server = told_of_few_members(fresh)
    assert not reads_the_victim(server)
    assert VICTIM not in server.knowledge()[0], "nobody releases its private seed: its tags are over another header"


@pytest.mark.parametrize("stories", [1, 2, 3])
def test_two_stories_leave_five_honest_users_in_every_sum(fresh: Run, stories: int) -> None:
    """Each holder is told other survivors: whatever opens is one sum of at least T."""
    rng = np.random.default_rng(stories)
    server = MaliciousServer(fresh, colluding=[USERS - 1])
    server.collect_uploads()
    told: dict[int, Collection[int]] = {}
    for user in server.honest:
        others = [each for each in range(USERS - 1) if each != user]
        told[user] = {user, USERS - 1, *rng.choice(others, THRESHOLD - 2, replace=False).tolist()}
    server.unmask(told)
    assert all(len(users) >= 5 for users in server.readable())
    assert len(server.readable()) <= 1


def test_reflected_tags_do_not_count(fresh: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder's own tag, returned as somebody else's; control: tags that do not say who made them."""

    def reflected(run: Run) -> int:
        server = MaliciousServer(run)
        server.collect_uploads()
        monkeypatch.setattr(server, "tag", lambda sender, receiver: MaliciousServer.tag(server, receiver, sender))
        server.unmask({0: range(USERS)})
        return len(server._shares)

    assert reflected(fresh) == 0
    monkeypatch.setattr(sealing, "names", lambda one, other: names(min(one, other), max(one, other)))
    assert reflected(Run(fresh.params)) == USERS
