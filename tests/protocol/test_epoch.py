"""The epoch: keys are advertised once, groups follow from a seed, and a client checks before it joins."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from protocol.rounds import LENIENT, Run, flipped, grouped, identities, small, tampered, tampered_by_user
from reference.x25519 import low_order_points
from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.secrets import AgreedSecret
from sparsesecagg.errors import (
    AlreadyAnswered,
    DuplicateMessage,
    InvalidInput,
    InvalidKey,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    ThresholdNotMet,
    UnknownSender,
    WrongBinding,
    WrongRound,
    WrongStage,
)
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, RoundOptions, Server, Stage
from sparsesecagg.protocol.client import LEAP
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import EpochKeys, decode_server_message, user_number


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
            run, tampered(run.inbox[0], keys=flipped(keys_of(run), 32 * run.index(0))), InvalidKey, "another sealing"
        )

    def test_a_key_that_occurs_twice_is_refused(self, run: Run) -> None:
        others = [index for index in range(5) if index != run.index(0)]
        keys = [keys_of(run)[32 * index : 32 * index + 32] for index in range(5)]
        keys[others[0]] = keys[others[1]]
        refuses(run, tampered(run.inbox[0], keys=b"".join(keys)), InvalidKey, "twice")

    @pytest.mark.parametrize("point", low_order_points()[:4], ids=bytes.hex)
    def test_a_low_order_point_is_refused(self, run: Run, point: bytes) -> None:
        index = 32 * ((run.index(0) + 1) % 5)
        changed = keys_of(run)[:index] + point + keys_of(run)[index + 32 :]
        refuses(run, tampered(run.inbox[0], keys=changed), InvalidKey, "unusable")

    def test_an_epoch_without_oneself_is_refused(self, run: Run) -> None:
        index = run.index(0)
        others = keys_of(run)[: 32 * index] + keys_of(run)[32 * index + 32 :]
        refuses(run, tampered(run.inbox[0], present=run.bitmap([1, 2, 3, 4]), keys=others), InvalidKey, "or none")

    def test_too_few_holders_are_refused(self, run: Run) -> None:
        users = run.group(0).users.tolist()
        two = [0, 1]
        keys = b"".join(keys_of(run)[32 * users.index(user) :][:32] for user in two)
        refuses(run, tampered(run.inbox[0], present=run.bitmap(two), keys=keys), PolicyViolation, "2 users would hold")

    def test_a_threshold_of_holders_is_enough(self, run: Run) -> None:
        users = run.group(0).users.tolist()
        three = [0, 1, 2]
        keys = b"".join(keys_of(run)[32 * users.index(user) :][:32] for user in three)
        run.clients[0].join(tampered(run.inbox[0], present=run.bitmap(three), keys=keys))

    @pytest.mark.parametrize("change", [-1, 1, -32, 32])
    def test_keys_that_do_not_fit_the_users_are_refused(self, run: Run, change: int) -> None:
        keys = keys_of(run)
        wrong = keys[:change] if change < 0 else keys + bytes(range(change))
        refuses(run, tampered(run.inbox[0], keys=wrong), MalformedMessage)

    def test_another_binding_epoch_or_kind_is_refused(self, run: Run) -> None:
        refuses(run, tampered(run.inbox[0], binding=bytes(8)), WrongBinding)
        refuses(run, tampered(run.inbox[0], round_number=2), WrongStage, "epoch 2")
        refuses(run, tampered(run.inbox[0], first_round=0), WrongRound)
        refuses(run, Run(small()).begin().inbox[0], WrongStage, "RoundHeader")
        run.clients[0].join(run.inbox[0])

    def test_a_first_round_far_ahead_is_refused(self, run: Run) -> None:
        """Else one message would use up all numbers, and a ledger could not be read again."""
        for first in (LEAP + 1, (1 << 63) - 1):
            refuses(run, tampered(run.inbox[0], first_round=first), PolicyViolation, "too far ahead of round 0")
        run.clients[0].join(tampered(run.inbox[0], first_round=LEAP))

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


class TestIdentities:
    @pytest.fixture
    def run(self) -> Run:
        return Run(small(roster=True), set_up=False)

    def test_a_client_without_an_identity_takes_no_part(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="no identity"):
            Client(0, run.params)

    def test_a_client_with_an_identity_takes_no_part_in_a_run_without_a_roster(self, run: Run) -> None:
        """Else a server that leaves the roster out would get what users give to a run without one."""
        with pytest.raises(PolicyViolation, match="the run is not authenticated"):
            Client(0, small(), identity=run.identity(0), ledger=MemoryLedger())

    def test_another_roster_or_another_number_in_it_is_refused(self, run: Run) -> None:
        with pytest.raises(PolicyViolation, match="another roster"):
            Client(0, run.params, identity=identities(5, seed=5)[0], ledger=MemoryLedger())
        with pytest.raises(PolicyViolation, match="another number"):
            Client(0, run.params, identity=identities(5)[1])

    def test_a_roster_of_another_size_is_refused(self) -> None:
        params = msgspec.structs.replace(small(roster=True), roster_digest=identities(6)[0].roster.digest)
        with pytest.raises(PolicyViolation, match="the roster has 6 users, the run 5"):
            Client(0, params, identity=identities(6)[0])

    def test_a_client_with_an_identity_does_not_start_without_a_ledger(self, run: Run) -> None:
        """What a roster promises rests on it."""
        with pytest.raises(InvalidInput, match="ledger must be given with a roster"):
            Client(0, run.params, LENIENT, identity=identities(5)[0])

    def test_run_keys_are_part_of_what_a_pair_shares(self) -> None:
        """A server with sealing keys of its own in the middle knows nothing without them."""
        found = []
        for secret in (lambda self, peer: AgreedSecret(bytes(32)), Identity.secret_with):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Identity, "secret_with", secret)
                run = Run(small(roster=True))
            one, other = run.clients[0]._ciphers(1)[run.index(1)], run.clients[1]._ciphers(1)[run.index(0)]
            assert sealing.tag(one, 0, 1, b"") == sealing.tag(other, 0, 1, b"")
            found.append(sealing.tag(one, 0, 1, b""))
        assert found[0] != found[1]

    def test_the_server_needs_the_roster_that_the_parameters_name(self, run: Run) -> None:
        for roster in (None, identities(6)[0].roster):
            with pytest.raises(InvalidInput, match="roster must be given"):
                Server(run.params, roster)


class TestGroups:
    """Groups follow from the roster's seed; without a roster from the session, which the server chooses."""

    def test_everybody_finds_the_same_groups(self) -> None:
        for params in (grouped(), grouped(roster=True)):
            run = Run(params)
            for client in run.clients.values():
                assert client._joined()[0].group.users.tolist() == run.group(client.user).users.tolist()

    def test_a_roster_decides_whatever_the_session_is(self) -> None:
        drawn = {
            tuple(Server(grouped(roster=True, session=bytes([n]) * 32), identities(12, 6)[0].roster).groups.of(0).users)
            for n in range(4)
        }
        assert len(drawn) == 1

    def test_other_seeds_draw_other_groups(self) -> None:
        rosters = [identities(12, 6)[0].roster.with_seed(bytes([n]) * 32) for n in range(6)]
        sessions = [grouped(session=bytes([n]) * 32) for n in range(6)]
        options = RoundOptions(group_size=6, alpha=0.25)
        made = [Server(Parameters.create(12, 40, options, roster=roster), roster) for roster in rosters]
        for servers in (made, [Server(params) for params in sessions]):
            assert len({tuple(server.groups.groups[0].users.tolist()) for server in servers}) == 6

    def test_each_epoch_draws_anew_and_rounds_go_on(self) -> None:
        run = Run(grouped(roster=True))
        first = run.group(0).users.tolist()
        assert run.round().round_number == 1
        run.server.begin_epoch()
        run.inbox = dict.fromkeys(run.clients, b"")
        run.set_up()
        result = run.round()
        assert (result.round_number, result.survivors) == (2, tuple(range(12)))
        assert run.group(0).users.tolist() != first
        assert (run.clients[0].epoch_number, run.clients[0].round_number) == (2, 2)

    def test_a_group_too_few_of_whose_users_advertised_keys_is_left_out(self) -> None:
        params = grouped()
        gone = Run(params, set_up=False).server.groups.groups[1].users.tolist()[:3]
        run = Run(params, absent=gone)
        result = run.round()
        assert dict(result.lost) == {1: "too few of its users advertised keys"}
        assert run.members == set(run.server.groups.groups[0].users.tolist())
        assert result.survivors == tuple(sorted(run.members))

    def test_a_roster_without_a_seed_is_refused_by_name(self) -> None:
        roster = replace(identities(5)[0].roster, seed=None)
        identity = Identity.__new__(Identity)
        identity.user, identity.roster = 0, roster
        params = Parameters.create(5, 40, roster=roster)
        with pytest.raises(PolicyViolation, match="the roster has no seed"):
            Client(0, params, LENIENT, identity=identity, ledger=MemoryLedger())
        with pytest.raises(InvalidInput, match="roster must have a seed") as problem:
            Server(params, roster)
        assert problem.value.option == "roster"


