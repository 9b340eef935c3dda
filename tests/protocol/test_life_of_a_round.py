"""The life of a round on the client: every stage of every round once, in increasing order, whoever restarts what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, grouped, lenient, small, tampered
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import (
    AlreadyAnswered,
    InvalidInput,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    WrongBinding,
    WrongRound,
    WrongStage,
)
from sparsesecagg.protocol import Client, MemoryLedger, Stage
from sparsesecagg.protocol.ledger import ClientState, Entry, Ledger, StateStep, save_state
from sparsesecagg.protocol.messages import decode_server_message
from sparsesecagg.protocol.stages import Progress

SMALL = small()
ASKED = [Stage.UPLOAD, Stage.UNMASK]
OTHER = b"another model".ljust(32)


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
        run = Run(SMALL).run_to(stage)
        answer, state = run.answer(0), run.clients[0].save()
        assert run.answer(0) == answer
        assert run.clients[0].save() == state

    @pytest.mark.parametrize("stage", ASKED)
    def test_a_restored_client_repeats_its_answer(self, stage: Stage) -> None:
        run = Run(SMALL).run_to(stage)
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
            (Stage.UPLOAD, {"context": OTHER}),
            (Stage.UNMASK, {"survivors": b"\x0f"}),
        ],
    )
    def test_another_request_for_the_same_stage_is_refused(self, stage: Stage, changes: dict[str, bytes]) -> None:
        run = Run(SMALL).run_to(stage)
        run.answer(0)
        refuses(run, 0, tampered(run.inbox[0], **changes), AlreadyAnswered)

    def test_another_update_for_the_same_header_gets_the_first_answer(self) -> None:
        """A client that trains twice must not mask two updates with the same masks."""
        run = Run(small()).begin()
        first = run.answer(0)
        run.updates[0] = -run.updates[0]
        assert run.answer(0) == first

    def test_an_earlier_stage_is_refused_after_a_later_one(self) -> None:
        run = Run(SMALL).begin()
        requests: dict[Stage, bytes] = {}
        for stage in ASKED:
            requests[stage] = run.run_to(stage).inbox[0]
        run.answer(0)
        client = run.clients[0]
        with pytest.raises(AlreadyAnswered, match="round 1 is over for this client at UPLOAD"):
            client.upload(requests[Stage.UPLOAD], run.updates[0])

    @pytest.mark.parametrize("stage", ASKED)
    def test_an_earlier_round_is_refused(self, stage: Stage) -> None:
        run = Run(SMALL).run_to(stage)
        old = run.inbox[0]
        run.run_to(Stage.SHARE_KEYS).run_to(stage)
        refuses(run, 0, old, AlreadyAnswered)

    def test_an_earlier_round_is_refused_as_soon_as_a_later_one_is_seen(self) -> None:
        """By a package, too: what was made for earlier rounds is gone."""
        run = Run(small()).begin()
        old = run.inbox[0]
        run.clients[0].share_keys(2)
        refuses(run, 0, old, AlreadyAnswered)

    def test_a_request_of_another_round_is_refused(self) -> None:
        run = Run(SMALL).run_to(Stage.UNMASK)
        refuses(run, 0, tampered(run.inbox[0], round_number=2), WrongRound)

    def test_who_did_not_upload_releases_nothing(self) -> None:
        run = Run(SMALL).begin()
        run.step(silent=[0])
        with pytest.raises(WrongRound):
            run.answer(0, run.inbox[1])
        run.clients[0].share_keys(1)
        with pytest.raises(WrongRound):
            run.answer(0, run.inbox[1])

    def test_who_only_accepted_the_header_releases_nothing(self) -> None:
        run = Run(SMALL).begin()
        run.clients[0].accept(run.inbox[0])
        run.step(silent=[0])
        with pytest.raises(WrongStage, match="got unmask while the round is at ACCEPTED"):
            run.answer(0, run.inbox[1])

    def test_no_round_before_the_epoch(self) -> None:
        run, other = Run(small(), set_up=False), Run(small()).begin()
        with pytest.raises(WrongStage, match="got accept while the round is at NEW"):
            run.clients[0].upload(other.inbox[0], run.updates[0])
        with pytest.raises(WrongStage, match="got share_keys while the round is at NEW"):
            run.clients[0].share_keys(0)

    @pytest.mark.parametrize("stage", ASKED)
    def test_a_message_of_another_kind_is_refused(self, stage: Stage) -> None:
        run = Run(SMALL).run_to(stage)
        for other in ASKED:
            if other is not stage:
                refuses(run, 0, Run(SMALL, seed=1).run_to(other).inbox[0], WrongStage)

    @pytest.mark.parametrize("stage", ASKED)
    def test_broken_bytes_and_another_binding_are_refused(self, stage: Stage) -> None:
        run = Run(SMALL).run_to(stage)
        genuine = run.inbox[0]
        for broken in (b"", genuine[:-1], genuine + b"!", b"\x01" + genuine[1:]):
            refuses(run, 0, broken, MalformedMessage)
        refuses(run, 0, tampered(genuine, binding=bytes(8)), WrongBinding)
        run.answer(0)


class TestHeaderOnRecord:
    """`accept` writes a header down before the update is made: no other one of the round is answered from then on."""

    @pytest.fixture
    def run(self) -> Run:
        return Run(SMALL).begin()

    def other_headers(self, run: Run) -> list[bytes]:
        """Another model, another key of a peer, a member less: all of them would be accepted, had they come first."""
        header = run.header_of(0)
        start = 32 * run.index(run.partners(0)[0])
        key = run.clients[run.partners(0)[0]]._state.packages[2].mask_key
        last = run.partners(0)[-1]
        at, shares = 32 * run.index(last), 48 * (len(run.partners(0)) - 1)
        return [
            tampered(run.inbox[0], context=OTHER),
            tampered(run.inbox[0], mask_keys=header.mask_keys[:start] + key + header.mask_keys[start + 32 :]),
            tampered(
                run.inbox[0],
                members=run.bitmap(user for user in range(5) if user != last),
                mask_keys=header.mask_keys[:at] + header.mask_keys[at + 32 :],
                shares=header.shares[:shares],
            ),
        ]

    def refuses_all_others(self, run: Run, client: Client) -> None:
        for other in self.other_headers(run):
            context = decode_server_message(other).context  # type: ignore[union-attr]
            before = client.save()
            for act in (client.accept, lambda data, **at: client.upload(data, run.updates[0], **at)):
                with pytest.raises(AlreadyAnswered, match=r"round 1 is over for this client|another process"):
                    act(other, context=context)
            assert client.save() == before

    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_control_each_of_the_other_headers_could_have_come_first(self, run: Run, which: int) -> None:
        other = self.other_headers(run)[which]
        assert run.clients[0].accept(other, context=decode_server_message(other).context) is None  # type: ignore[union-attr]

    def test_any_other_header_is_refused_and_the_same_one_is_not(self, run: Run) -> None:
        client = run.clients[0]
        assert client.accept(run.inbox[0]) is None
        assert run.ledgers[0].last().progress == Progress.ACCEPTED
        self.refuses_all_others(run, client)
        client.accept(run.inbox[0])
        answer = client.upload(run.inbox[0], run.updates[0])
        assert client.accept(run.inbox[0]) == answer, "the answer that was given"
        self.refuses_all_others(run, client)

    def test_also_after_a_restart(self, run: Run) -> None:
        """The process dies between `accept` and `upload`, while the update is made."""
        run.clients[0].accept(run.inbox[0])
        client = run.restored(0)
        self.refuses_all_others(run, client)
        answer = client.upload(run.inbox[0], run.updates[0])
        assert run.restored(0, client.save()).upload(run.inbox[0], -run.updates[0]) == answer
        run.clients[0] = client
        run.server.receive(None, answer)
        for user in range(1, 5):
            run.server.receive(None, run.answer(user))
        run.inbox = run.server.close_stage()
        assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)

    def test_also_from_a_state_that_was_copied_before(self, run: Run) -> None:
        """The ledger knows of the header, whatever the state says."""
        copy = run.restored(0)
        run.clients[0].accept(run.inbox[0])
        self.refuses_all_others(run, copy)
        with pytest.raises(AlreadyAnswered, match="another process"):
            copy.upload(run.inbox[0], run.updates[0])
        answer = run.clients[0].upload(run.inbox[0], run.updates[0])
        assert copy.upload(run.inbox[0], -run.updates[0]) == answer

    def test_upload_alone_accepts_too_in_one_entry(self, run: Run) -> None:
        before = run.ledgers[0].last().version
        run.answer(0)
        assert run.ledgers[0].last().version == before + 1
        self.refuses_all_others(run, run.clients[0])

    def test_an_update_of_another_shape_leaves_no_header_on_record(self, run: Run) -> None:
        """If it came without `accept`: then nothing that was learnt from the header can have left."""
        with pytest.raises(InvalidInput):
            run.clients[0].upload(run.inbox[0], np.zeros(3, np.float32))
        other = self.other_headers(run)[0]
        assert run.clients[0].accept(other, context=OTHER) is None

    def test_an_update_that_fails_while_it_is_made_leaves_the_header_on_record(self, run: Run) -> None:
        """Whatever the update has told by then, no other header is answered."""

        class Broken:
            dim = 40

            def read(self, start: int, stop: int) -> np.ndarray:
                raise OSError("disk")

        client = run.clients[0]
        with pytest.raises(OSError, match="disk"):
            client.upload(run.inbox[0], Broken())  # type: ignore[arg-type]
        assert run.ledgers[0].last().progress == Progress.ACCEPTED
        self.refuses_all_others(run, client)
        assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)

    def test_a_header_that_is_refused_is_not_on_record(self, run: Run) -> None:
        refuses(run, 0, tampered(run.inbox[0], context=OTHER), WrongBinding)
        with pytest.raises(WrongBinding):
            run.clients[0].accept(tampered(run.inbox[0], context=OTHER))
        assert run.clients[0].accept(run.inbox[0]) is None

    def test_the_next_round_is_accepted_without_an_upload_in_this_one(self, run: Run) -> None:
        run.clients[0].accept(run.inbox[0])
        run.step(silent=[0]).run_to(Stage.SHARE_KEYS)
        run.begin()
        assert run.clients[0].accept(run.inbox[0]) is None
        assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)


class TestFailures:
    """A call that fails changes nothing, except that a refused UNMASK is used up."""

    @pytest.mark.parametrize(
        "update",
        [
            np.zeros(39, np.float32),
            np.zeros((40, 1), np.float32),
            np.zeros(40, np.int64),
            [0.0] * 40,
            None,
        ],
        ids=["short", "shape", "integers", "list", "none"],
    )
    def test_an_update_that_can_not_be_added_is_refused(self, update: object) -> None:
        run = Run(small()).begin()
        before = run.clients[0].save()
        with pytest.raises(InvalidInput, match="update must") as problem:
            run.clients[0].upload(run.inbox[0], update)  # type: ignore[arg-type]
        assert problem.value.option == "update"
        assert run.clients[0].save() == before
        assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)

    @pytest.mark.parametrize("weight", [0, 2, -1])
    def test_a_weight_in_a_run_without_weights_is_refused(self, weight: int) -> None:
        run = Run(SMALL).begin()
        before = run.clients[0].save()
        with pytest.raises(InvalidInput, match="weight must be 1"):
            run.clients[0].upload(run.inbox[0], run.updates[0], weight)
        assert run.clients[0].save() == before

    def test_no_refusal_depends_on_data(self) -> None:
        """Weights are clamped, a negative one counts as one, what is no number counts as 0 and as clipped."""
        run = Run(small(max_weight=7)).begin()
        weights = [0, 3, -5, 8, 10**9]
        run.updates[1] = np.where(np.arange(40) < 3, [np.nan] * 40, 0.5).astype(np.float32)
        run.updates[2] = np.where(np.arange(40) < 2, [np.inf] * 40, 0.5)
        for user in range(5):
            run.server.receive(None, run.clients[user].upload(run.inbox[user], run.updates[user], weights[user]))
        run.inbox = run.server.close_stage()
        result = run.run_to(Stage.SHARE_KEYS).result
        assert result.combined.weights is not None
        assert set(result.combined.weights.tolist()) == {0 + 3 + 1 + 7 + 7}
        assert (run.clients[1].clipped, run.clients[2].clipped) == (3, 2)
        assert np.isfinite(result.sum()).all()

    def test_another_context_is_refused(self) -> None:
        """The model that the user has trained is not the one that the header names."""
        run = Run(SMALL).begin()
        before = run.clients[0].save()
        with pytest.raises(WrongBinding):
            run.clients[0].upload(run.inbox[0], run.updates[0], context=OTHER)
        assert run.clients[0].save() == before
        run.answer(0)

    def test_a_refused_unmask_is_used_up(self) -> None:
        """Otherwise a server could try survivors until it likes the answer."""
        run = Run(small()).run_to(Stage.UNMASK)
        few = tampered(run.inbox[0], survivors=b"\x03", tags=bytes(8))
        with pytest.raises(PolicyViolation, match="1 survivors have valid tags for this round, 3 are needed"):
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
        run = Run(SMALL).run_to(Stage.UNMASK)
        with pytest.raises(PolicyViolation):
            run.answer(0, tampered(run.inbox[0], survivors=b"\x03", tags=bytes(8)))
        run.step(silent=[0])
        assert run.round().survivors == (0, 1, 2, 3, 4)


def secrets_of(state: ClientState, round_number: int) -> dict[str, list[Secret]]:
    """The secrets of a round, as objects: they are overwritten in place."""
    package = state.packages[round_number]
    unspent = package.for_upload()
    return {
        "mask": [unspent.mask_secret, unspent.private_seed],
        "own": [package.own_shares],
        "pairs": [state.secrets[round_number]],
    }


def is_erased(secrets: list[Secret]) -> bool:
    return not any(any(secret.reveal()) for secret in secrets)


class TestErasure:
    def test_the_sealing_key_is_erased_once_the_ratchets_exist(self) -> None:
        run = Run(small(), set_up=False)
        run.step()
        key = run.clients[0]._state.sealing_private
        assert key is not None
        assert any(key.reveal())
        run.join()
        assert is_erased([key])
        assert run.clients[0]._state.sealing_private is None

    @pytest.mark.parametrize("params", [SMALL, grouped()], ids=["one group", "groups"])
    def test_what_is_erased_when(self, params: object) -> None:
        run = Run(params).begin()  # type: ignore[arg-type]
        kept = secrets_of(run.clients[0]._state, 1)
        later = secrets_of(run.clients[0]._state, 2)
        assert all(any(secret.reveal()) for part in kept.values() for secret in part)
        run.answer(0)
        assert is_erased(kept["mask"])
        assert not is_erased(kept["own"])
        assert not is_erased(kept["pairs"])
        assert run.clients[0]._state.packages[1].unspent is None
        run.run_to(Stage.UNMASK)
        assert not is_erased(kept["own"])
        run.answer(0)
        assert is_erased([*kept["own"], *kept["pairs"]])
        state = run.clients[0]._state
        assert 1 not in state.packages
        assert 1 not in state.secrets
        assert state.header is None
        assert all(any(secret.reveal()) for part in later.values() for secret in part)

    def test_ratchets_move_on_and_the_old_ones_are_erased(self) -> None:
        """Whoever takes a node over learns nothing of earlier rounds."""
        run = Run(small())
        ratchets = run.clients[0]._state.ratchets
        assert not is_erased([ratchets])
        run.round()
        assert is_erased([ratchets])
        assert run.clients[0]._state.ratchet_round == 4

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

    def test_a_header_of_a_later_round_erases_earlier_packages(self) -> None:
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
    @pytest.mark.parametrize("params", [SMALL, small(roster=True), grouped()], ids=["plain", "roster", "groups"])
    def test_clients_are_saved_and_restored_after_every_message(self, params: object) -> None:
        """The run is the same as without, bit for bit."""
        restarted, plain = Run(params), Run(params)  # type: ignore[arg-type]
        for _ in range(3):
            plain.round(silent=[1])
            restarted.begin()
            while restarted.server.stage is not Stage.SHARE_KEYS:
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
            other.upload(tampered(run.inbox[0], context=OTHER), run.updates[0], context=OTHER)

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
        assert ledger.last() == Entry(0, -1, 0, None, None)
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
        assert ledger.last() == Entry(1, 4, 2, b"r", None)
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
            def record(self, entry: Entry, step: StateStep, *more: Any) -> None:
                super().record(entry, step, *more)
                written.append((entry, save_state(step.after)))

        client = Client(0, small(), LENIENT, ledger=Writing())
        client.advertise_keys()
        ((entry, state),) = written
        assert entry.version == 1
        assert state == client.save()

    def test_if_the_ledger_fails_nothing_leaves_and_nothing_is_erased(self) -> None:
        class Broken(MemoryLedger):
            broken = False

            def record(self, entry: Entry, step: StateStep, *more: Any) -> None:
                if self.broken:
                    raise OSError("disk full")
                super().record(entry, step, *more)

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
        assert run.run_to(Stage.SHARE_KEYS).result.survivors == (0, 1, 2, 3, 4)


def test_a_client_tells_which_round_it_is_at() -> None:
    run = Run(small())
    assert (run.clients[0].round_number, repr(run.clients[0])) == (0, "Client(user=0, round=0, epoch=1)")
    run.begin()
    run.answer(0)
    assert run.clients[0].round_number == 1
    assert decode_server_message(run.inbox[0]).round_number == 1
