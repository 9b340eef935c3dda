"""The server takes each message once, at its stage, from whom it expects it; anything else changes nothing."""

from __future__ import annotations

import errno
import inspect
import pydoc
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest

from protocol.rounds import Run, grouped, small, tampered_by_user
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidInput,
    InvalidShare,
    MalformedMessage,
    ProtocolError,
    ThresholdNotMet,
    UnknownSender,
    WrongBinding,
    WrongRound,
    WrongSender,
    WrongStage,
)
from sparsesecagg.patterns.base import GroupSum
from sparsesecagg.protocol import Server, Stage, server_group
from sparsesecagg.protocol.combine import Sum, Total
from sparsesecagg.protocol.messages import decode_client_message, user_number
from sparsesecagg.protocol.stages import ROUND_STAGES, SERVER_TRANSITIONS, STAGES

ROUND = [Stage.UPLOAD, Stage.UNMASK]


def refused(server: Server, data: bytes, error: type[ProtocolError]) -> None:
    """The message is refused, and the genuine one of the same user is still welcome afterwards."""
    waiting, stage = server.waiting_for, server.stage
    with pytest.raises(error):
        server.receive(None, data)
    assert (server.waiting_for, server.stage) == (waiting, stage)


@pytest.mark.parametrize("stage", ROUND)
class TestEveryStage:
    @pytest.fixture
    def run(self, stage: Stage) -> Run:
        return Run(small(roster=True, threshold=4)).run_to(stage)

    def test_a_second_message_is_refused(self, run: Run) -> None:
        answer = run.answer(0)
        run.server.receive(None, answer)
        refused(run.server, answer, DuplicateMessage)

    def test_an_unknown_sender_is_refused(self, run: Run) -> None:
        refused(run.server, tampered_by_user(run.answer(0), number=user_number(77)), UnknownSender)
        refused(run.server, tampered_by_user(run.answer(0), number=user_number(5)), UnknownSender)

    def test_a_sender_that_is_not_who_the_transport_says_is_refused(self, run: Run) -> None:
        with pytest.raises(WrongSender) as refusal:
            run.server.receive(1, run.answer(0))
        assert (refusal.value.sender, refusal.value.origin) == (0, 1)
        assert "sender 0" in str(refusal.value)
        assert "user 1" in str(refusal.value)
        assert 0 in run.server.waiting_for

    def test_a_message_of_another_round_is_refused(self, run: Run) -> None:
        for number in (0, 2):
            refused(run.server, tampered_by_user(run.answer(0), round_number=number), WrongRound)

    def test_a_message_about_another_header_is_refused(self, run: Run) -> None:
        refused(run.server, tampered_by_user(run.answer(0), binding=bytes(8)), WrongBinding)

    def test_a_message_of_another_run_is_refused(self, run: Run, stage: Stage) -> None:
        other = Run(small(roster=True, threshold=4), seed=3).run_to(stage)
        refused(run.server, other.answer(0), WrongBinding)

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
        for broken in (b"", answer[:-1], answer + b"\0", b"\x07" + answer[1:], b"\x03rubbish", answer[:1]):
            refused(run.server, broken, MalformedMessage)

    def test_too_few_users_end_the_round_without_a_result(self, run: Run, stage: Stage) -> None:
        """Five users, four needed. The run goes on."""
        with pytest.raises(ThresholdNotMet) as failure:
            run.step(silent=[0, 1])
        assert (failure.value.stage, failure.value.survivors, failure.value.needed) == (stage.name, 3, 4)
        assert run.server.result is None
        with pytest.raises(WrongStage):
            run.server.close_stage()
        run.share_keys()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_dropouts_are_counted_where_they_happen(self, run: Run, stage: Stage) -> None:
        run.step(silent=[3])
        run.run_to(Stage.SHARE_KEYS)
        assert run.result.dropped == {
            name: int(name == stage.name) for name in ("SHARE_KEYS", *(s.name for s in ROUND))
        }

    def test_whom_the_server_waits_for(self, run: Run) -> None:
        assert run.server.waiting_for == {0, 1, 2, 3, 4}
        run.server.receive(None, run.answer(2))
        assert run.server.waiting_for == {0, 1, 3, 4}


def test_stages_are_one_table() -> None:
    assert [stage.name for stage in STAGES] == ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"]
    assert [SERVER_TRANSITIONS[stage]["close_stage"] for stage in ROUND_STAGES] == [Stage.UNMASK, Stage.SHARE_KEYS]


