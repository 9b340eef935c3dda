"""A server that lies, against the real mod: nothing of a single node is opened, and the lie is noticed."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import Result

from flower.enrolment import Enrolled, enrol_users
from flower.local_grid import LocalGrid, content_of, model, round_of, secagg, stage_of, training_app, travel, values
from sparsesecagg.crypto.identity import Identity, Roster, RunSecret, run_key
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.flower import node
from sparsesecagg.flower.node import Challenge, Enrolment, Owner
from sparsesecagg.protocol.messages import (
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    decode_users,
    encode,
    encode_users,
)
from sparsesecagg.protocol.server_group import GroupRound

USERS = 6
START = np.zeros(60, np.float32)
VICTIM = 2


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_users(tmp_path_factory.mktemp("roster"), USERS)


@pytest.fixture(params=["plain", "roster"])
def grid_and_roster(request: Any, enrolled: Enrolled) -> tuple[LocalGrid, Path | None]:
    """Six nodes, without a roster and with one."""
    if request.param == "plain":
        return LocalGrid(training_app(step), USERS), None
    return LocalGrid(training_app(step), USERS, node_config=enrolled.node_config), enrolled.roster


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


class Play:
    """A run whose server a test can step into."""

    def __init__(self, grid: LocalGrid, roster: Any = None, **settings: Any) -> None:
        self.grid, self.strategy = grid, secagg(roster=roster, **{"threshold": 4, **settings})

    def start(self, rounds: int = 1) -> Result:
        return self.strategy.start(grid=self.grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=0.3)

    @property
    def round(self) -> GroupRound:
        """The only group in the round under way."""
        assert self.strategy._run is not None
        return self.strategy._run.server.rounds[0]

    def header_without(self, missing: int, user: int) -> bytes:
        """Return the header that a user would get if somebody's package had not arrived, correct in itself."""
        honest = self.round
        packages = {index: package for index, package in honest.packages.items() if index != missing}
        other = GroupRound(honest.epoch, honest.header.round_number, packages, honest.header.context)
        return other.headers()[user]


def rewrite(message: Message, **fields: Any) -> None:
    content_of(message)["secagg"] = ConfigRecord({**content_of(message)["secagg"], **fields})


def payload(message: Message) -> bytes:
    return bytes(content_of(message)["secagg"]["payload"])


def opened_kinds(grid: LocalGrid, owner: int) -> Counter[str]:
    """Return how many shares of each kind nodes gave for one owner."""
    kinds: Counter[str] = Counter()
    for _, reply in grid.replied:
        if stage_of(reply) == "UNMASK":
            answer = decode_client_message(payload(reply))
            assert isinstance(answer, Unmask)
            if owner in decode_users(answer.owners, USERS):
                kinds["private seed" if owner in decode_users(answer.survivors, USERS) else "mask key"] += 1
    return kinds


def test_a_node_that_is_told_other_members_gets_nobody_to_open_what_it_sends(grid_and_roster: Any) -> None:
    """The victim masks under an order of its own; the server then passes it off as one of the others."""
    grid, roster = grid_and_roster
    play = Play(grid, roster)

    def lie(node: int, message: Message) -> None:
        if node == 100 + VICTIM and stage_of(message) == "UPLOAD":
            rewrite(message, payload=play.header_without(missing=5, user=VICTIM))

    def pass_off(node: int, reply: Message) -> list[Message]:
        if node == 100 + VICTIM and stage_of(reply) == "UPLOAD":
            upload = decode_client_message(payload(reply))
            assert isinstance(upload, Upload)
            forged = msgspec.structs.replace(upload, binding=play.round.header.binding, tags=upload.tags + bytes(8))
            rewrite(reply, payload=encode(forged))
        return [reply]

    grid.before, grid.after = lie, pass_off
    result = play.start()
    record = play.strategy.history[0]
    assert record.dropped["UPLOAD"] == 0, "the server has taken the victim's upload"
    # To the others it has no valid tag, so it counts as dropped: its upload stays behind its private seed.
    assert opened_kinds(grid, VICTIM) == {"mask key": USERS - 1}
    assert record.survivors == USERS - 1
    np.testing.assert_allclose(values(result.arrays)["w"], 0.01 * (1 + 2 + 4 + 5 + 6) / 5, atol=1e-5)


