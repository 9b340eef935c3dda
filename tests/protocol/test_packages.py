"""Key packages: made once, ahead of their round, and sent again only as the same bytes."""

from __future__ import annotations

import pytest

from protocol.rounds import Run, flipped, grouped, small, tampered, tampered_by_user
from reference.x25519 import low_order_points
from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidKey,
    MalformedMessage,
    PolicyViolation,
    ProtocolError,
    UnknownSender,
    WrongBinding,
    WrongRound,
)
from sparsesecagg.protocol import Stage
from sparsesecagg.protocol.epoch import AHEAD, make_package, mask_private, open_pair, seed_commitment
from sparsesecagg.protocol.ledger import LARGEST_SKIP
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    ShareKeys,
    Unmask,
    decode_client_message,
    decode_users,
    pieces,
)


def rounds_of(packages: list[bytes]) -> list[int]:
    return [decode_client_message(package).round_number for package in packages]


class TestMaking:
    def test_two_rounds_ahead_and_each_once(self) -> None:
        client = Run(small(), late=range(5)).clients[0]
        assert AHEAD == 2
        assert rounds_of(client.share_keys(0)) == [1, 2]
        assert client.share_keys(0) == []
        assert rounds_of(client.share_keys(1)) == [3]
        assert rounds_of(client.share_keys(3)) == [4, 5]
        assert client.share_keys(2) == [], "an earlier round asks for nothing new"

    def test_again_means_the_same_bytes(self) -> None:
        run = Run(small(), late=range(5))
        client = run.clients[0]
        first = client.share_keys(0)
        before = client.save()
        assert client.share_keys(0, again=True) == first
        assert client.save() == before
        run.clients[0] = run.restored(0)
        assert run.clients[0].share_keys(0, again=True) == first
        third = run.clients[0].share_keys(1)
        assert run.clients[0].share_keys(1, again=True) == [first[1], *third]

    def test_what_was_used_is_not_dealt_again(self) -> None:
        """Not by the client that uploaded, nor after UNMASK, when all of it is erased."""
        run = Run(small()).run_to(Stage.UNMASK)
        client = run.clients[0]
        run.answer(0)
        assert client.share_keys(0) == []
        assert client.share_keys(0, again=True) == client.share_keys(1, again=True)
        assert rounds_of(client.share_keys(1, again=True)) == [2, 3]

    def test_every_package_is_fresh(self) -> None:
        run = Run(small(), late=range(5))
        sent = [decode_client_message(each) for client in run.clients.values() for each in client.share_keys(0)]
        made = [message for message in sent if isinstance(message, ShareKeys)]
        assert len({each.mask_key for each in made}) == len({each.commitment for each in made}) == 10

    def test_a_server_may_skip_rounds_but_not_over_any_number_of_them(self) -> None:
        """The secrets of pairs are hashed once per round."""
        run = Run(small())
        client = run.clients[0]
        before = client.save()
        start = client._state.ratchet_round
        assert LARGEST_SKIP == 4096
        for far in (start + LARGEST_SKIP - AHEAD + 1, 1 << 62):
            with pytest.raises(PolicyViolation, match="skips more than 4096"):
                client.share_keys(far)
        assert client.save() == before
        assert rounds_of(client.share_keys(start + LARGEST_SKIP - AHEAD)) == [
            start + LARGEST_SKIP - 1,
            start + LARGEST_SKIP,
        ]

    def test_pairs_agree_after_any_skip(self) -> None:
        """Ratchets go by the number of the round, never by messages."""
        run = Run(small())
        run.clients[0].share_keys(1)
        for number in (2, 3, 4, 7):
            run.clients[0].share_keys(number)
        run.clients[1].share_keys(7)
        for number in (8, 9):
            one, other = run.clients[0]._ciphers(number)[run.index(1)], run.clients[1]._ciphers(number)[run.index(0)]
            assert sealing.tag(one, 0, 1, b"") == sealing.tag(other, 0, 1, b"")
        assert run.clients[0]._state.secrets[8] != run.clients[0]._state.secrets[9]

    def test_a_package_is_bound_to_its_round_its_owner_and_its_holder(self) -> None:
        """Shares open for the holder, in the round, from the owner that made them; for nobody else."""
        run = Run(small())
        owner, holder = run.clients[0], run.clients[1]
        package = decode_client_message(owner._state.packages[1].for_upload().message)
        assert isinstance(package, ShareKeys)
        epoch, index, at = owner._joined()[0], run.index(0), run.index(1)
        sealed = dict(zip(epoch.partners(index).tolist(), pieces(package.shares, 4, SEALED_SIZE, ""), strict=True))
        secret = holder._ciphers(1)[index]
        assert open_pair(epoch, index, at, sealed[at], secret) is not None
        assert open_pair(epoch, at, index, sealed[at], secret) is None, "reflected"
        assert open_pair(epoch, index, at, sealed[at], holder._ciphers(2)[index]) is None, "another round"
        other = next(each for each in sealed if each != at)
        assert open_pair(epoch, index, at, sealed[other], secret) is None, "another holder's"
        assert open_pair(epoch, index, at, flipped(sealed[at]), secret) is None

    def test_run_round_and_user_are_in_key_and_commitment(self) -> None:
        """So that a guess of the 16 bytes tests one target."""
        epoch = Run(small()).clients[0]._joined()[0]
        other = Run(small(), seed=1).clients[0]._joined()[0]
        secret = SharedSecret(b"s" * 16)
        cases = [(epoch, 1, 0), (epoch, 2, 0), (epoch, 1, 1), (other, 1, 0)]
        assert len({mask_private(*case, secret).reveal() for case in cases}) == 4
        assert len({seed_commitment(*case, secret) for case in cases}) == 4

    def test_the_two_secrets_have_nothing_in_common(self) -> None:
        run = Run(small())
        package = run.clients[0]._state.packages[1]
        assert package.for_upload().mask_secret.reveal() != package.for_upload().private_seed.reveal()
        drawn: list[int] = []

        def entropy(size: int) -> bytes:
            drawn.append(size)
            return bytes([len(drawn)]) * size

        make_package(run.clients[0]._joined()[0], 1, run.index(0), run.clients[0]._ciphers(1), entropy)
        assert drawn == [16, 16, 32]

    def test_sizes(self) -> None:
        """A sealed pair of shares in 56 bytes at most, an opened share in 20."""
        assert SEALED_SIZE == 48
        run = Run(small()).run_to(Stage.UNMASK)
        message = decode_client_message(run.answer(0))
        assert isinstance(message, Unmask)
        assert len(message.shares) == 5 * 20
        assert sealing.TAG_SIZE == 8