@pytest.mark.parametrize("pattern", ["full", "pairwise", "sliced"])
def test_uploads_that_do_not_fit_are_refused_and_nothing_of_them_stays_in_the_sum(pattern: str) -> None:
    run = Run(small(pattern=pattern)).begin()
    genuine = run.answer(0)
    upload: Any = decode_client_message(genuine)
    for change in (
        {"words": memoryview(bytes(upload.words)[:-4])},
        {"words": memoryview(bytes(upload.words) + bytes(4))},
        {"locations": b"\x00\x01"},
        {"tags": upload.tags[:-1]},
        {"tags": upload.tags + bytes(TAG_SIZE)},
        {"tags": b""},
    ):
        refused(run.server, tampered_by_user(genuine, **change), MalformedMessage)
    run.server.receive(None, genuine)
    for user in range(1, 5):
        run.server.receive(None, run.answer(user))
    run.inbox = run.server.close_stage()
    run.run_to(Stage.SHARE_KEYS)
    if pattern != "pairwise":
        assert np.abs(run.result.sum() - np.clip(run.updates, -1, 1).sum(axis=0)).max() < 1e-6


class TestUnmask:
    @pytest.fixture
    def run(self) -> Run:
        return Run(small(clients=9, neighbours=4)).run_to(Stage.UNMASK)

    def test_shares_of_secrets_that_the_sender_does_not_hold_are_refused(self, run: Run) -> None:
        everybody = tampered_by_user(run.answer(0), owners=b"\xff\x01", shares=bytes(20 * 9))
        refused(run.server, everybody, InvalidShare)
        run.server.receive(None, run.answer(0))

    def test_a_share_outside_the_field_or_of_another_length_is_refused(self, run: Run) -> None:
        genuine = run.answer(0)
        shares = decode_client_message(genuine).shares  # type: ignore[union-attr]
        refused(run.server, tampered_by_user(genuine, shares=b"\xff" * len(shares)), InvalidShare)
        refused(run.server, tampered_by_user(genuine, shares=shares[:-1]), MalformedMessage)
        refused(run.server, tampered_by_user(genuine, shares=shares + bytes(20)), MalformedMessage)
        refused(run.server, tampered_by_user(genuine, owners=b"\x01"), MalformedMessage)


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

    def test_the_context_is_checked_before_anything_changes(self) -> None:
        run = Run(small())
        with pytest.raises(InvalidInput) as problem:
            run.server.begin_round(context=b"short")
        assert problem.value.option == "context"
        assert run.server.round_number == 0
        assert run.round().coordinates_updated == 1

    def test_a_round_without_any_package_fails_with_a_typed_error(self) -> None:
        """A server that skips the rounds that packages were made for."""
        run = Run(small()).begin(7)
        assert run.inbox == {}
        with pytest.raises(ThresholdNotMet, match="0 users left at UPLOAD, 3 are needed"):
            run.server.close_stage()
        run.share_keys()
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_what_was_shared_for_rounds_that_are_over_is_forgotten(self) -> None:
        run = Run(small()).begin(2)
        assert set(run.server._epoch.groups[0].packages) <= {3, 4}

    def test_a_result_is_that_of_the_last_round_that_was_opened(self) -> None:
        run = Run(small())
        run.round()
        run.begin()
        assert run.server.result is None


class TestThinGroups:
    """A group below its threshold loses the round, and nothing else."""

    @pytest.mark.parametrize(
        ("stage", "reason"),
        [
            (Stage.SHARE_KEYS, "3 of its users sent key packages, 4 are needed"),
            (Stage.UPLOAD, "3 of its users uploaded, 4 are needed"),
            (Stage.UNMASK, "3 of its users sent shares, 4 are needed"),
        ],
    )
    def test_the_others_are_opened(self, stage: Stage, reason: str) -> None:
        thin = Run(grouped(), set_up=False).server.groups.groups[1].users.tolist()
        run = Run(grouped(), late=thin[:3] if stage is Stage.SHARE_KEYS else ()).begin()
        assert bool(set(run.inbox) & set(thin)) == (stage is not Stage.SHARE_KEYS), "no header for a round that is lost"
        run.step(silent=thin[:3] if stage is Stage.UPLOAD else ())
        result = run.step(silent=thin[:3] if stage is Stage.UNMASK else ()).result
        assert dict(result.lost) == {1: reason}
        assert result.groups_opened == 1
        assert result.survivors == tuple(sorted(set(range(12)) - set(thin)))
        assert result.coordinates_updated == 0.25
        assert not result.mean()[~result.updated].any()
        run.share_keys()
        assert run.round().groups_opened == 2

    def test_if_nothing_at_all_can_be_opened_the_round_fails_at_once(self) -> None:
        run = Run(grouped()).begin()
        silent = [user for group in run.server.groups.groups for user in group.users.tolist()[:3]]
        with pytest.raises(ThresholdNotMet, match="6 users left at UPLOAD, 8 are needed"):
            run.step(silent=silent)

    def test_same_slices_survive_the_loss_of_a_group(self) -> None:
        run = Run(grouped(same_slices=True))
        result = run.round(silent=run.server.groups.groups[0].users.tolist()[:3])
        assert result.coordinates_updated == 0.25
        assert sorted(set(result.contributors.tolist())) == [0, 6]
        assert sorted(set(run.round().contributors.tolist())) == [0, 12]