class TestEpochNumbers:
    def test_asked_again_before_joining_the_same_key_is_advertised(self) -> None:
        client = Run(small(), set_up=False).clients[0]
        first = client.advertise_keys(3)
        assert client.advertise_keys(3) == client.advertise_keys() == first
        assert client.advertise_keys(4) != first

    def test_an_epoch_that_is_over_is_not_advertised_for_again(self) -> None:
        client = Run(small(), set_up=False).clients[0]
        client.advertise_keys(3)
        for number in (0, 1, 2):
            before = client.save()
            with pytest.raises(AlreadyAnswered, match=f"epoch {number} is over for this client, the next is 4"):
                client.advertise_keys(number)
            assert client.save() == before
        joined = Run(small()).clients[0]
        with pytest.raises(AlreadyAnswered, match="epoch 1 is over"):
            joined.advertise_keys(1)

    def test_an_epoch_far_ahead_is_refused(self) -> None:
        client = Run(small(), set_up=False).clients[0]
        for number in (LEAP + 1, 1 << 63, 1 << 64):
            with pytest.raises(PolicyViolation, match="too far ahead of epoch 0"):
                client.advertise_keys(number)
        client.advertise_keys(LEAP)

    def test_a_new_epoch_erases_everything_of_the_one_before(self) -> None:
        run = Run(small()).begin()
        client, state = run.clients[0], run.clients[0]._state
        kept = [state.ratchets, state.secrets[1], state.packages[2].for_upload().mask_secret]
        client.advertise_keys()
        assert not any(any(secret.reveal()) for secret in kept)
        assert (client._state.keys, client._state.packages, client._state.secrets) == (None, {}, {})
        with pytest.raises(WrongStage):
            run.answer(0)

    @pytest.mark.parametrize("roster", [False, True], ids=["session", "roster"])
    def test_several_groups_have_sixteen_epochs_and_one_group_any_number(self, roster: bool) -> None:
        """All draws are known from the start, so a server takes the best of them; one group draws nothing."""
        run = Run(grouped(roster=roster), set_up=False)
        client = run.clients[0]
        client.advertise_keys(16)
        run.server.begin_epoch(16)
        before = client.save()
        for act in (lambda: client.advertise_keys(17), lambda: run.server.begin_epoch(17)):
            with pytest.raises(PolicyViolation, match="epoch must be at most 16 in a run of several groups, got 17"):
                act()
        assert client.save() == before
        assert run.server.epoch_number == 16
        one = Run(small(roster=roster), set_up=False)
        one.server.begin_epoch(10**6)
        one.server.receive(None, one.clients[0].advertise_keys(10**6))

    def test_epochs_of_a_server_only_go_up(self) -> None:
        run = Run(small())
        for number in (0, 1):
            with pytest.raises(InvalidInput, match=f"epoch_number must be 2 or more, got {number}"):
                run.server.begin_epoch(number)
        run.server.begin_epoch()
        assert (run.server.epoch_number, run.server.stage) == (2, Stage.ADVERTISE_KEYS)
        run.server.begin_epoch(2)  # Nobody has joined it yet.
        run.server.begin_epoch(7)
        assert run.server.epoch_number == 7

    def test_a_user_that_missed_an_epoch_takes_part_in_the_next(self) -> None:
        run = Run(small())
        for absent in ([2], []):
            run.server.begin_epoch()
            for user in set(range(5)).difference(absent):
                run.server.receive(None, run.clients[user].advertise_keys(run.server.epoch_number))
            run.inbox = run.server.close_stage()
            run.join()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_a_server_that_lost_its_memory_catches_up_with_its_users(self) -> None:
        run = Run(small())
        run.round()
        run.server = Server(run.params)
        run.server.catch_up(max(client.round_number for client in run.clients.values()))
        run.server.catch_up(0)
        run.server.begin_epoch(1 + max(client.epoch_number for client in run.clients.values()))
        run.inbox = dict.fromkeys(run.clients, b"")
        run.set_up()
        assert run.round().round_number == 2
        run.begin()
        with pytest.raises(WrongStage):
            run.server.catch_up(9)

    def test_a_new_epoch_may_have_other_parameters_of_the_same_run_only(self) -> None:
        run = Run(small(roster=True))
        wider, identity = run.params.replace(modulus_bits=24), identities(5)[0]
        saved = run.clients[0].save()
        again = Client.restore(saved, LENIENT, identity=identity, ledger=run.ledgers[0], params=wider)
        again.advertise_keys()
        assert Client.restore(again.save(), LENIENT, identity=identity, ledger=run.ledgers[0]).params == wider
        with pytest.raises(WrongBinding):
            Client.restore(saved, LENIENT, identity=identity, ledger=run.ledgers[0], params=small())

    @staticmethod
    def changed(run: Run, **changes: int) -> Client:
        """Return the first client as restored by a process that was given other parameters."""
        saved, params = run.clients[0].save(), run.params.replace(**changes)
        return Client.restore(saved, LENIENT, identity=run.identity(0), ledger=run.ledgers[0], params=params)

    def test_an_epoch_keeps_the_parameters_that_it_was_begun_with(self) -> None:
        """Asked again with others, a user advertises no key: its shares would be dealt under two thresholds."""
        run = Run(small(roster=True, threshold=5), set_up=False)
        run.clients[0].advertise_keys(1)
        other = self.changed(run, threshold=4)
        with pytest.raises(AlreadyAnswered, match="epoch 1 is over for this client, the next is 2"):
            other.advertise_keys(1)
        other.advertise_keys(2)

    def test_no_round_is_played_with_parameters_of_another_epoch(self) -> None:
        with pytest.raises(WrongStage):
            self.changed(Run(small(roster=True)), modulus_bits=24).share_keys(again=True)


