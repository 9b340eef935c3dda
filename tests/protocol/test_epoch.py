"""The epoch: keys are advertised once, groups are drawn, and every client checks what it is told before it joins."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from protocol.rounds import Run, flipped, grouped, identities, small, tampered, tampered_by_user, with_roster
from reference.x25519 import low_order_points
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.secrets import AgreedSecret
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidInput,
    InvalidKey,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    ThresholdNotMet,
    UnknownSender,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol import Client, Server, Stage, session_of
from sparsesecagg.protocol.draw_messages import DrawRequest, encode_draw
from sparsesecagg.protocol.draws import GroupDraw
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import EpochKeys, decode_server_message, encode, user_number


@pytest.fixture
def run() -> Run:
    """A run whose clients have not joined yet."""
    return Run(small(), set_up=False).step()


def refuses(run: Run, data: bytes, error: type[SparseSecAggError], match: str | None = None) -> None:
    """The client raises and joins by the genuine message all the same."""
    before = run.clients[0].save()
    with pytest.raises(error, match=match):
        run.clients[0].join(data)
    assert run.clients[0].save() == before


def keys_of(run: Run) -> bytes:
    message = decode_server_message(run.inbox[0])
    assert isinstance(message, EpochKeys)
    return message.keys


class TestJoin:
    def test_another_sealing_key_than_the_advertised_one_is_noticed(self, run: Run) -> None:
        refuses(
            run, tampered(run.inbox[0], keys=flipped(keys_of(run), 32 * run.place(0))), InvalidKey, "another sealing"
        )

    def test_a_key_that_occurs_twice_is_refused(self, run: Run) -> None:
        places = [place for place in range(5) if place != run.place(0)]
        keys = [keys_of(run)[32 * place : 32 * place + 32] for place in range(5)]
        keys[places[0]] = keys[places[1]]
        refuses(run, tampered(run.inbox[0], keys=b"".join(keys)), InvalidKey, "twice")

    @pytest.mark.parametrize("point", low_order_points()[:4], ids=bytes.hex)
    def test_a_low_order_point_is_refused(self, run: Run, point: bytes) -> None:
        place = 32 * ((run.place(0) + 1) % 5)
        changed = keys_of(run)[:place] + point + keys_of(run)[place + 32 :]
        refuses(run, tampered(run.inbox[0], keys=changed), InvalidKey, "unusable")

    def test_an_epoch_without_oneself_is_refused(self, run: Run) -> None:
        place = run.place(0)
        others = keys_of(run)[: 32 * place] + keys_of(run)[32 * place + 32 :]
        refuses(run, tampered(run.inbox[0], present=run.bitmap([1, 2, 3, 4]), keys=others), InvalidKey, "or none")

    def test_too_few_holders_are_refused(self, run: Run) -> None:
        users = run.pod(0).users.tolist()
        two = [0, 1]
        keys = b"".join(keys_of(run)[32 * users.index(user) :][:32] for user in two)
        refuses(run, tampered(run.inbox[0], present=run.bitmap(two), keys=keys), PolicyViolation, "2 users would hold")

    def test_a_threshold_of_holders_is_enough(self, run: Run) -> None:
        users = run.pod(0).users.tolist()
        three = [0, 1, 2]
        keys = b"".join(keys_of(run)[32 * users.index(user) :][:32] for user in three)
        run.clients[0].join(tampered(run.inbox[0], present=run.bitmap(three), keys=keys))

    @pytest.mark.parametrize("change", [-1, 1, -32, 32])
    def test_keys_that_do_not_fit_the_users_are_refused(self, run: Run, change: int) -> None:
        keys = keys_of(run)
        wrong = keys[:change] if change < 0 else keys + bytes(range(change))
        refuses(run, tampered(run.inbox[0], keys=wrong), MalformedMessage)

    def test_another_view_epoch_or_kind_is_refused(self, run: Run) -> None:
        refuses(run, tampered(run.inbox[0], view=bytes(8)), WrongView)
        refuses(run, tampered(run.inbox[0], round_number=2), WrongStage, "epoch 2")
        refuses(run, tampered(run.inbox[0], first_round=0), WrongRound)
        refuses(run, Run(small()).begin().inbox[0], WrongStage, "Order")
        run.clients[0].join(run.inbox[0])

    def test_nobody_joins_twice(self, run: Run) -> None:
        run.join()
        before = run.clients[0].save()
        run.clients[0].join(run.inbox[0])  # The very same keys again change nothing.
        assert run.clients[0].save() == before
        with pytest.raises(WrongStage):
            run.clients[0].join(tampered(run.inbox[0], first_round=2))
        assert run.clients[0].save() == before

    def test_nobody_joins_before_it_has_advertised_a_key(self, run: Run) -> None:
        with pytest.raises(WrongStage):
            Client(0, run.params).join(run.inbox[0])

    def test_a_client_that_is_excluded_from_the_groups_says_so(self) -> None:
        run = Run(with_roster(small, clients=20, colluders=0), set_up=False).step()
        while run.server.stage is Stage.DRAW:
            run.step()
        message = decode_server_message(run.inbox[3])
        with pytest.MonkeyPatch.context() as patch:
            structure = run.params.structure.among(19)
            groups = run.params.groups(bytes(32), structure, frozenset({3}))
            draw = GroupDraw(1, bytes(32), groups, structure)
            patch.setattr("sparsesecagg.protocol.client.checked_groups", lambda *_: draw)
            with pytest.raises(PolicyViolation, match="excluded"):
                run.clients[3].join(encode(message))


class TestPlainDraw:
    """The server's seed, to which the session commits it, and a nonce of every user."""

    def draw(self, run: Run) -> bytes:
        message = decode_server_message(run.inbox[0])
        assert isinstance(message, EpochKeys)
        return message.draw

    def test_the_server_can_not_open_its_commitment_to_another_seed(self, run: Run) -> None:
        """Otherwise it could choose groups that it likes after it has seen all nonces."""
        refuses(run, tampered(run.inbox[0], draw=flipped(self.draw(run))), InvalidKey, "committed")

    def test_the_server_can_not_swap_a_users_nonce(self, run: Run) -> None:
        start = 32 + 1
        refuses(run, tampered(run.inbox[0], draw=flipped(self.draw(run), start)), InvalidKey, "another nonce")

    def test_another_users_nonce_makes_another_draw(self, run: Run) -> None:
        """Who is told so has nothing in common with the others: its shares do not open, its tags do not fit."""
        run.clients[0].join(tampered(run.inbox[0], draw=flipped(self.draw(run), 32 + 1 + 16)))
        run.clients[1].join(run.inbox[1])
        assert run.clients[0]._member.epoch.digest != run.clients[1]._member.epoch.digest

    @pytest.mark.parametrize("change", [-1, 1, -16, 16, -(5 * 16 + 1 + 20)])
    def test_a_draw_has_one_nonce_per_user(self, run: Run, change: int) -> None:
        draw = self.draw(run)
        wrong = draw[:change] if change < 0 else draw + bytes(change)
        refuses(run, tampered(run.inbox[0], draw=wrong), MalformedMessage)

    def test_a_draw_without_ones_own_nonce_is_refused(self, run: Run) -> None:
        draw = self.draw(run)
        without = draw[:32] + b"\x1e" + draw[32 + 1 + 16 :]
        refuses(run, tampered(run.inbox[0], draw=without), InvalidKey, "or none")

    def test_a_server_that_is_not_committed_to_its_seed_does_not_start(self) -> None:
        with pytest.raises(InvalidInput, match="session") as problem:
            Server(small(), bytes(32))
        assert problem.value.option == "session"
        Server(small(session=session_of(bytes(32))), bytes(32))

    def test_groups_depend_on_every_nonce_and_on_the_seed(self) -> None:
        """Ten users in two pods; other randomness, other groups."""
        found = {tuple(map(tuple, Run(grouped(clients=12, committees=2), seed=seed).committees())) for seed in range(8)}
        assert len(found) == 8

    def test_everybody_finds_the_same_groups(self) -> None:
        run = Run(grouped())
        for client in run.clients.values():
            assert client._member.epoch.pod.users.tolist() == run.pod(client.user).users.tolist()