def test_slices_rotate_over_the_rounds_and_sums_are_right() -> None:
    """Two groups, each sends a quarter: after four rounds everybody has sent everything once."""
    run = Run(grouped(dim=37, clip=10.0))
    sent = np.zeros((12, 37), np.int64)
    for _ in range(4):
        result = run.round()
        truth = np.zeros(37)
        for each in run.server.rounds:
            users = each.epoch.group.users
            for index in each.header.masked_sum().indices():
                truth[index] += np.clip([run.updates[user][index] for user in users], -10, 10).sum(axis=0)
                sent[np.ix_(users, np.arange(37)[index])] += 1
        assert result.sum() == pytest.approx(truth, abs=1e-5)
    assert (sent == 1).all()


def test_uploads_are_kept_until_the_round_is_over_and_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is counted as dropped comes out of the sum again, wherever its words were."""
    results = []
    for room in (1 << 29, 100, 0):
        monkeypatch.setattr(server_group, "IN_MEMORY", room)
        run = Run(small()).begin()
        for user in range(5):
            answer = run.answer(user)
            run.server.receive(None, tampered_by_user(answer, tags=bytes(32)) if user == 3 else answer)
        run.inbox = run.server.close_stage()
        results.append(run.run_to(Stage.SHARE_KEYS).result)
        assert results[-1].survivors == (0, 1, 2, 4)
    assert all((result.total == results[0].total).all() for result in results)


def test_an_upload_that_can_not_be_kept_is_not_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for one user; the others' sum is right."""
    run = Run(small()).begin()
    answers = {user: run.answer(user) for user in range(5)}
    with monkeypatch.context() as patch:
        patch.setattr(server_group.Kept, "keep", full_disk)
        with pytest.raises(OSError, match="No space left"):
            run.server.receive(None, answers.pop(3))
    for answer in answers.values():
        run.server.receive(None, answer)
    run.inbox = run.server.close_stage()
    result = run.run_to(Stage.SHARE_KEYS).result
    assert result.survivors == (0, 1, 2, 4)
    truth = np.sum([np.clip(run.updates[user], -10, 10) for user in result.survivors], axis=0)
    assert result.sum() == pytest.approx(truth, abs=1e-5)


