"""The server takes each message once, at its stage, from whom it expects it; anything else changes nothing."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from protocol.rounds import Run, grouped, small, tampered_by_user, updates, with_roster
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidInput,
    InvalidShare,
    MalformedMessage,
    ProtocolError,
    ThresholdNotMet,
    TooLittleOpened,
    UnknownSender,
    WrongRound,
    WrongSender,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol import Server, Stage, drawn
from sparsesecagg.protocol.messages import decode_client_message, user_number
from sparsesecagg.protocol.stages import STAGES, next_stage, round_stages

ROUND = [Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK]


def refused(server: Server, data: bytes, error: type[ProtocolError]) -> None:
    """The message is refused, and the genuine one of the same user is still welcome afterwards."""
    waiting, stage = server.waiting_for, server.stage
    with pytest.raises(error):
        server.receive(data)
    assert (server.waiting_for, server.stage) == (waiting, stage)


@pytest.mark.parametrize("stage", ROUND)
class TestEveryStage:
    @pytest.fixture
    def run(self, stage: Stage) -> Run:
        return Run(with_roster(small)).run_to(stage)

    def test_a_second_message_is_refused(self, run: Run) -> None:
        answer = run.answer(0)
        run.server.receive(answer)
        refused(run.server, answer, DuplicateMessage)

    def test_an_unknown_sender_is_refused(self, run: Run) -> None:
        refused(run.server, tampered_by_user(run.answer(0), number=user_number(77)), UnknownSender)
        refused(run.server, tampered_by_user(run.answer(0), number=user_number(5)), UnknownSender)

    def test_a_sender_that_is_not_who_the_transport_says_is_refused(self, run: Run) -> None:
        with pytest.raises(WrongSender) as refusal:
            run.server.receive(run.answer(0), sender=1)
        assert (refusal.value.sender, refusal.value.origin) == (0, 1)
        assert "user 0" in str(refusal.value)
        assert "user 1" in str(refusal.value)
        assert 0 in run.server.waiting_for

    def test_a_message_of_another_round_is_refused(self, run: Run) -> None:
        for number in (0, 2):
            refused(run.server, tampered_by_user(run.answer(0), round_number=number), WrongRound)

    def test_a_message_about_another_order_is_refused(self, run: Run) -> None:
        refused(run.server, tampered_by_user(run.answer(0), view=bytes(8)), WrongView)

    def test_a_message_of_another_run_is_refused(self, run: Run, stage: Stage) -> None:
        other = Run(with_roster(small), seed=3).run_to(stage)
        refused(run.server, other.answer(0), WrongView)

    def test_a_late_message_is_refused(self, run: Run) -> None:
        late = run.answer(0)
        run.step(silent=[0])
        refused(run.server, late, WrongStage)

    def test_a_user_who_missed_a_stage_is_out_of_the_round(self, run: Run, stage: Stage) -> None:
        run.step(silent=[0])
        assert 0 not in run.inbox
        if stage is not Stage.UNMASK:
            refused(run.server, tampered_by_user(run.answer(1), number=user_number(0)), UnknownSender)

    def test_truncated_trailing_and_foreign_bytes_are_refused(self, run: Run) -> None:
        answer = run.answer(0)
        for broken in (b"", answer[:-1], answer + b"\0", b"\x07" + answer[1:], b"\x02rubbish", answer[:1]):
            refused(run.server, broken, MalformedMessage)

    def test_too_few_users_end_the_round_without_a_result(self, run: Run, stage: Stage) -> None:
        """Five users, four needed. The run goes on."""
        with pytest.raises(ThresholdNotMet) as failure:
            run.step(silent=[0, 1])
        assert (failure.value.stage, failure.value.survivors, failure.value.needed) == (stage.name, 3, 4)
        assert run.server.result is None
        with pytest.raises(WrongStage):
            run.server.close_stage()
        run.deal()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_dropouts_are_counted_where_they_happen(self, run: Run, stage: Stage) -> None:
        run.step(silent=[3])
        run.run_to(Stage.DONE)
        assert run.result.dropped == {
            name: int(name == stage.name) for name in ("SHARE_KEYS", *(s.name for s in ROUND))
        }

    def test_whom_the_server_waits_for(self, run: Run) -> None:
        assert run.server.waiting_for == {0, 1, 2, 3, 4}
        run.server.receive(run.answer(2))
        assert run.server.waiting_for == {0, 1, 3, 4}


def test_stages_are_one_table() -> None:
    assert [stage.name for stage in STAGES] == ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "CONFIRM", "UNMASK"]
    assert round_stages(False) == (Stage.UPLOAD, Stage.UNMASK)
    assert round_stages(True) == tuple(ROUND)
    assert [next_stage(stage, True) for stage in ROUND] == [Stage.CONFIRM, Stage.UNMASK, Stage.DONE]
    assert [next_stage(stage, False) for stage in round_stages(False)] == [Stage.UNMASK, Stage.DONE]


@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
def test_uploads_that_do_not_fit_are_refused_and_nothing_of_them_stays_in_the_sum(pattern: str) -> None:
    run = Run(small(pattern=pattern)).begin()
    genuine = run.answer(0)
    upload: Any = decode_client_message(genuine)
    for change in (
        {"words": memoryview(bytes(upload.words)[:-4])},
        {"words": memoryview(bytes(upload.words) + bytes(4))},
        {"words": memoryview(b"\xff" * len(upload.words))},
        {"locations": b"\x00\x01"},
        {"tags": upload.tags[:-1]},
        {"tags": upload.tags + bytes(TAG_SIZE)},
        {"tags": b""},
    ):
        refused(run.server, tampered_by_user(genuine, **change), MalformedMessage)
    run.server.receive(genuine)
    for user in range(1, 5):
        run.server.receive(run.answer(user))
    run.inbox = run.server.close_stage()
    run.run_to(Stage.DONE)
    if pattern != "pairwise":
        assert np.abs(run.result.sum() - np.clip(run.updates, -1, 1).sum(axis=0)).max() < 1e-6


class TestUnmask:
    @pytest.fixture
    def run(self) -> Run:
        return Run(small(clients=9, neighbours=4)).run_to(Stage.UNMASK)

    def test_shares_of_secrets_that_the_sender_does_not_hold_are_refused(self, run: Run) -> None:
        everybody = tampered_by_user(run.answer(0), owners=b"\xff\x01", shares=bytes(20 * 9))
        refused(run.server, everybody, InvalidShare)
        run.server.receive(run.answer(0))

    def test_a_share_outside_the_field_or_of_another_length_is_refused(self, run: Run) -> None:
        genuine = run.answer(0)
        shares = decode_client_message(genuine).shares  # type: ignore[union-attr]
        refused(run.server, tampered_by_user(genuine, shares=b"\xff" * len(shares)), InvalidShare)
        refused(run.server, tampered_by_user(genuine, shares=shares[:-1]), MalformedMessage)
        refused(run.server, tampered_by_user(genuine, shares=shares + bytes(20)), MalformedMessage)
        refused(run.server, tampered_by_user(genuine, owners=b"\x01"), MalformedMessage)

    def test_confirmations_of_the_wrong_length_are_refused(self) -> None:
        run = Run(with_roster(small)).run_to(Stage.CONFIRM)
        for tags in (b"short", bytes(3 * TAG_SIZE), bytes(5 * TAG_SIZE)):
            refused(run.server, tampered_by_user(run.answer(0), tags=tags), MalformedMessage)

    def test_who_did_not_confirm_is_not_asked_for_shares(self) -> None:
        run = Run(with_roster(small)).run_to(Stage.CONFIRM)
        run.step(silent=[3])
        assert set(run.inbox) == {0, 1, 2, 4}
        assert run.run_to(Stage.DONE).result.survivors == (0, 1, 2, 3, 4)


class TestRounds:
    def test_rounds_are_numbered_from_one_and_only_go_up(self) -> None:
        run = Run(small())
        run.round()
        assert run.result.round_number == 1
        for number in (1, 0, -1):
            with pytest.raises(WrongRound):
                run.server.begin_round(number)
        run.begin(2)
        assert run.server.round_number == 2

    def test_no_round_begins_in_another(self) -> None:
        run = Run(small()).begin()
        with pytest.raises(WrongStage):
            run.server.begin_round()

    def test_terms_and_the_demanded_fraction_are_checked_before_anything_changes(self) -> None:
        run = Run(small())
        for option, value in (("terms", b"short"), ("min_updated", 1.5), ("min_updated", -0.1)):
            with pytest.raises(InvalidInput) as problem:
                run.server.begin_round(**{option: value})  # type: ignore[arg-type]
            assert problem.value.option == option
        assert run.server.round_number == 0
        assert run.round(min_updated=1.0).coordinates_updated == 1

    def test_a_round_without_any_package_fails_with_a_typed_error(self) -> None:
        """A server that leaps over the rounds that packages were dealt for."""
        run = Run(small()).begin(7)
        assert run.inbox == {}
        with pytest.raises(ThresholdNotMet, match="0 users left at UPLOAD, 3 are needed"):
            run.server.close_stage()
        run.deal()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_what_was_dealt_for_rounds_that_are_over_is_forgotten(self) -> None:
        run = Run(small()).begin(2)
        assert set(run.server._epoch.pods[0].packages) <= {3, 4}  # type: ignore[union-attr]

    def test_a_result_is_that_of_the_last_round_that_was_opened(self) -> None:
        run = Run(small())
        run.round()
        run.begin()
        assert run.server.result is None


class TestThin:
    """Thin committees and pods lose their slices for the round, and nothing else."""

    def test_a_committee_with_too_few_survivors_loses_its_slices(self) -> None:
        run = Run(grouped(min_survivors=3, threshold=5))
        thin = run.committees()[2]
        result = run.round(silent=thin[:2])
        assert dict(result.lost) == {2: "2 survivors, 3 are needed"}
        assert result.committees_opened == 3
        lost = run.params.slices.of(2, 1)
        assert [number for number, count in enumerate(result.contributors_per_slice) if not count] == lost
        assert result.coordinates_updated == 0.75
        assert not result.mean()[~result.updated].any()
        assert run.round().committees_opened == 4

    def test_a_committee_with_too_few_packages_gets_no_order(self) -> None:
        params = grouped(min_survivors=3, pods=1)
        probe = Run(params)
        thin = probe.committees()[1]
        run = Run(params, late=thin[:2]).begin()
        assert not set(run.inbox) & set(thin)
        run.run_to(Stage.DONE)
        assert dict(run.result.lost) == {1: "2 packages"}

    def test_a_pod_below_its_threshold_loses_all_its_committees(self) -> None:
        run = Run(grouped(min_survivors=1, threshold=7))
        pod = run.server.groups.pods[0]
        silent = [run.committees()[0][0], run.committees()[1][0]]
        result = run.round(silent=silent)
        assert set(result.lost) == {0, 1}
        assert "6 of 7 users that a pod needs" in result.lost[0]
        assert set(result.survivors) == set(range(16)) - set(silent)
        assert len(pod) == 8

    def test_a_pod_that_releases_too_few_shares_loses_all_its_committees(self) -> None:
        run = Run(grouped(min_survivors=1, threshold=7)).run_to(Stage.UNMASK)
        run.step(silent=run.server.groups.pods[1].users.tolist()[:2])
        assert set(run.result.lost) == {2, 3}
        assert "6 of the 7 users" in run.result.lost[2]

    def test_a_pod_with_too_few_packages_loses_all_its_committees(self) -> None:
        params = grouped(min_survivors=1, threshold=7)
        probe = Run(params)
        late = [probe.committees()[0][0], probe.committees()[1][0]]
        run = Run(params, late=late).begin()
        run.run_to(Stage.DONE)
        assert set(run.result.lost) == {0, 1}
        assert "6 of its 7 users sent packages" in run.result.lost[0]

    def test_the_caller_can_demand_a_least_fraction(self) -> None:
        run = Run(grouped(min_survivors=3, threshold=5))
        thin = run.committees()[0][:2]
        with pytest.raises(TooLittleOpened, match=r"only 75\.0% of the coordinates were opened, 76\.0% are demanded"):
            run.round(silent=thin, min_updated=0.76)
        assert run.server.result is None
        run.deal()
        assert run.round(silent=run.committees()[0][:2], min_updated=0.75).coordinates_updated == 0.75

    def test_if_nothing_at_all_can_be_opened_the_round_fails_at_once(self) -> None:
        run = Run(grouped(min_survivors=4, threshold=5)).begin()
        silent = [committee[0] for committee in run.committees()]
        with pytest.raises(TooLittleOpened, match="nothing was opened: 3 survivors, 4 are needed at UPLOAD"):
            run.step(silent=silent)

    def test_a_slice_that_several_committees_serve_survives_one_of_them(self) -> None:
        run = Run(grouped(min_survivors=3, threshold=5, served=2))
        result = run.round(silent=run.committees()[2][:2])
        assert result.coordinates_updated == 1
        assert sorted(result.contributors_per_slice.tolist()) == [4, 4, 8, 8]


def test_sums_rotate_over_the_rounds_and_are_right() -> None:
    """Four committees, each sends a quarter: after four rounds everybody has sent everything once."""
    run = Run(grouped(dim=37, clip=10.0))
    sent = np.zeros((16, 37), np.int64)
    for _ in range(4):
        result = run.round()
        truth = np.zeros(37)
        for number, users in enumerate(run.committees()):
            for each in run.params.slices.of(number, result.round_number):
                start, stop = run.params.slices.bounds(each)
                truth[start:stop] += np.clip([run.updates[user][start:stop] for user in users], -10, 10).sum(axis=0)
                sent[users, start:stop] += 1
        assert result.sum() == pytest.approx(truth, abs=1e-5)
        assert (result.contributors == 4).all()
    assert (sent == 1).all()


def test_uploads_are_added_on_arrival_and_forgotten() -> None:
    """The server's memory does not grow with the number of uploads."""
    run = Run(small(clients=12, dim=5000)).begin()
    work = None
    for user in range(12):
        run.server.receive(run.answer(user))
        (now,) = run.server.pod_rounds[0]._works.values()
        assert work is None or now is work
        work = now
    assert work is not None
    held = [value.nbytes for value in vars(work).values() if isinstance(value, np.ndarray)]
    assert held == [8 * run.params.width]