class TestReceiving:
    @pytest.fixture
    def run(self) -> Run:
        """Nobody has sent a package yet."""
        return Run(small(), late=range(5))

    def refused(self, run: Run, data: bytes, error: type[ProtocolError]) -> None:
        before = {number: dict(held) for number, held in run.server._epoch.groups[0].packages.items() if held}
        sizes = {stage: dict(each) for stage, each in run.server.sent_bytes.items()}
        with pytest.raises(error):
            run.server.receive(None, data)
        after = {number: dict(held) for number, held in run.server._epoch.groups[0].packages.items() if held}
        assert (after, run.server.sent_bytes) == (before, sizes)

    def test_a_second_package_for_a_round_is_refused(self, run: Run) -> None:
        first, _ = run.clients[0].share_keys(0)
        run.server.receive(None, first)
        self.refused(run, first, DuplicateMessage)
        self.refused(run, tampered_by_user(first, shares=bytes(4 * SEALED_SIZE)), DuplicateMessage)

    def test_a_package_for_a_round_that_has_begun_or_is_far_off_is_refused(self, run: Run) -> None:
        first, second = run.clients[0].share_keys(0)
        for number in (0, 3, 9):
            self.refused(run, tampered_by_user(second, round_number=number), WrongRound)
        run.share_keys([0])
        run.begin()
        self.refused(run, first, WrongRound)
        assert run.server.receive(None, second) == 0

    def test_packages_travel_at_any_stage(self, run: Run) -> None:
        late = run.clients[0].share_keys(0)[1]
        run.share_keys([0])
        run.begin().step()
        assert run.server.stage is Stage.UNMASK
        assert run.server.receive(None, late) == 0

    def test_another_epoch_and_other_senders_are_refused(self, run: Run) -> None:
        first, _ = run.clients[0].share_keys(0)
        self.refused(run, tampered_by_user(first, binding=bytes(8)), WrongBinding)
        for stranger in (5, 77):
            self.refused(run, tampered_by_user(first, number=stranger.to_bytes(4, "little")), UnknownSender)
        with pytest.raises(UnknownSender):
            run.server.receive(1, first)
        run.server.receive(0, first)

    def test_who_has_not_joined_sends_no_package(self) -> None:
        run = Run(small(), absent=[4])
        package = run.clients[0]._state.packages[1].for_upload().message
        self.refused(run, tampered_by_user(package, number=b"\4\0\0\0"), UnknownSender)
        early = Run(small(), set_up=False)
        with pytest.raises(UnknownSender):
            early.server.receive(None, package)

    @pytest.mark.parametrize("wrong", [b"", bytes(SEALED_SIZE), bytes(5 * SEALED_SIZE), bytes(4 * SEALED_SIZE - 1)])
    def test_shares_for_too_few_or_too_many_holders_are_refused(self, run: Run, wrong: bytes) -> None:
        first, _ = run.clients[0].share_keys(0)
        self.refused(run, tampered_by_user(first, shares=wrong), MalformedMessage)

    @pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
    def test_a_low_order_mask_key_costs_only_its_owner(self, run: Run, point: bytes) -> None:
        """Passed on, it would make its whole group refuse the header."""
        first, _ = run.clients[0].share_keys(0)
        self.refused(run, tampered_by_user(first, mask_key=point), InvalidKey)
        run.server.receive(None, first)

    def test_a_mask_key_that_occurs_twice_is_refused(self, run: Run) -> None:
        first, other = run.clients[0].share_keys(0)[0], run.clients[1].share_keys(0)[0]
        run.server.receive(None, first)
        key = decode_client_message(first).mask_key  # type: ignore[union-attr]
        self.refused(run, tampered_by_user(other, mask_key=key), InvalidKey)

    def test_sizes_are_counted_in_the_round_that_they_arrive_in(self, run: Run) -> None:
        first, second = run.clients[0].share_keys(0)
        run.server.receive(None, first)
        run.server.receive(None, second)
        assert run.server.sent_bytes["SHARE_KEYS"] == {0: len(first) + len(second)}
        run.share_keys([0])
        run.begin()
        assert run.server.sent_bytes["SHARE_KEYS"] == {}