def full_disk(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_server_knows_which_packages_it_lacks() -> None:
    run = Run(small(), absent=[4])
    assert run.server.lacking(0) == []
    assert run.server.lacking(4) == []
    run.begin()
    assert run.server.lacking(0) == [3]
    run.server.receive(None, run.clients[0].share_keys(1)[0])
    assert run.server.lacking(0) == []
    assert run.server.shared(2) == {0, 1, 2, 3}
    assert run.server.shared(3) == {0}


def test_the_order_of_arrival_does_not_matter() -> None:
    results: list[np.ndarray] = []
    orders: list[Callable[[list[int]], list[int]]] = [list, lambda users: users[::-1]]
    for order in orders:
        run = Run(small(pattern="pairwise")).begin()
        while run.server.stage is not Stage.SHARE_KEYS:
            for user in order(list(run.inbox)):
                run.server.receive(None, run.answer(user))
            run.inbox = run.server.close_stage()
        results.append(run.result.total)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("params", [small(), small(roster=True), grouped()], ids=["plain", "roster", "groups"])
def test_the_sizes_of_all_messages_are_counted(params: object) -> None:
    run = Run(params).begin()  # type: ignore[arg-type]
    sent: dict[str, dict[int, int]] = {"SHARE_KEYS": {}}
    received: dict[str, dict[int, int]] = {"SHARE_KEYS": {}}
    while run.server.stage is not Stage.SHARE_KEYS:
        stage = run.server.stage
        received[stage.name] = {user: len(data) for user, data in run.inbox.items()}
        sent[stage.name] = {}
        for user in run.inbox:
            answer = run.answer(user)
            run.server.receive(None, answer)
            sent[stage.name][user] = len(answer)
            if stage is Stage.UPLOAD:
                (package,) = run.clients[user].share_keys(1)
                run.server.receive(None, package)
                sent["SHARE_KEYS"][user] = len(package)
        run.inbox = run.server.close_stage()
    assert run.inbox == {}
    for found, expected in ((run.result.sent_bytes, sent), (run.result.received_bytes, received)):
        assert {stage: sorted(sizes) for stage, sizes in found.items()} == {
            stage: sorted(sizes.values()) for stage, sizes in expected.items()
        }


def test_weights_are_summed_by_group() -> None:
    run = Run(grouped(max_weight=50)).begin()
    weights = {user: user % 7 for user in range(12)}
    for user in run.inbox:
        run.server.receive(None, run.clients[user].upload(run.inbox[user], run.updates[user], weights[user]))
    run.inbox = run.server.close_stage()
    result = run.run_to(Stage.SHARE_KEYS).result
    assert result.combined.weights is not None
    for each in run.server.rounds:
        total = sum(weights[user] for user in each.epoch.group.users.tolist())
        for index in each.header.masked_sum().indices():
            assert set(result.combined.weights[index].tolist()) == {total}


def test_threads_change_nothing_but_time() -> None:
    """Groups are opened side by side; the sum is the same, bit for bit."""
    totals = []
    for threads in (1, 3):
        run = Run(grouped())
        run.server.threads = threads
        totals.append(run.round(silent=[2, 9]).total)
    assert (totals[0] == totals[1]).all()
    assert Server(small(), threads=1).threads == 1


def test_a_combiner_of_the_callers_own_gets_the_sums_of_all_groups() -> None:
    class Largest(Sum):
        """The sum of the group whose users are the most."""

        groups: ClassVar[list[tuple[int, ...]]] = []

        def add(self, opened: GroupSum) -> None:
            self.groups.append(opened.users)
            super().add(opened)

        def total(self) -> Total:
            return replace(super().total(), robust=np.full(self.params.dim, 0.5, np.float32))

    run = Run(grouped())
    run.server = Server(run.params, threads=1, combine=Largest)
    run.inbox = dict.fromkeys(run.clients, b"")
    for client in run.clients.values():
        client.advertise_keys(2)
    run.server.begin_epoch(2)
    run.set_up()
    assert (run.round().mean() == 0.5).all()
    assert sorted(user for users in Largest.groups for user in users) == list(range(12))


def test_help_shows_what_a_caller_reads() -> None:
    text = pydoc.plain(pydoc.render_doc(Server))
    for name in ("stage", "result", "waiting_for"):
        assert inspect.getdoc(getattr(Server, name))
        assert f"\n |  {name}\n" in text


def test_uploads_beyond_what_memory_holds_come_back_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order they come, and each as long as it was."""
    monkeypatch.setattr(server_group, "IN_MEMORY", 100)
    params = small(dim=20)
    sent = {user: bytes([user]) * (80 - user) for user in (3, 0, 4, 1)}
    kept = server_group.Kept(params)
    found = {user: kept.keep(user, words) for user, words in sent.items()}
    assert {user: bytes(words) for user, words in found.items()} == sent
    assert found[3] is sent[3]
    assert found[0] is not sent[0]
    assert kept.keep(2, b"") == b""


def test_the_rounds_that_a_user_lacks_packages_for() -> None:
    run = Run(small(), late=[2])
    assert (run.server.lacking(2), run.server.lacking(1)) == ([1, 2], [])


def test_a_new_epoch_has_no_rounds_and_nobody_dropped_yet() -> None:
    run = Run(small())
    run.round()
    assert run.server.rounds
    run.server.begin_epoch()
    assert not run.server.rounds
    assert run.server.dropped == {"ADVERTISE_KEYS": 0}
    assert set(run.server.sent_bytes) == {"ADVERTISE_KEYS", "SHARE_KEYS"}