def test_the_order_of_arrival_does_not_matter() -> None:
    results: list[np.ndarray] = []
    orders: list[Callable[[list[int]], list[int]]] = [list, lambda users: users[::-1]]
    for order in orders:
        run = Run(small(pattern="pairwise")).begin()
        while run.server.stage is not Stage.DONE:
            for user in order(list(run.inbox)):
                run.server.receive(run.answer(user))
            run.inbox = run.server.close_stage()
        results.append(run.result.total)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("params", [small(), with_roster(small), grouped()], ids=["plain", "roster", "grouped"])
def test_the_sizes_of_all_messages_are_counted(params: object) -> None:
    run = Run(params).begin()  # type: ignore[arg-type]
    sent: dict[str, dict[int, int]] = {"SHARE_KEYS": {}}
    received: dict[str, dict[int, int]] = {"SHARE_KEYS": {}}
    while run.server.stage is not Stage.DONE:
        stage = run.server.stage
        received[stage.name] = {user: len(data) for user, data in run.inbox.items()}
        sent[stage.name] = {}
        for user in run.inbox:
            answer = run.answer(user)
            run.server.receive(answer)
            sent[stage.name][user] = len(answer)
            if stage is Stage.UPLOAD:
                (package,) = run.clients[user].share_keys(1)
                run.server.receive(package)
                sent["SHARE_KEYS"][user] = len(package)
        run.inbox = run.server.close_stage()
    assert run.inbox == {}
    for found, expected in ((run.result.sent_bytes, sent), (run.result.received_bytes, received)):
        assert {stage: sorted(sizes) for stage, sizes in found.items()} == {
            stage: sorted(sizes.values()) for stage, sizes in expected.items()
        }


