"""Malicious users: one costs its group one round at most, is named, and the rounds after that succeed without it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import numpy as np
import pytest

from protocol.rounds import Run, flipped, small, tampered, tampered_by_user
from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.secrets import Secret, SecretShares
from sparsesecagg.errors import SparseSecAggError, TooLittleOpened
from sparsesecagg.protocol import Result, Server, Stage
from sparsesecagg.protocol.epoch import KeyPackage
from sparsesecagg.protocol.messages import (
    Unmask,
    Upload,
    decode_client_message,
    decode_users,
    encode,
    encode_users,
    pieces,
)

USERS, THRESHOLD = 10, 7
BAD = 4
"""Who is malicious where one is."""
OTHERS = tuple(user for user in range(USERS) if user != BAD)

Change = Callable[[int, bytes], bytes]
"""What becomes of a user's message."""


def honest(user: int, data: bytes) -> bytes:
    return data


def play(run: Run, upload: Change = honest, unmask: Change = honest, silent: Collection[int] = ()) -> Result | None:
    """Run a round in which messages are changed; return its result, None if it failed with a typed error."""
    run.begin()
    try:
        for stage, change in ((Stage.UPLOAD, upload), (Stage.UNMASK, unmask)):
            assert run.server.stage is stage
            for user in run.inbox:
                if not (stage is Stage.UNMASK and user in silent):
                    run.server.receive(None, change(user, run.answer(user)))
            if stage is Stage.UPLOAD:
                run.share_keys()
            run.inbox = run.server.close_stage()
    except SparseSecAggError:
        assert run.server.result is None
        return None
    return run.result


def is_right(run: Run, result: Result | None, users: Collection[int]) -> bool:
    """Whether the result is the sum of just these users."""
    assert result is not None
    truth = sum(np.clip(run.updates[user], -1, 1).astype(np.float64) for user in users)
    return result.survivors == tuple(sorted(users)) and bool(np.abs(result.sum() - truth).max() < 1e-5)


def ends_well(run: Run, named: Collection[int] = (BAD,)) -> None:
    """From now on rounds succeed without those who were named, and with everybody else."""
    assert set(run.server.excluded) == set(named)
    left = [user for user in range(USERS) if user not in named]
    for _ in range(2):
        assert is_right(run, play(run), left)
    assert set(run.server.excluded) == set(named)
    assert not set(run.inbox) & set(named)


@pytest.fixture(params=[False, True], ids=["plain", "roster"])
def run(request: pytest.FixtureRequest) -> Run:
    return Run(small(clients=USERS, dim=12, threshold=THRESHOLD, roster=request.param))


def with_bad_tags(run: Run, sender: int, receivers: Collection[int]) -> Change:
    """Let one user send rubbish as its tags for some others."""

    def change(user: int, data: bytes) -> bytes:
        if user != sender:
            return data
        message, partners = decode_client_message(data), run.partners(sender)
        assert isinstance(message, Upload)
        tags = pieces(message.tags, len(partners), TAG_SIZE, "")
        made = [bytes(TAG_SIZE) if each in receivers else tag for each, tag in zip(partners, tags, strict=True)]
        return tampered_by_user(data, tags=b"".join(made))

    return change


class TestBadTags:
    def test_tags_that_are_bad_for_everybody_cost_nothing_but_their_sender(self, run: Run) -> None:
        """The holders count it as dropped, and its upload comes out of the sum again."""
        result = play(run, with_bad_tags(run, BAD, OTHERS))
        assert is_right(run, result, OTHERS)
        assert result is not None
        assert result.excluded == {BAD: "9 users found no valid tag or share of it"}
        ends_well(run)

    @pytest.mark.parametrize("bad", range(1, USERS))
    def test_tags_that_are_bad_for_some_cost_one_round_at_most(self, run: Run, bad: int) -> None:
        """Where neither of its secrets has seven shares the round is lost: three to six bad tags of nine."""
        result = play(run, with_bad_tags(run, BAD, OTHERS[:bad]), silent=[BAD])
        if 3 <= bad <= 6:
            assert result is None
        else:
            assert is_right(run, result, OTHERS if bad > 6 else range(USERS))
        if bad == 1:  # One accuser may collude itself.
            assert not run.server.excluded
            assert is_right(run, play(run), range(USERS))
        else:
            ends_well(run)

    def test_accusers_are_counted_over_all_rounds(self, run: Run) -> None:
        """One bad tag in each round, for another holder each time."""
        assert is_right(run, play(run, with_bad_tags(run, BAD, OTHERS[:1])), range(USERS))
        assert is_right(run, play(run, with_bad_tags(run, BAD, OTHERS[:1])), range(USERS))
        assert not run.server.excluded, "the same accuser counts once"
        assert is_right(run, play(run, with_bad_tags(run, BAD, OTHERS[1:2])), range(USERS))
        ends_well(run)

    def test_who_was_excluded_stays_so_when_the_server_is_started_again(self, run: Run) -> None:
        assert play(run, with_bad_tags(run, BAD, OTHERS[:4])) is None
        run.server = Server.restore(run.server.save(), run.server.roster)
        ends_well(run)

    def test_accusers_are_remembered_when_the_server_is_started_again(self, run: Run) -> None:
        play(run, with_bad_tags(run, BAD, OTHERS[:1]))
        run.server = Server.restore(run.server.save(), run.server.roster)
        play(run, with_bad_tags(run, BAD, OTHERS[1:2]))
        ends_well(run)


