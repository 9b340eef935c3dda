"""The life of a round on the client: every stage of every round once, in increasing order, whoever restarts what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, grouped, lenient, small, tampered, with_roster
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import (
    AlreadyAnswered,
    InvalidInput,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol import Client, MemoryLedger, Stage
from sparsesecagg.protocol.client_state import ClientState, StateStep
from sparsesecagg.protocol.ledger import Entry, Ledger
from sparsesecagg.protocol.messages import decode_server_message

CONFIRMED = small(confirm=True)
ASKED = [Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK]


def refuses(run: Run, user: int, data: bytes, error: type[SparseSecAggError]) -> None:
    """The client raises, its state is as before, and it still answers the genuine message."""
    client = run.clients[user]
    before, entry = client.save(), run.ledgers[user].last()
    with pytest.raises(error):
        run.answer(user, data)
    assert client.save() == before
    assert run.ledgers[user].last() == entry


NOTHING = StateStep(ClientState(user=0, params=b""), ClientState(user=0, params=b""))


class TestOrder:
    """Answers have strictly increasing (round, stage)."""

    @pytest.mark.parametrize("stage", ASKED)
    def test_the_same_request_gets_the_same_bytes(self, stage: Stage) -> None:
        """And changes nothing: an answer may be lost on the way."""
        run = Run(CONFIRMED).run_to(stage)
        answer, state = run.answer(0), run.clients[0].save()
        assert run.answer(0) == answer
        assert run.clients[0].save() == state

    @pytest.mark.parametrize("stage", ASKED)
    def test_a_restored_client_repeats_its_answer(self, stage: Stage) -> None:
        run = Run(CONFIRMED).run_to(stage)
        answer = run.answer(0)
        run.clients[0] = run.restored(0)
        assert run.answer(0) == answer

    def test_the_answer_outlives_the_next_package(self) -> None:
        run = Run(small()).begin()
        answer = run.answer(0)
        assert run.clients[0].share_keys(1)
        assert run.answer(0) == answer

    @pytest.mark.parametrize(
        ("stage", "changes"),
        [
            (Stage.UPLOAD, {"terms": b"t" * 32}),
            (Stage.CONFIRM, {"survivors": b"\x0f"}),
            (Stage.UNMASK, {"survivors": b"\x0f"}),
        ],
    )
    def test_another_request_for_the_same_stage_is_refused(self, stage: Stage, changes: dict[str, bytes]) -> None:
        run = Run(CONFIRMED).run_to(stage)
        run.answer(0)
        refuses(run, 0, tampered(run.inbox[0], **changes), AlreadyAnswered)

    def test_another_update_for_the_same_order_gets_the_first_answer(self) -> None:
        """A client that trains twice must not mask two updates with the same masks."""
        run = Run(small()).begin()
        first = run.answer(0)
        run.updates[0] = -run.updates[0]
        assert run.answer(0) == first

    def test_an_earlier_stage_is_refused_after_a_later_one(self) -> None:
        run = Run(CONFIRMED).begin()
        requests: dict[Stage, bytes] = {}
        for stage in ASKED:
            requests[stage] = run.run_to(stage).inbox[0]
        run.answer(0)
        client = run.clients[0]
        with pytest.raises(AlreadyAnswered, match="round 1 is over for this client at UPLOAD"):
            client.upload(requests[Stage.UPLOAD], run.updates[0])
        with pytest.raises(AlreadyAnswered, match="CONFIRM"):
            client.confirm(requests[Stage.CONFIRM])

    @pytest.mark.parametrize("stage", ASKED)
    def test_an_earlier_round_is_refused(self, stage: Stage) -> None:
        run = Run(CONFIRMED).run_to(stage)
        old = run.inbox[0]
        run.run_to(Stage.DONE).run_to(stage)
        refuses(run, 0, old, AlreadyAnswered)

    def test_an_earlier_round_is_refused_as_soon_as_a_later_one_is_seen(self) -> None:
        """By a package, too: what was dealt for earlier rounds is gone."""
        run = Run(small()).begin()
        old = run.inbox[0]
        run.clients[0].share_keys(2)
        refuses(run, 0, old, AlreadyAnswered)

    @pytest.mark.parametrize("stage", [Stage.CONFIRM, Stage.UNMASK])
    def test_a_stage_of_another_round_is_refused(self, stage: Stage) -> None:
        run = Run(CONFIRMED).run_to(stage)
        refuses(run, 0, tampered(run.inbox[0], round_number=2), WrongRound)

    @pytest.mark.parametrize("stage", [Stage.CONFIRM, Stage.UNMASK])
    def test_who_did_not_upload_answers_nothing_more(self, stage: Stage) -> None:
        """It has marked no order to compare tags with."""
        run = Run(CONFIRMED).begin()
        run.step(silent=[0])
        run.run_to(stage)
        with pytest.raises(WrongRound):
            run.answer(0, run.inbox[1])
        run.clients[0].share_keys(1)
        with pytest.raises(WrongStage, match=f"got {stage.name} while the round is at UPLOAD"):
            run.answer(0, run.inbox[1])

    def test_unmask_comes_after_confirm_where_confirm_is_asked_for(self) -> None:
        run = Run(CONFIRMED).run_to(Stage.UNMASK)
        other = Run(CONFIRMED).run_to(Stage.CONFIRM)
        with pytest.raises(WrongStage, match="got UNMASK while the round is at CONFIRM"):
            other.clients[0].unmask(run.inbox[0])

    def test_nobody_confirms_where_it_is_not_asked_for(self) -> None:
        run = Run(small()).run_to(Stage.UNMASK)
        request = Run(CONFIRMED).run_to(Stage.CONFIRM).inbox[0]
        with pytest.raises(WrongStage, match="got CONFIRM while the round is at UNMASK"):
            run.clients[0].confirm(request)

    def test_no_round_before_the_epoch(self) -> None:
        run, other = Run(small(), set_up=False), Run(small()).begin()
        with pytest.raises(WrongStage, match="a round"):
            run.clients[0].upload(other.inbox[0], run.updates[0])
        with pytest.raises(WrongStage, match="a round"):
            run.clients[0].share_keys(0)

    @pytest.mark.parametrize("stage", ASKED)
    def test_a_message_of_another_kind_is_refused(self, stage: Stage) -> None:
        run = Run(CONFIRMED).run_to(stage)
        for other in ASKED:
            if other is not stage:
                refuses(run, 0, Run(CONFIRMED, seed=1).run_to(other).inbox[0], WrongStage)

    @pytest.mark.parametrize("stage", ASKED)
    def test_broken_bytes_and_another_view_are_refused(self, stage: Stage) -> None:
        run = Run(CONFIRMED).run_to(stage)
        genuine = run.inbox[0]
        for broken in (b"", genuine[:-1], genuine + b"!", b"\x01" + genuine[1:]):
            refuses(run, 0, broken, MalformedMessage)
        refuses(run, 0, tampered(genuine, view=bytes(8)), WrongView)
        run.answer(0)


class TestFailures:
    """A call that fails changes nothing, except that a refused UNMASK is used up."""

    @pytest.mark.parametrize(
        "update",
        [
            np.zeros(39, np.float32),
            np.zeros((40, 1), np.float32),
            np.zeros(40, np.int64),
            np.full(40, np.nan, np.float32),
            np.full(40, np.inf),
            [0.0] * 40,
            None,
        ],
        ids=["short", "shape", "integers", "nan", "infinite", "list", "none"],
    )
    def test_an_update_that_can_not_be_added_is_refused(self, update: object) -> None:
        run = Run(small()).begin()
        before = run.clients[0].save()
        with pytest.raises(InvalidInput, match="update must") as problem:
            run.clients[0].upload(run.inbox[0], update)  # type: ignore[arg-type]
        assert problem.value.option == "update"
        assert run.clients[0].save() == before
        assert run.run_to(Stage.DONE).result.survivors == (0, 1, 2, 3, 4)

    @pytest.mark.parametrize(("max_weight", "weight"), [(0, 0), (0, 2), (7, -1)])
    def test_a_weight_that_makes_no_sense_is_refused(self, max_weight: int, weight: int) -> None:
        run = Run(small(max_weight=max_weight)).begin()
        before = run.clients[0].save()
        with pytest.raises(InvalidInput, match="weight must"):
            run.clients[0].upload(run.inbox[0], run.updates[0], weight)
        assert run.clients[0].save() == before

    def test_a_weight_above_the_largest_counts_as_the_largest(self) -> None:
        """To refuse would tell the server about it."""
        run = Run(small(max_weight=7)).begin()
        for user in range(5):
            run.server.receive(
                run.clients[user].upload(run.inbox[user], run.updates[user], weight=[0, 3, 7, 8, 10**9][user])
            )
        run.inbox = run.server.close_stage()
        run.run_to(Stage.DONE)
        assert run.result.weight_per_slice is not None
        assert run.result.weight_per_slice.tolist() == [0 + 3 + 7 + 7 + 7]

    def test_other_terms_are_refused(self) -> None:
        """The model that the user has trained is not the one that the order names."""
        run = Run(small()).begin()
        before = run.clients[0].save()
        with pytest.raises(WrongView):
            run.clients[0].upload(run.inbox[0], run.updates[0], terms=b"t" * 32)
        assert run.clients[0].save() == before
        run.answer(0)

    def test_a_refused_unmask_is_used_up(self) -> None:
        """Otherwise a server could try survivors until it likes the answer."""
        run = Run(small()).run_to(Stage.UNMASK)
        few = tampered(run.inbox[0], survivors=b"\x03", tags=bytes(8))
        with pytest.raises(PolicyViolation, match="only 2 users survive"):
            run.answer(0, few)
        with pytest.raises(AlreadyAnswered):
            run.answer(0)
        with pytest.raises(AlreadyAnswered):
            run.answer(0, few)
        state = run.clients[0]._state
        assert state.packages.keys() == state.secrets.keys() == {2, 3}

    def test_a_malformed_unmask_is_not(self) -> None:
        run = Run(small()).run_to(Stage.UNMASK)
        refuses(run, 0, tampered(run.inbox[0], tags=bytes(8 * 4 - 1)), MalformedMessage)
        refuses(run, 0, tampered(run.inbox[0], survivors=b"\x1f\x00"), MalformedMessage)
        run.answer(0)

    def test_after_a_refused_round_the_client_takes_part_in_the_next(self) -> None:
        run = Run(small(dropout=0.2)).run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation):
            run.answer(0, tampered(run.inbox[0], survivors=b"\x03", tags=bytes(8)))
        run.step(silent=[0])
        assert run.round().survivors == (0, 1, 2, 3, 4)


def secrets_of(state: ClientState, round_number: int) -> dict[str, list[Secret]]:
    """The secrets of a round, as objects: they are overwritten in place."""
    package = state.packages[round_number]
    return {
        "mask": [package.mask_secret, package.private_seed],
        "own": [package.own_shares],
        "pairs": list(state.secrets[round_number].values()),
    }


def is_erased(secrets: list[Secret]) -> bool:
    return not any(any(secret.reveal()) for secret in secrets)


class TestErasure:
    def test_the_sealing_key_is_erased_once_the_chains_exist(self) -> None:
        run = Run(small(), set_up=False)
        run.step()
        key = run.clients[0]._state.sealing_private
        assert any(key.reveal())
        run.join()
        assert is_erased([key])
        assert run.clients[0]._state.sealing_private.reveal() == b""
        assert run.clients[0]._state.nonce == b""

    @pytest.mark.parametrize("params", [small(), CONFIRMED, grouped()], ids=["full", "confirm", "grouped"])
    def test_what_is_erased_when(self, params: object) -> None:
        run = Run(params).begin()  # type: ignore[arg-type]
        kept = secrets_of(run.clients[0]._state, 1)
        later = secrets_of(run.clients[0]._state, 2)
        assert all(any(secret.reveal()) for part in kept.values() for secret in part)
        run.answer(0)
        assert is_erased(kept["mask"])
        assert not is_erased(kept["own"])
        assert not is_erased(kept["pairs"])
        package = run.clients[0]._state.packages[1]
        assert (package.mask_secret.reveal(), package.private_seed.reveal()) == (b"", b"")
        run.run_to(Stage.UNMASK)
        assert not is_erased(kept["own"])
        run.answer(0)
        assert is_erased([*kept["own"], *kept["pairs"]])
        state = run.clients[0]._state
        assert 1 not in state.packages
        assert 1 not in state.secrets
        assert state.order == b""
        assert all(any(secret.reveal()) for part in later.values() for secret in part)

    def test_chains_move_on_and_the_old_ones_are_erased(self) -> None:
        """Whoever takes a node over learns nothing of earlier rounds."""
        run = Run(small())
        chains = list(run.clients[0]._state.chains.values())
        run.round()
        assert is_erased(list(chains))
        assert run.clients[0]._state.chain_round == 4

    def test_a_later_round_erases_the_packages_of_earlier_ones(self) -> None:
        """Whether they were used or not."""
        run = Run(small())
        state = run.clients[0]._state
        old, due = ([secret for part in secrets_of(state, number).values() for secret in part] for number in (1, 2))
        run.clients[0].share_keys(2)
        assert is_erased(old)
        assert not any(is_erased([secret]) for secret in due)
        assert run.clients[0]._state.packages.keys() == {2, 3, 4}
        assert run.clients[0]._state.secrets.keys() == {2, 3, 4}

    def test_an_order_of_a_later_round_erases_earlier_packages(self) -> None:
        run = Run(small())
        kept = secrets_of(run.clients[0]._state, 1)
        run.begin(2)
        run.answer(0)
        assert is_erased([*kept["mask"], *kept["own"], *kept["pairs"]])

    def test_a_copy_of_a_restored_state_is_erased_too(self) -> None:
        run = Run(small()).begin()
        run.clients[0] = run.restored(0)
        kept = secrets_of(run.clients[0]._state, 1)
        run.answer(0)
        assert is_erased(kept["mask"])


class TestRestart:
    @pytest.mark.parametrize("params", [CONFIRMED, with_roster(small), grouped()], ids=["plain", "roster", "grouped"])
    def test_clients_are_saved_and_restored_after_every_message(self, params: object) -> None:
        """The run is the same as without, bit for bit."""
        restarted, plain = Run(params), Run(params)  # type: ignore[arg-type]
        for _ in range(3):
            plain.round(silent=[1])
            restarted.begin()
            while restarted.server.stage is not Stage.DONE:
                restarted.clients = {user: restarted.restored(user) for user in restarted.clients}
                restarted.step(silent=[1] if restarted.server.stage is Stage.UPLOAD else [])
            assert (restarted.result.total == plain.result.total).all()
            assert restarted.result.survivors == plain.result.survivors

    def test_restoring_in_the_set_up(self) -> None:
        run = Run(small(), set_up=False)
        first = run.clients[0].advertise_keys()
        run.clients[0] = run.restored(0)
        assert run.clients[0].advertise_keys() == first
        run.step()
        run.clients = {user: run.restored(user) for user in run.clients}
        run.join()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_a_client_restored_with_an_empty_ledger_answers_nothing(self) -> None:
        """Its state says that it has written something down, and the ledger knows of nothing."""
        run = Run(small()).begin()
        stranger = Client.restore(run.clients[0].save(), LENIENT)
        with pytest.raises(AlreadyAnswered, match="another process"):
            stranger.upload(run.inbox[0], run.updates[0])

    def test_a_restored_client_obeys_the_policy_that_it_is_given(self) -> None:
        run = Run(small()).begin()
        with pytest.raises(PolicyViolation):
            run.restored(0, policy=lenient(min_clients=6))

    def test_rubbish_is_no_saved_client(self) -> None:
        for rubbish in (b"", b"rubbish", Run(small()).clients[0].save()[:-1]):
            with pytest.raises(MalformedMessage, match="not a saved client"):
                Client.restore(rubbish)


class TestTwoOnOneLedger:
    """A state that is restored or copied: whichever answers first, the other one has been overtaken."""

    def both(self, run: Run) -> tuple[Client, Client]:
        return run.clients[0], run.restored(0)

    def test_one_of_two_uploads_leaves(self) -> None:
        run = Run(small()).begin()
        one, other = self.both(run)
        first = one.upload(run.inbox[0], run.updates[0])
        assert other.upload(run.inbox[0], -run.updates[0]) == first, "the same request gets the same bytes"
        with pytest.raises(AlreadyAnswered):
            other.upload(tampered(run.inbox[0], terms=b"x" * 32), run.updates[0], terms=b"x" * 32)

    def test_one_of_two_unmask_answers_leaves(self) -> None:
        run = Run(small()).run_to(Stage.UNMASK)
        one, other = self.both(run)
        one.unmask(run.inbox[0])
        with pytest.raises(AlreadyAnswered):
            other.unmask(tampered(run.inbox[0], survivors=b"\x0f"))

    def test_a_refusal_counts_for_both(self) -> None:
        run = Run(small()).run_to(Stage.UNMASK)
        one, other = self.both(run)
        with pytest.raises(PolicyViolation):
            one.unmask(tampered(run.inbox[0], survivors=b"\x03", tags=bytes(8)))
        with pytest.raises(AlreadyAnswered):
            other.unmask(run.inbox[0])

    @pytest.mark.parametrize(
        "act",
        [
            lambda run, client: client.share_keys(1),
            lambda run, client: client.upload(run.inbox[0], run.updates[0]),
        ],
        ids=["package", "upload"],
    )
    def test_whoever_is_overtaken_does_nothing_more(self, act: Callable[[Run, Client], object]) -> None:
        run = Run(small()).begin()
        one, other = self.both(run)
        one.share_keys(1)
        before = other.save()
        with pytest.raises(AlreadyAnswered, match="another process"):
            act(run, other)
        assert other.save() == before
        assert one.upload(run.inbox[0], run.updates[0])

    def test_a_package_is_dealt_once_by_the_two_of_them(self) -> None:
        run = Run(small()).begin()
        one, other = self.both(run)
        assert len(one.share_keys(1)) == 1
        with pytest.raises(AlreadyAnswered):
            other.share_keys(1)

    def test_an_overtaken_client_can_not_join(self) -> None:
        run = Run(small(), set_up=False).step()
        one, other = self.both(run)
        one.join(run.inbox[0])
        with pytest.raises(AlreadyAnswered):
            other.join(run.inbox[0])


class TestMemoryLedger:
    def test_entries_follow_each_other(self) -> None:
        ledger = MemoryLedger()
        assert ledger.last() == Entry(0, -1, -1, b"", b"")
        for wrong in (0, 2, -1):
            with pytest.raises(AlreadyAnswered):
                ledger.record(Entry(wrong), NOTHING)
        ledger.record(Entry(1, 4, 2, b"r", b"a"), NOTHING)
        assert ledger.last() == Entry(1, 4, 2, b"r", b"a")
        with pytest.raises(AlreadyAnswered):
            ledger.record(Entry(1), NOTHING)

    def test_answers_need_not_be_kept(self) -> None:
        """Then the same request is refused instead of answered again."""
        ledger = MemoryLedger(keep_answers=False)
        ledger.record(Entry(1, 4, 2, b"r", b"a"), NOTHING)
        assert ledger.last() == Entry(1, 4, 2, b"r", b"")
        run = Run(small()).begin()
        run.ledgers[0]._keep_answers = False
        run.answer(0)
        with pytest.raises(AlreadyAnswered):
            run.answer(0)

    def test_the_state_is_not_written_down(self) -> None:
        ledger: Ledger = MemoryLedger()
        assert ledger.state() is None

    def test_a_ledger_is_given_the_state_with_the_entry(self) -> None:
        """In one call, so that both are written or neither is."""
        written: list[tuple[Entry, bytes]] = []

        class Writing(MemoryLedger):
            def record(self, entry: Entry, step: StateStep) -> None:
                super().record(entry, step)
                written.append((entry, step.whole()))

        client = Client(0, small(), LENIENT, ledger=Writing())
        client.advertise_keys()
        ((entry, state),) = written
        assert entry.version == 1
        assert state == client.save()

    def test_if_the_ledger_fails_nothing_leaves_and_nothing_is_erased(self) -> None:
        class Broken(MemoryLedger):
            broken = False

            def record(self, entry: Entry, step: StateStep) -> None:
                if self.broken:
                    raise OSError("disk full")
                super().record(entry, step)

        run = Run(small(), set_up=False)
        ledger = Broken()
        run.ledgers[0] = ledger
        run.clients[0] = run._client(0)
        run.set_up()
        run.begin()
        ledger.broken = True
        before = run.clients[0].save()
        with pytest.raises(OSError, match="disk full"):
            run.answer(0)
        assert run.clients[0].save() == before
        ledger.broken = False
        assert run.run_to(Stage.DONE).result.survivors == (0, 1, 2, 3, 4)


def test_a_client_tells_which_round_it_is_at() -> None:
    run = Run(small())
    assert (run.clients[0].round_number, repr(run.clients[0])) == (0, "Client(user=0, round=0, epoch=1)")
    run.begin()
    run.answer(0)
    assert run.clients[0].round_number == 1
    assert decode_server_message(run.inbox[0]).round_number == 1