class TestRosterDraw:
    def test_a_draw_that_no_jury_made_is_refused(self) -> None:
        run = Run(with_roster(small), set_up=False).step()
        while run.server.stage is Stage.DRAW:
            run.step()
        message = decode_server_message(run.inbox[0])
        assert isinstance(message, EpochKeys)
        for draw in (b"", message.draw[:-1], Run(small(), set_up=False).step().inbox[0]):
            with pytest.raises(SparseSecAggError):
                run.clients[0].join(tampered(run.inbox[0], draw=draw))
        request = encode_draw(DrawRequest(1, run.params.roster_digest, b"\x1f", b"\x1f"))
        with pytest.raises(MalformedMessage, match="not a jury's"):
            run.clients[0].join(tampered(run.inbox[0], draw=request))
        run.join()

    def test_a_juror_that_stays_silent_is_named_no_more(self) -> None:
        run = Run(with_roster(small, clients=20, colluders=3), set_up=False).step()
        first = sorted(run.inbox)
        run.step(silent=first[:1])
        assert first[0] not in run.inbox
        attempts = 0
        while run.server.stage is Stage.DRAW:
            run.step()
            attempts += 1
        assert attempts > 0
        run.join()
        assert run.round().survivors == tuple(range(20))

    def test_the_server_needs_the_roster(self) -> None:
        params = with_roster(small)
        for roster in (None, identities(6)[0].roster):
            with pytest.raises(InvalidInput, match="roster"):
                Server(params, roster=roster)

    def test_only_jurors_of_an_authenticated_run_reveal(self) -> None:
        run = Run(with_roster(small), set_up=False).step()
        request = next(iter(run.inbox.values()))
        with pytest.raises(WrongStage):
            Run(small()).clients[0].reveal(request)
        with pytest.raises(SparseSecAggError):
            run.clients[0].reveal(b"")

    def test_a_juror_repeats_its_answer_after_a_restart(self) -> None:
        run = Run(with_roster(small), set_up=False).step()
        user = next(iter(run.inbox))
        answer = run.answer(user)
        run.clients[user] = run.restored(user)
        assert run.answer(user) == answer