class TestFraming:
    """Colluding users say that an honest one has sent no valid tag."""

    @staticmethod
    def accusing(run: Run, accusers: Collection[int], *victims: int) -> Change:
        """Claim not to have counted the victims; the share is of the kind that fits the claim, and false."""

        def change(user: int, data: bytes) -> bytes:
            if user not in accusers:
                return data
            message = decode_client_message(data)
            assert isinstance(message, Unmask)
            size, away = len(run.updates), {run.index(victim) for victim in victims}
            left = [each for each in decode_users(message.survivors, size).tolist() if each not in away]
            return tampered_by_user(data, survivors=encode_users(np.array(left), size))

        return change

    def test_as_many_as_may_collude_are_not_believed(self, run: Run) -> None:
        assert run.params.accusers == 1
        for _ in range(3):
            result = play(run, unmask=self.accusing(run, [0], BAD))
            assert is_right(run, result, range(USERS))
            assert not run.server.excluded

    def test_with_more_colluders_planned_more_are_not_believed(self) -> None:
        run = Run(small(clients=USERS, dim=12, threshold=THRESHOLD, colluding=0.3))
        for _ in range(2):
            assert is_right(run, play(run, unmask=self.accusing(run, [0, 1, 2], BAD)), range(USERS))
        assert not run.server.excluded

    def test_who_accuses_nearly_everybody_is_not_believed(self, run: Run) -> None:
        """Two users got a header with the shares of somebody else: none opens, and nobody else is to blame."""
        run.begin()
        shares = run.header_of(BAD).shares
        for user in (0, 1):
            run.inbox[user] = tampered(run.inbox[user], shares=shares)
        run.step().run_to(Stage.SHARE_KEYS)
        assert is_right(run, run.result, range(USERS))
        assert not run.server.excluded

    def test_control_one_more_accuser_excludes(self, run: Run) -> None:
        play(run, unmask=self.accusing(run, [0, 1], BAD))
        assert set(run.server.excluded) == {BAD}

    @pytest.mark.parametrize("roster", [False, True])
    def test_in_a_large_group_no_more_are_excluded_than_may_collude(self, roster: bool) -> None:
        """34 answer and 31 shares are needed: whom four do not count looks as if it had dealt false shares."""
        run = Run(small(clients=40, dim=12, threshold=31, colluding=0.1, roster=roster))
        assert run.params.accusers == 4
        assert play(run, unmask=self.accusing(run, range(4), *range(4, 24)), silent=range(34, 40)) is None
        assert not run.server.excluded
        for round_number in range(3):  # A few at a time, who might as well have dealt false shares.
            victims, silent = (
                range(4 + 3 * round_number, 7 + 3 * round_number),
                range(34 + len(run.server.excluded), 40),
            )
            assert play(run, unmask=self.accusing(run, range(4), *victims), silent=silent) is None
        assert len(run.server.excluded) == run.params.colluders == 4
        left = [user for user in range(40) if user not in run.server.excluded]
        assert is_right(run, play(run), left)

    @pytest.mark.parametrize("silent", [1, 2, 3])
    def test_a_false_share_does_not_make_its_owner_look_false(self, run: Run, silent: int) -> None:
        """Not even where no share is to spare: then the round is lost, and nobody is named."""
        away = [user for user in OTHERS if user != 0][:silent]
        result = play(run, unmask=with_false_shares([0], owners=[BAD]), silent=away)
        assert (result is None) == (silent == 3)
        assert not run.server.excluded
        assert is_right(run, play(run), range(USERS))

    def test_a_false_share_of_one_owner_names_neither_holder_nor_owner(self, run: Run) -> None:
        """It can't be told whether the holder sent, or the owner dealt, what is false."""
        result = play(run, unmask=with_false_shares([0], owners=[BAD]))
        assert is_right(run, result, range(USERS))
        assert result is not None
        assert result.false_shares == {0: (BAD,)}
        assert not run.server.excluded