class TestServer:
    def test_a_key_that_occurs_twice_is_refused(self) -> None:
        run = Run(small(), set_up=False)
        first = run.answer(0)
        run.server.receive(None, first)
        with pytest.raises(InvalidKey, match="twice"):
            run.server.receive(None, tampered_by_user(first, number=user_number(1)))
        assert 1 in run.server.waiting_for

    @pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
    def test_a_low_order_key_is_refused_and_costs_only_its_owner(self, point: bytes) -> None:
        run = Run(small(), set_up=False)
        with pytest.raises(InvalidKey):
            run.server.receive(None, tampered_by_user(run.answer(0), sealing_key=point))
        run.server.receive(None, run.answer(0))

    def test_messages_that_do_not_fit_are_refused(self) -> None:
        run = Run(small(), set_up=False)
        answer = run.answer(0)
        for wrong, error in (
            (tampered_by_user(answer, round_number=2), WrongRound),
            (tampered_by_user(answer, binding=bytes(8)), WrongBinding),
            (tampered_by_user(answer, number=user_number(77)), UnknownSender),
            (answer[:-1], MalformedMessage),
            (b"", MalformedMessage),
        ):
            with pytest.raises(error):
                run.server.receive(None, wrong)
        with pytest.raises(UnknownSender):
            run.server.receive(1, answer)
        assert run.server.receive(0, answer) == 0
        with pytest.raises(DuplicateMessage):
            run.server.receive(None, answer)

    def test_absent_users_are_dropouts_of_every_round(self) -> None:
        run = Run(small(), absent=[2])
        assert run.server.dropped == {"ADVERTISE_KEYS": 1}
        result = run.round()
        assert result.survivors == (0, 1, 3, 4)
        with pytest.raises(WrongStage):
            run.server.receive(None, run.clients[2].advertise_keys())

    def test_too_few_users_end_the_run(self) -> None:
        """And no round begins after that."""
        run = Run(small(), set_up=False)
        with pytest.raises(ThresholdNotMet) as failure:
            run.step(silent=[0, 1, 2])
        assert (failure.value.stage, failure.value.survivors, failure.value.needed) == ("ADVERTISE_KEYS", 2, 3)
        with pytest.raises(WrongStage):
            run.server.begin_round()

    def test_no_round_before_the_epoch(self) -> None:
        run = Run(small(), set_up=False)
        with pytest.raises(WrongStage):
            run.server.begin_round()

    def test_a_server_checks_the_parameters_that_it_is_given(self) -> None:
        forged = msgspec.structs.replace(small(), threshold=2)
        with pytest.raises(InvalidInput, match="threshold"):
            Server(forged)
        with pytest.raises(InvalidInput, match="threads must be at least 1, got 0"):
            Server(small(), threads=0)

    def test_messages_of_one_user_have_the_same_size_as_those_of_any_other(self) -> None:
        """Also beyond user 127, where MessagePack's integers grow."""
        params = small(clients=300, threshold=None)
        assert len({len(Client(user, params).advertise_keys()) for user in (0, 127, 128, 255, 256, 299)}) == 1


def test_the_digest_of_an_epoch_covers_everything() -> None:
    run = Run(grouped())
    message = decode_server_message(run.clients[0]._state.keys or b"")
    assert isinstance(message, EpochKeys)
    group, params, seed = run.group(0), run.params, b"s" * 32
    base = Epoch(params, message, seed, group)
    fewer = run.bitmap(group.users.tolist()[1:])
    variants = [
        Epoch(params.replace(clip=2.0), message, seed, group),
        Epoch(params, msgspec.structs.replace(message, round_number=2), seed, group),
        Epoch(params, msgspec.structs.replace(message, first_round=2), seed, group),
        Epoch(params, message, b"t" * 32, group),
        Epoch(params, message, seed, replace(group, number=group.number + 1)),
        Epoch(params, msgspec.structs.replace(message, present=fewer, keys=message.keys[32:]), seed, group),
        Epoch(params, msgspec.structs.replace(message, keys=flipped(message.keys)), seed, group),
    ]
    assert len({epoch.digest for epoch in [base, *variants]}) == 1 + len(variants)
    assert base.binding == base.digest[:8]