class TestIdentities:
    @pytest.fixture
    def run(self) -> Run:
        return Run(with_roster(small), set_up=False)

    def test_a_client_without_an_identity_takes_no_part(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="no identity"):
            Client(0, run.params)

    def test_another_roster_or_another_number_in_it_is_refused(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="another roster"):
            Client(0, run.params, identity=identities(5, seed=5)[0])
        with pytest.raises(PolicyViolation, match="another number"):
            Client(0, run.params, identity=identities(5)[1])

    def test_a_roster_of_another_size_is_refused(self) -> None:
        roster = identities(6)[0].roster
        with pytest.raises(PolicyViolation, match="the roster has 6 users, the run 5"):
            Client(0, small(roster_digest=roster.digest), identity=identities(6)[0])

    def test_run_keys_are_part_of_what_a_pair_shares(self) -> None:
        """A server with sealing keys of its own in the middle knows nothing without them."""
        chains = []
        for secret in (lambda self, peer: AgreedSecret(bytes(32)), Identity.secret_with):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Identity, "secret_with", secret)
                run = Run(with_roster(small))
            one, other = (run.clients[user]._state.chains for user in (0, 1))
            assert one[run.place(1)] == other[run.place(0)]
            chains.append(one[run.place(1)])
        assert chains[0] != chains[1]