def with_false_shares(holders: Collection[int], owners: Collection[int] = range(USERS)) -> Change:
    """Let some holders change their shares of the secrets of some owners."""

    def change(user: int, data: bytes) -> bytes:
        if user not in holders:
            return data
        message = decode_client_message(data)
        assert isinstance(message, Unmask)
        known = decode_users(message.owners, USERS).tolist()
        shares = pieces(message.shares, len(known), shamir.SHARE_SIZE, "")
        for row, owner in enumerate(known):
            if owner in owners:
                rng = np.random.default_rng([user, owner])
                shares[row] = rng.integers(0, 2**31 - 1, shamir.LIMBS, np.uint32).tobytes()
        return tampered_by_user(data, shares=b"".join(shares))

    return change


class TestFalseShares:
    def test_one_false_holder_costs_nothing_and_is_named(self, run: Run) -> None:
        result = play(run, unmask=with_false_shares([BAD]))
        assert is_right(run, result, range(USERS))
        assert result is not None
        assert result.excluded == {BAD: "sent false shares"}
        assert result.false_shares == {BAD: tuple(range(USERS))}
        ends_well(run)

    @pytest.mark.parametrize("liars", [2, 3])
    def test_up_to_all_spare_shares_may_be_false(self, run: Run, liars: int) -> None:
        """Ten holders, seven needed: secrets are recognised as genuine, so those to leave out are searched for."""
        result = play(run, unmask=with_false_shares(range(liars)))
        assert is_right(run, result, range(USERS))
        assert result is not None
        assert set(result.false_shares) <= set(range(liars)), "nobody else is named"
        assert set(run.server.excluded) == set(result.false_shares)
        assert is_right(run, play(run), [user for user in range(USERS) if user not in run.server.excluded])

    def test_a_false_holder_is_named_where_shares_are_missing_too(self, run: Run) -> None:
        result = play(run, unmask=with_false_shares([BAD]), silent=[0, 1])
        assert is_right(run, result, range(USERS))
        ends_well(run)

    def test_without_a_share_to_spare_the_round_is_lost_and_nobody_can_be_named(self, run: Run) -> None:
        """The next round has one to spare, and names the liar."""
        assert play(run, unmask=with_false_shares([BAD]), silent=[0, 1, 2]) is None
        assert not run.server.excluded
        assert is_right(run, play(run, unmask=with_false_shares([BAD])), range(USERS))
        ends_well(run)


def wrong_mask_key(run: Run, package: KeyPackage) -> KeyPackage:
    """Publish a mask key that does not follow from the secret that is shared, and mask with another."""
    return resent(package, mask_key=flipped(package.mask_key, 3))


def wrong_commitment(run: Run, package: KeyPackage) -> KeyPackage:
    """Commit to another private seed than the one that is shared."""
    return resent(package, commitment=bytes(32))


def resent(package: KeyPackage, **changes: bytes) -> KeyPackage:
    message = encode(msgspec.structs.replace(decode_client_message(package.for_upload().message), **changes))
    unspent = msgspec.structs.replace(package.for_upload(), message=message)
    return msgspec.structs.replace(package, unspent=unspent, mask_key=changes.get("mask_key", package.mask_key))


def resealed(run: Run, package: KeyPackage, plain: Callable[[int, bytes], bytes]) -> KeyPackage:
    """Seal other shares than those that were dealt."""
    client, number = run.clients[BAD], 1
    secrets = client._ciphers(number)
    message = decode_client_message(package.for_upload().message)
    parts = pieces(message.shares, USERS - 1, 48, "")  # type: ignore[union-attr]
    sealed = []
    for holder, part in zip(sorted(secrets), parts, strict=True):
        opened = sealing.unseal(secrets[holder], BAD, holder, part)
        assert opened is not None
        sealed.append(sealing.seal(secrets[holder], BAD, holder, plain(holder, opened)))
    return resent(package, shares=b"".join(sealed))


def shares_that_do_not_open(run: Run, package: KeyPackage) -> KeyPackage:
    return resent(package, shares=bytes(48 * (USERS - 1)))


def shares_outside_the_field(run: Run, package: KeyPackage) -> KeyPackage:
    return resealed(run, package, lambda holder, plain: b"\xff" * len(plain))