class TestMissing:
    """Who misses one round takes part in the next; who misses two sits out one."""

    def test_one_round(self) -> None:
        run = Run(small())
        assert run.round(silent=[0]).survivors == (1, 2, 3, 4)
        assert run.round().survivors == (0, 1, 2, 3, 4)
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_two_rounds(self) -> None:
        run = Run(small())
        run.round(silent=[0])
        run.round(silent=[0])
        third = run.round()
        assert third.survivors == (1, 2, 3, 4)
        assert third.dropped["SHARE_KEYS"] == 1
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_a_user_without_a_package_gets_no_header(self) -> None:
        run = Run(small(), late=[0]).begin()
        assert set(run.inbox) == {1, 2, 3, 4}
        run.step()
        assert run.run_to(Stage.SHARE_KEYS).result.dropped == {"SHARE_KEYS": 1, "UPLOAD": 0, "UNMASK": 0}

    def test_a_header_for_a_round_that_no_package_was_made_for_is_refused(self) -> None:
        run = Run(small(), late=[0]).begin()
        before = run.clients[0].save()
        with pytest.raises(ProtocolError, match="no key package was sent"):
            run.answer(0, run.inbox[1])
        assert run.clients[0].save() == before


def test_a_share_that_does_not_open_is_left_out_and_the_round_goes_on() -> None:
    """One user seals rubbish for another: the others restore its secret without that holder."""
    run = Run(small()).begin()
    message = run.header_of(0)
    run.inbox[0] = tampered(run.inbox[0], shares=flipped(message.shares))
    run.step()
    answer = decode_client_message(run.answer(0))
    assert isinstance(answer, Unmask)
    partners = run.partners(0)
    assert set(decode_users(answer.owners, 5).tolist()) == set(range(5)) - {partners[0]}
    assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)


def test_sealed_numbers_outside_the_field_are_left_out_as_well() -> None:
    """The owner may seal what it likes: it opens, and still is no share."""
    run = Run(small()).begin()
    owner = run.clients[1]
    rubbish = sealing.seal(owner._ciphers(1)[run.index(0)], 1, 0, b"\xff" * 40)
    message = run.header_of(0)
    partners = run.partners(0)
    parts = pieces(message.shares, 4, SEALED_SIZE, "")
    parts[partners.index(run.index(1))] = rubbish
    run.inbox[0] = tampered(run.inbox[0], shares=b"".join(parts))
    run.step()
    answer = decode_client_message(run.answer(0))
    assert isinstance(answer, Unmask)
    assert set(decode_users(answer.owners, 5).tolist()) == set(range(5)) - {run.index(1)}


def test_packages_of_groups_do_not_meet() -> None:
    run = Run(grouped())
    sizes = {len(client._state.packages[1].for_upload().message) for client in run.clients.values()}
    assert len(sizes) == 1
    assert all(len(client._ciphers(1)) == 5 for client in run.clients.values())