class TestServer:
    def test_a_key_that_occurs_twice_is_refused(self) -> None:
        run = Run(small(), set_up=False)
        first = run.answer(0)
        run.server.receive(first)
        with pytest.raises(InvalidKey, match="twice"):
            run.server.receive(tampered_by_user(first, number=user_number(1)))
        assert 1 in run.server.waiting_for

    @pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
    def test_a_low_order_key_is_refused_and_costs_only_its_owner(self, point: bytes) -> None:
        run = Run(small(), set_up=False)
        with pytest.raises(InvalidKey):
            run.server.receive(tampered_by_user(run.answer(0), sealing_key=point))
        run.server.receive(run.answer(0))

    def test_messages_that_do_not_fit_are_refused(self) -> None:
        run = Run(small(), set_up=False)
        answer = run.answer(0)
        for wrong, error in (
            (tampered_by_user(answer, round_number=2), WrongRound),
            (tampered_by_user(answer, view=bytes(8)), WrongView),
            (tampered_by_user(answer, number=user_number(77)), UnknownSender),
            (answer[:-1], MalformedMessage),
            (b"", MalformedMessage),
        ):
            with pytest.raises(error):
                run.server.receive(wrong)
        with pytest.raises(UnknownSender):
            run.server.receive(answer, sender=1)
        assert run.server.receive(answer, sender=0) == 0
        with pytest.raises(DuplicateMessage):
            run.server.receive(answer)

    def test_absent_users_are_dropouts_of_every_round(self) -> None:
        run = Run(small(), absent=[2])
        assert run.server.dropped == {"ADVERTISE_KEYS": 1}
        result = run.round()
        assert result.survivors == (0, 1, 3, 4)
        with pytest.raises(WrongStage):
            run.server.receive(run.clients[2].advertise_keys())

    def test_too_few_users_end_the_run(self) -> None:
        """And no round begins after that."""
        run = Run(small(), set_up=False)
        with pytest.raises(ThresholdNotMet) as failure:
            run.step(silent=[0, 1, 2])
        assert (failure.value.stage, failure.value.survivors, failure.value.needed) == ("ADVERTISE_KEYS", 2, 3)
        with pytest.raises(WrongStage):
            run.server.begin_round()

    def test_a_pod_too_few_of_whose_members_advertised_keys_is_left_out(self) -> None:
        params = grouped(clients=12, committees=2, pods=2)
        probe = Run(params)
        # The draw depends on who is there: leave out so many that one of the pods must be too small.
        run = Run(params, absent=probe.committees()[0][:4])
        pods = [pod is None for pod in run.server._epoch.pods]
        result = run.round()
        if any(pods):
            lost = pods.index(True)
            assert "advertised keys" in result.lost[run.server.groups.pods[lost].first]
        assert len(run.members) + len(probe.committees()[0][:4]) <= 12

    def test_no_round_before_the_epoch(self) -> None:
        run = Run(small(), set_up=False)
        with pytest.raises(WrongStage):
            run.server.begin_round()

    def test_a_server_checks_the_parameters_that_it_is_given(self) -> None:
        forged = msgspec.structs.replace(Run(small()).params, threshold=2)
        with pytest.raises(InvalidInput, match="threshold"):
            Server(forged, digest("seed of a test", b"\0"))

    def test_messages_of_one_user_have_the_same_size_as_those_of_any_other(self) -> None:
        """Also beyond user 127, where MessagePack's integers grow."""
        params = small(clients=300)
        assert len({len(Client(user, params).advertise_keys()) for user in (0, 127, 128, 255, 256, 299)}) == 1


def test_the_digest_of_an_epoch_covers_everything() -> None:
    run = Run(grouped())
    client = run.clients[0]
    message = decode_server_message(run.clients[0]._state.epoch)
    assert isinstance(message, EpochKeys)
    pod, params, seed = client._member.epoch.pod, run.params, b"s" * 32
    base = Epoch(params, message, seed, pod)
    fewer = run.bitmap(pod.users.tolist()[1:])
    variants = [
        Epoch(params.replace(clip=2.0), message, seed, pod),
        Epoch(params, msgspec.structs.replace(message, round_number=2), seed, pod),
        Epoch(params, msgspec.structs.replace(message, first_round=2), seed, pod),
        Epoch(params, message, b"t" * 32, pod),
        Epoch(params, message, seed, replace(pod, index=pod.index + 1)),
        Epoch(params, msgspec.structs.replace(message, present=fewer, keys=message.keys[32:]), seed, pod),
        Epoch(params, msgspec.structs.replace(message, keys=flipped(message.keys)), seed, pod),
    ]
    assert len({epoch.digest for epoch in [base, *variants]}) == 1 + len(variants)
    assert base.view == base.digest[:8]