def shares_of_other_secrets(run: Run, package: KeyPackage) -> KeyPackage:
    """Deal shares of two other secrets, which fit each other."""
    holders = np.arange(USERS)
    made = shamir.split([b"a" * 16, b"b" * 16], holders, THRESHOLD, Secret(b"r" * 32))
    rows = np.ascontiguousarray(made, "<u4").reshape(USERS, -1)
    other = resealed(run, package, lambda holder, plain: rows[holder].tobytes())
    return msgspec.structs.replace(other, own_shares=SecretShares(rows[BAD].tobytes()))


def shares_without_a_polynomial(run: Run, package: KeyPackage) -> KeyPackage:
    """Deal every holder something of its own."""
    return resealed(run, package, lambda holder, plain: bytes([holder + 1, 0, 0, 0]) * (len(plain) // 4))


def few_shares_that_open(run: Run, package: KeyPackage) -> KeyPackage:
    """Deal five holders of nine what opens; with the own share of their owner that is one too few."""
    message = decode_client_message(package.for_upload().message)
    parts = pieces(message.shares, USERS - 1, 48, "")  # type: ignore[union-attr]
    return resent(package, shares=b"".join([*parts[:5], *(bytes(48) for _ in parts[5:])]))


WRONG = [
    wrong_mask_key,
    wrong_commitment,
    shares_that_do_not_open,
    shares_outside_the_field,
    shares_of_other_secrets,
    shares_without_a_polynomial,
    few_shares_that_open,
]


def with_wrong_package(wrong: Callable[[Run, KeyPackage], KeyPackage], roster: bool = False) -> Run:
    """Return a run in which one user has sent a wrong key package for the first round, and a right one after that."""
    run = Run(small(clients=USERS, dim=12, threshold=THRESHOLD, roster=roster), late=[BAD])
    client = run.clients[BAD]
    client.share_keys(0)
    state = client._state
    package = wrong(run, state.packages[1])
    client._journal.state = state.with_changes(packages={**state.packages, 1: package})
    for each in client._state.packages.values():
        run.server.receive(None, each.for_upload().message)
    return run


class TestWrongPackages:
    @pytest.mark.parametrize("wrong", [each for each in WRONG if each is not wrong_mask_key])
    def test_a_wrong_package_costs_one_round_and_its_owner_is_named(
        self, wrong: Callable[[Run, KeyPackage], KeyPackage]
    ) -> None:
        run = with_wrong_package(wrong)
        assert play(run) is None
        ends_well(run)

    @pytest.mark.parametrize("wrong", [each for each in WRONG if each is not wrong_commitment])
    def test_also_if_its_owner_drops_out(self, wrong: Callable[[Run, KeyPackage], KeyPackage]) -> None:
        """Then it is the mask secret that can't be restored."""
        run = with_wrong_package(wrong)
        run.begin()
        with pytest.raises(TooLittleOpened, match=f"the secrets of user {BAD} can't be restored"):
            run.step(silent=[BAD]).run_to(Stage.SHARE_KEYS)
        run.share_keys()
        ends_well(run)

    def test_one_bad_tag_does_not_hide_a_wrong_package(self) -> None:
        run = with_wrong_package(shares_without_a_polynomial)
        assert play(run, with_bad_tags(run, BAD, OTHERS[:1])) is None
        ends_well(run)

    def test_a_wrong_package_is_not_noticed_where_it_is_not_needed(self) -> None:
        """Nobody needs the shares of who was left out of the header."""
        run = with_wrong_package(shares_of_other_secrets)
        run.server.excluded[BAD] = "left out by hand"
        ends_well(run)

    def test_a_mask_key_that_does_not_match_is_like_rubbish_that_is_uploaded(self) -> None:
        """Masks do not cancel. What opens is out of range; nobody can be named, and the next round is right."""
        run = with_wrong_package(wrong_mask_key)
        assert play(run) is None
        assert not run.server.excluded
        assert is_right(run, play(run), range(USERS))

    @pytest.mark.parametrize(("clients", "threshold"), [(4, 3), (5, 4), (6, 4), (30, 20)])
    def test_groups_of_other_sizes(self, clients: int, threshold: int) -> None:
        """In the smallest there is one share to spare."""
        run = Run(small(clients=clients, dim=12, threshold=threshold), late=[0])
        client = run.clients[0]
        client.share_keys(0)
        package = resent(client._state.packages[1], commitment=bytes(32))
        client._journal.state = client._state.with_changes(packages={**client._state.packages, 1: package})
        for each in client._state.packages.values():
            run.server.receive(None, each.for_upload().message)
        assert play(run) is None
        assert set(run.server.excluded) == {0}
        assert is_right(run, play(run), range(1, clients))