def test_different_survivors_for_different_nodes_open_nothing() -> None:
    """Half of the nodes hear that the victim dropped out. Whoever has both kinds of its shares could read it."""
    grid = LocalGrid(training_app(step), USERS)
    play = Play(grid)

    def equivocate(node: int, message: Message) -> None:
        if stage_of(message) == "UNMASK" and node in (103, 104, 105) and round_of(message) == 1:
            request = decode_server_message(payload(message))
            assert isinstance(request, UnmaskRequest)
            place = node - 100
            others = [user for user in range(USERS) if user not in (VICTIM, place)]
            partners = [user for user in range(USERS) if user != place]
            tags = [request.tags[8 * number : 8 * number + 8] for number in range(len(partners))]
            kept = b"".join(tag for user, tag in zip(partners, tags, strict=True) if user != VICTIM)
            survivors = encode_users(np.array(sorted([*others, place])), USERS)
            rewrite(message, payload=encode(msgspec.structs.replace(request, survivors=survivors, tags=kept)))

    grid.before = equivocate
    result = play.start()
    kinds = opened_kinds(grid, VICTIM)
    assert kinds == {"private seed": 3, "mask key": 3}  # Four open a secret.
    assert play.strategy.history[0].failure is not None
    np.testing.assert_array_equal(values(result.arrays)["w"], START)