def test_weights_are_summed_by_slice() -> None:
    run = Run(grouped(max_weight=50, served=2))
    weights = {user: user % 7 for user in range(16)}
    run.begin()
    for user in run.inbox:
        run.server.receive(run.clients[user].upload(run.inbox[user], run.updates[user], weights[user]))
    run.inbox = run.server.close_stage()
    run.run_to(Stage.DONE)
    expected = np.zeros(4, np.int64)
    for number, users in enumerate(run.committees()):
        expected[run.params.slices.of(number, 1)] += sum(weights[user] for user in users)
    assert run.result.weight_per_slice is not None
    assert run.result.weight_per_slice.tolist() == expected.tolist()
    assert len(updates(run.params)) == 16


def test_threads_change_nothing_but_time() -> None:
    """Committees are opened side by side; the sum is the same, bit for bit."""
    totals = []
    for threads in (1, 3):
        run = Run(grouped(served=2))
        run.server.threads = threads
        totals.append(run.round(silent=[2, 9]).total)
    assert (totals[0] == totals[1]).all()
    params = Run(small()).params
    for threads in (0, -1):
        with pytest.raises(InvalidInput, match="threads must be at least 1"):
            Server(params, digest("seed of a test", b"\0"), threads=threads)
    assert Server(params, digest("seed of a test", b"\0"), threads=1).threads == 1


@pytest.mark.parametrize("modulus_bits", [12, 16, 32])
def test_words_that_wait_for_their_private_masks_make_the_same_sum(
    modulus_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All uploads of `pairwise` wait, or some, or none, as there is room."""
    results = []
    for room in (1 << 26, 60, 0):
        monkeypatch.setattr(drawn, "_WAITING", room)
        run = Run(small(pattern="pairwise", alpha=0.5, modulus_bits=modulus_bits))
        results.append(run.round(silent=[2]))
    for result in results[1:]:
        assert (result.total == results[0].total).all()
        assert (result.counts == results[0].counts).all()


def test_help_shows_what_a_caller_reads() -> None:
    text = pydoc.plain(pydoc.render_doc(Server))
    for name in ("stage", "result", "waiting_for"):
        assert inspect.getdoc(getattr(Server, name))
        assert f"\n |  {name}\n" in text