class TestTwice:
    """Two answers for one stage would give both kinds of share away."""

    def caught(self, act: Any) -> tuple[LocalGrid, list[Message]]:
        """Run a round and let `act` see node 100's UNMASK message instead of the node; return what it made of it."""
        grid = LocalGrid(training_app(step), USERS)
        replies: list[Message] = []

        def before(node: int, message: Message) -> None:
            if node == 100 and stage_of(message) == "UNMASK":
                replies.extend(act(grid, message))
                raise RuntimeError("the test has asked already")

        grid.before = before
        Play(grid).start()
        return grid, replies

    @staticmethod
    def without_victim(message: Message) -> Message:
        """Return the message with another set of survivors, tags and all."""
        request = decode_server_message(payload(message))
        assert isinstance(request, UnmaskRequest)
        left = [user for user in range(USERS) if user != VICTIM]
        tags = b"".join(
            request.tags[8 * number : 8 * number + 8] for number, user in enumerate(range(1, USERS)) if user != VICTIM
        )
        changed = travel(message)
        survivors = encode_users(np.array(left), USERS)
        rewrite(changed, payload=encode(msgspec.structs.replace(request, survivors=survivors, tags=tags)))
        return changed

    def test_of_two_tasks_at_the_same_time_one_is_answered_and_the_other_refused_by_name(self) -> None:
        def both(grid: LocalGrid, message: Message) -> list[Message]:
            barrier, replies = threading.Barrier(2), []

            def task(each: Message) -> None:
                context = copy.deepcopy(grid.contexts[100])  # As Flower reads it at the start of a task.
                barrier.wait()
                replies.append(grid.app(each, context))

            threads = [threading.Thread(target=task, args=(each,)) for each in (message, self.without_victim(message))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return replies

        _, replies = self.caught(both)
        assert sorted(reply.has_error() for reply in replies) == [False, True]
        (refused,) = [str(reply.error.reason) for reply in replies if reply.has_error()]
        assert "AlreadyAnswered" in refused

    def test_a_context_that_is_put_back_changes_nothing(self) -> None:
        def put_back(grid: LocalGrid, message: Message) -> list[Message]:
            kept = copy.deepcopy(grid.contexts[100])
            first = grid.app(message, grid.contexts[100])
            return [first, grid.app(self.without_victim(message), kept), grid.app(message, kept)]

        _, (first, second, again) = self.caught(put_back)
        assert not first.has_error()
        assert "AlreadyAnswered" in str(second.error.reason)
        assert payload(again) == payload(first)

    def test_a_control_without_a_ledger_gives_both_kinds_of_share(self, tmp_path: Path) -> None:
        """So that the tests above can fail: two copies of the ledger are two memories."""

        def two_memories(grid: LocalGrid, message: Message) -> list[Message]:
            copytree(Owner(grid.contexts[100]).folder, tmp_path / "copy")
            (tmp_path / "copy").chmod(0o700)
            first = grid.app(message, grid.contexts[100])
            other = copy.deepcopy(grid.contexts[100])
            other.node_config["secagg-ledger"] = str(tmp_path / "copy")
            return [first, grid.app(self.without_victim(message), other)]

        _, (first, second) = self.caught(two_memories)
        assert not first.has_error()
        assert not second.has_error()
        assert payload(first) != payload(second)

    def test_a_second_header_for_one_round_is_refused(self) -> None:
        """The same model again with one user less: the difference of both sums would be that user."""
        grid = LocalGrid(training_app(step), USERS)
        play = Play(grid)
        replies: list[Message] = []

        def again(node: int, reply: Message) -> list[Message]:
            if node == 100 and stage_of(reply) == "UPLOAD":
                order = next(m for n, m in grid.sent[::-1] if n == 100 and stage_of(m) == "UPLOAD")
                changed = travel(order)
                rewrite(changed, payload=play.header_without(missing=5, user=0))
                replies.append(grid.app(changed, grid.contexts[100]))
            return [reply]

        grid.after = again
        play.start()
        refusal = replies[0].error.reason if replies[0].has_error() else content_of(replies[0])["secagg"]["refused"]
        assert "AlreadyAnswered" in str(refusal)


def test_two_uploads_at_the_same_time_deal_one_package_per_round() -> None:
    """While a node trains, its server has the same order answered by a second process of the node."""
    answers: list[Message] = []

    def training(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        if partition == 0 and server_round == 1 and not answers:
            answers.append(None)  # type: ignore[arg-type]  # Once.
            order = next(message for node, message in grid.sent[::-1] if node == 100 and stage_of(message) == "UPLOAD")
            answers[0] = grid.app(travel(order), grid.contexts[100])
        return step(partition, arrays, server_round)

    grid = LocalGrid(training_app(training), USERS)
    Play(grid).start()
    outer = [
        reply for node, reply in grid.replied if node == 100 and (reply.has_error() or stage_of(reply) == "UPLOAD")
    ]
    packages = [
        [] if reply.has_error() else content_of(reply)["secagg"].get("packages", []) for reply in (*answers, outer[0])
    ]
    assert packages[0], "the second process was first"
    dealt = {bytes(each) for some in packages for each in some}
    assert len({decode_client_message(each).round_number for each in dealt}) == len(dealt)


def test_messages_of_an_earlier_round_are_refused_and_do_no_harm(grid_and_roster: Any) -> None:
    grid, roster = grid_and_roster
    play = Play(grid, roster)
    old: dict[str, Message] = {}
    reasons: dict[str, str] = {}

    def replay(node: int, message: Message) -> None:
        stage = stage_of(message)
        if node == 100 and round_of(message) == 1 and stage in ("UPLOAD", "UNMASK"):
            old[stage] = travel(message)
        if node == 100 and round_of(message) == 2 and stage in old:
            reply = grid.app(old[stage], grid.contexts[100])
            reasons[stage] = str(reply.error.reason if reply.has_error() else content_of(reply)["secagg"]["refused"])

    grid.before = replay
    play.start(rounds=2)
    assert set(reasons) == set(old)
    assert all("AlreadyAnswered" in reason for reason in reasons.values())
    assert [record.survivors for record in play.strategy.history] == [USERS] * 2


def test_an_impostor_whom_the_server_lets_in_gets_nothing_opened(
    enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gives user 2's seat to somebody without its run secret."""
    genuine = Roster.load(enrolled.roster)
    impostor = Identity.__new__(Identity)
    impostor.user, impostor.roster = VICTIM, genuine
    key = run_key(RunSecret(bytes(range(32))), genuine.run)
    impostor._agreement, impostor._agreed = KeyAgreement(key), {}
    honest, files = node._enrolment, enrolled.node_config(VICTIM)

    def enrolled_as(named: dict[str, Path]) -> Any:
        mine = str(named[node.RUN_KEY]) == files[node.RUN_KEY]
        return Enrolment(impostor, key) if mine else honest(named)

    monkeypatch.setattr(node, "_enrolment", enrolled_as)
    monkeypatch.setattr(Challenge, "verify", lambda *_: None)
    grid = LocalGrid(training_app(step), USERS, node_config=enrolled.node_config)
    play = Play(grid, enrolled.roster)
    result = play.start()
    assert play.strategy.history[0].failure is not None
    assert opened_kinds(grid, VICTIM) == {}
    np.testing.assert_array_equal(values(result.arrays)["w"], START)
