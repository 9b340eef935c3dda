"""Authenticated rounds through Flower: a roster, and servers and nodes that lie."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, Result

from flower.enrolment import Enrolled, enrol_users
from flower.local_grid import (
    LocalGrid,
    Silent,
    content_of,
    model,
    round_of,
    secagg,
    stage_of,
    training_app,
    values,
)
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import RefusedByAll, SecAgg
from sparsesecagg.lab.cli import main

USERS = 6
THRESHOLD = 4
START = np.zeros(60, np.float32)
STAGES = ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"]


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Enrolled:
    return enrol_users(tmp_path_factory.mktemp("roster"), USERS)


def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
    """Move by 0.01 in partition 0, by 0.02 in partition 1, and so on."""
    return {"w": arrays["w"] + np.float32(0.01 * (partition + 1))}


def grid_of(
    enrolled: Enrolled, nodes: int = USERS, user_of: Callable[[int], int] = lambda index: index, **faults: Any
) -> LocalGrid:
    """Return nodes 100, 101, … that hold the run keys of users 0, 1, … unless told otherwise."""
    folder = Path(os.environ["SPARSESECAGG_LEDGER"])  # A ledger goes with its key.

    def config(index: int) -> dict[str, Any]:
        user = user_of(index)
        return {**enrolled.node_config(user), "secagg-ledger": str(folder / f"user-{user}")}

    return LocalGrid(training_app(step), nodes, node_config=config, **faults)


def run(grid: LocalGrid, roster: Any, rounds: int = 1, inner: Any = None, **settings: Any) -> tuple[SecAgg, Result]:
    strategy = secagg(inner, roster=roster, **settings)
    return strategy, strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=rounds, timeout=0.3)


def reason_of(grid: LocalGrid, roster: Any) -> str:
    """Return why all nodes refuse to take part."""
    with pytest.raises(RefusedByAll) as raised:
        run(grid, roster)
    return str(raised.value)


def mean_of(partitions: Any) -> float:
    return float(np.mean([0.01 * (partition + 1) for partition in partitions]))


def rewrite(message: Message, **fields: Any) -> None:
    """Change entries of a message's control record."""
    content_of(message)["secagg"] = ConfigRecord({**content_of(message)["secagg"], **fields})


def sent_stages(grid: LocalGrid, node: int) -> list[str]:
    return [stage_of(message) for to, message in grid.sent if to == node]


class TestRounds:
    def test_the_mean_is_exact_and_a_round_takes_two_exchanges(self, enrolled: Enrolled) -> None:
        strategy, result = run(grid_of(enrolled), enrolled.roster, rounds=3)
        np.testing.assert_allclose(values(result.arrays)["w"], 3 * mean_of(range(USERS)), atol=1e-5)
        assert [record.exchanges for record in strategy.history] == [4, 2, 2]
        assert [record.survivors for record in strategy.history] == [USERS] * 3

    @pytest.mark.parametrize("stage", STAGES)
    def test_a_node_may_drop_out_at_every_stage(self, enrolled: Enrolled, stage: str) -> None:
        def silent(node: int, message: Message) -> None:
            if node == 101 and stage_of(message) == stage:
                raise Silent

        strategy, result = run(grid_of(enrolled, before=silent), enrolled.roster)
        survivors = range(USERS) if stage == "UNMASK" else [0, 2, 3, 4, 5]
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(survivors), atol=1e-5)
        assert strategy.history[0].dropped[stage] == 1

    @pytest.mark.parametrize("stage", ["UPLOAD", "UNMASK"])
    def test_as_many_as_the_threshold_says_must_stay(self, enrolled: Enrolled, stage: str) -> None:
        def silent(node: int, message: Message) -> None:
            if node < 103 and stage_of(message) == stage and round_of(message) == 1:
                raise RuntimeError("no power")

        strategy, result = run(grid_of(enrolled, before=silent), enrolled.roster, rounds=2)
        assert f"3 users left at {stage}, {THRESHOLD} are needed" in str(strategy.history[0].failure)
        assert strategy.history[1].failure is None
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(USERS)), atol=1e-5)

    def test_users_who_were_not_invited_are_dropouts_and_the_numbers_stay(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled)
        grid.online.discard(100)
        strategy, result = run(grid, enrolled.roster)
        assert strategy.history[0].dropped["ADVERTISE_KEYS"] == 1
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(1, USERS)), atol=1e-5)

    def test_a_user_that_comes_late_takes_part_when_a_new_epoch_begins(self, enrolled: Enrolled) -> None:
        """Which it does when the groups are no longer viable: here, when two others have gone, too."""
        grid = grid_of(enrolled)
        grid.online.discard(100)

        def arrive(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and node == 105:
                grid.online.add(100)
                if round_of(message) == 2:
                    grid.online -= {103, 104}

        grid.before = arrive
        strategy, _ = run(grid, enrolled.roster, rounds=4)
        assert [record.survivors for record in strategy.history] == [5, 5, 4, 4]
        assert [record.protocol_round for record in strategy.history] == [1, 2, 3, 4]
        assert [record.exchanges for record in strategy.history] == [4, 2, 5, 2]

    def test_a_server_that_was_started_again_goes_on_with_the_next_round(self, enrolled: Enrolled) -> None:
        """It has lost its memory; what nodes have seen of rounds and epochs tells it where it was."""
        grid = grid_of(enrolled)
        first, _ = run(grid, enrolled.roster, rounds=2)
        second, _ = run(grid, enrolled.roster, rounds=2)
        assert [record.protocol_round for record in first.history] == [1, 2]
        assert [record.protocol_round for record in second.history] == [3, 4]
        assert [record.survivors for record in second.history] == [USERS] * 2
        assert [record.exchanges for record in second.history] == [5, 2]  # Keys are asked for twice.

    def test_so_does_one_that_died_in_the_middle_of_a_round(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled)

        class Crash(BaseException):
            """Nobody handles this."""

        def die(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and round_of(message) == 2 and node == 103:
                raise Crash

        grid.before = die
        with pytest.raises(Crash):
            run(grid, enrolled.roster, rounds=2)
        grid.before = None
        second, _ = run(grid, enrolled.roster, rounds=2)
        assert [record.protocol_round for record in second.history] == [3, 4]
        assert [record.survivors for record in second.history] == [USERS] * 2

    def test_a_new_run_with_the_same_roster_may_have_other_settings(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled)
        run(grid, enrolled.roster)
        second, _ = run(grid, enrolled.roster, modulus_bits=24)
        assert second.history[0].survivors == USERS

    def test_paths_of_a_simulation_come_from_the_environment(
        self, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its nodes have no configuration but the number of their partition, and the server has no say in paths."""
        monkeypatch.setenv("SPARSESECAGG_ROSTER", str(enrolled.roster))
        monkeypatch.setenv("SPARSESECAGG_RUN_KEY", str(enrolled.folder / "{partition-id}.key"))
        strategy, _ = run(LocalGrid(training_app(step), USERS), enrolled.roster)
        assert strategy.history[0].survivors == USERS

    def test_a_run_of_several_groups_ends_with_its_sixteenth_epoch(self, tmp_path: Path) -> None:
        """All draws are known from the start, so there are not more of them than were planned for."""
        users = enrol_users(tmp_path, USERS)
        roster = dataclasses.replace(Roster.load(users.roster), group_size=3, colluding=0.0)
        roster.save(users.roster)
        config = {"secagg-colluding": 0.0}
        grid = LocalGrid(training_app(step), USERS, node_config=lambda user: {**users.node_config(user), **config})
        for _ in range(16):
            assert run(grid, users.roster)[0].history[0].survivors == USERS
        failure = run(grid, users.roster)[0].history[0].failure
        assert "epoch must be at most 16 in a run of several groups" in str(failure)

    def test_accusers_and_exclusions_are_remembered_in_the_next_epoch(self, enrolled: Enrolled) -> None:
        strategy, _ = run(grid_of(enrolled), enrolled.roster)
        assert strategy._run is not None and strategy._template is not None
        before = strategy._run.server
        before.accusers, before.excluded = {4: {1}}, {3: "sent false shares"}
        after = strategy._new_run(before.params, strategy._template, USERS).server
        assert after.epoch_number == before.epoch_number + 1
        assert (after.accusers, after.excluded) == (before.accusers, before.excluded)

    def test_in_several_groups_as_many_as_may_collude_can_not_end_the_run_by_made_up_numbers(
        self, tmp_path: Path
    ) -> None:
        """Two of twenty, which is more than a tenth of a group of five."""
        users = enrol_users(tmp_path, 20)
        dataclasses.replace(Roster.load(users.roster), group_size=5).save(users.roster)

        def after(node: int, reply: Message) -> list[Message]:
            if node in (100, 101) and stage_of(reply) == "ADVERTISE_KEYS":
                lie = {"last-round": 1 << 40, "last-epoch": 15}
                reply.content["secagg"] = ConfigRecord({**content_of(reply)["secagg"], **lie})
            return [reply]

        for _ in range(2):
            grid = LocalGrid(training_app(step), 20, after=after, node_config=users.node_config)
            strategy, _ = run(grid, users.roster)
            assert strategy.history[0].failure is None
            assert strategy.history[0].survivors >= 18


class TestDowngrade:
    """A server that wants the protection gone: nodes that have a roster take part in nothing less."""

    def refusals(self, grid: LocalGrid) -> set[str]:
        return {str(reply.error.reason) for _, reply in grid.replied if reply.has_error()}

    def test_a_round_without_a_roster_is_refused_before_any_key_is_made(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled)
        assert "the run is not authenticated, the policy demands a roster" in reason_of(grid, None)
        assert {stage_of(message) for _, message in grid.sent} == {"ADVERTISE_KEYS"}
        assert len(self.refusals(grid)) == 1

    def test_so_is_one_that_names_another_run_after_the_keys_were_advertised(self, enrolled: Enrolled) -> None:
        def strip(node: int, message: Message) -> None:
            if stage_of(message) == "SHARE_KEYS":
                rewrite(message, run=bytes(32), user=node - 100)

        reason = reason_of(grid_of(enrolled, before=strip), enrolled.roster)
        assert "bound to another roster than this node's, or to none" in reason

    def test_so_is_a_server_without_secure_aggregation(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled)
        FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=model(w=START), num_rounds=1)
        assert len(self.refusals(grid)) == 1
        assert "MissingStrategy" in self.refusals(grid).pop()

    def test_whoever_submits_the_run_can_not_name_another_roster(self, enrolled: Enrolled, tmp_path: Path) -> None:
        """Nor take it away: the node's own configuration counts."""
        other = enrol_users(tmp_path, USERS)
        run_config = {
            "secagg-roster": str(other.roster),
            "secagg-run-key": str(other.folder / "{partition-id}.key"),
            "secagg-authenticated": False,
        }
        assert "bound to another roster" in reason_of(grid_of(enrolled, run_config=run_config), other.roster)
        assert "the policy demands a roster" in reason_of(grid_of(enrolled, run_config=run_config), None)

    def test_a_node_may_demand_authentication_without_having_a_roster_yet(self) -> None:
        grid = LocalGrid(training_app(step), 4, node_config=lambda index: {"secagg-authenticated": True})
        assert "the policy demands a roster" in reason_of(grid, None)


class TestSeats:
    """A node has the number that it proves; nobody else gets it."""

    def test_numbers_follow_the_keys_and_not_the_order_of_the_nodes(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled, user_of=lambda index: USERS - 1 - index)
        run(grid, enrolled.roster)
        said = {n: content_of(r)["secagg"]["user"] for n, r in grid.replied if stage_of(r) == "ADVERTISE_KEYS"}
        assert said == {100 + index: USERS - 1 - index for index in range(USERS)}

    @pytest.mark.parametrize("theirs", ["nothing", "another roster", "another key"])
    def test_a_stranger_is_rejected_and_sees_no_model(
        self, enrolled: Enrolled, tmp_path: Path, theirs: str, caplog: Any
    ) -> None:
        other = enrol_users(tmp_path, USERS)
        strange = {
            "nothing": {},
            "another roster": other.node_config(2),
            "another key": {**enrolled.node_config(2), "secagg-run-key": str(other.run_key(2))},
        }[theirs]
        grid = LocalGrid(
            training_app(step),
            USERS + 1,
            node_config=lambda index: strange if index == USERS else enrolled.node_config(index),
        )
        strategy, result = run(grid, enrolled.roster)
        # Asked for packages in the first round too: it might have been a user that was restarted.
        assert sent_stages(grid, 100 + USERS) == ["ADVERTISE_KEYS", "SHARE_KEYS"]
        assert not [m for n, m in grid.sent if n == 100 + USERS and m.content.array_records]
        assert strategy.history[0].survivors == USERS
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of(range(USERS)), atol=1e-5)
        assert f"node {100 + USERS} refused at ADVERTISE_KEYS" in caplog.text

    @pytest.mark.parametrize("when", ["in the same round", "in a later attempt"])
    def test_the_proof_of_another_node_proves_nothing(self, enrolled: Enrolled, when: str, caplog: Any) -> None:
        """It speaks of one node and of one session; the stranger comes first, so that the seat is still free."""
        stolen: list[Message] = []
        grid = grid_of(enrolled)
        if when == "in a later attempt":
            run(grid, enrolled.roster)
            stolen += [reply for node, reply in grid.replied if node == 102 and stage_of(reply) == "ADVERTISE_KEYS"]

        def steal(node: int, reply: Message) -> list[Message]:
            if node != 100 or stage_of(reply) != "ADVERTISE_KEYS":
                return [reply]
            if not stolen:
                victim = next(m for n, m in grid.sent if n == 102 and stage_of(m) == "ADVERTISE_KEYS")
                stolen.append(grid.app(victim, grid.contexts[102]))
            rewrite(reply, **dict(content_of(stolen[0])["secagg"]))
            return [reply]

        grid.after = steal
        strategy, _ = run(grid, enrolled.roster)
        assert "node 100 is rejected: it does not prove to be user 2" in caplog.text
        assert strategy.history[0].rejected >= 1
        assert strategy.history[0].survivors == USERS - 1

    @pytest.mark.parametrize(
        "lie", [{"user": 3}, {"user": 600}, {"user": -1}, {"user": "2"}, {"proof": bytes(32)}, {"proof": 7}], ids=str
    )
    def test_a_claim_that_was_changed_on_the_way_is_rejected(self, enrolled: Enrolled, lie: dict[str, Any]) -> None:
        def change(node: int, reply: Message) -> list[Message]:
            if node == 102 and stage_of(reply) == "ADVERTISE_KEYS":
                rewrite(reply, **lie)
            return [reply]

        strategy, result = run(grid_of(enrolled, after=change), enrolled.roster)
        assert strategy.history[0].rejected >= 1
        np.testing.assert_allclose(values(result.arrays)["w"], mean_of([0, 1, 3, 4, 5]), atol=1e-5)

    def test_of_two_nodes_with_one_key_the_second_is_turned_away(self, enrolled: Enrolled, caplog: Any) -> None:
        grid = grid_of(enrolled, USERS + 1, user_of=lambda index: 2 if index == USERS else index)
        strategy, result = run(grid, enrolled.roster, rounds=2)
        assert "node 106 is rejected: user 2 of the roster is node 102, which is present" in caplog.text
        assert [record.survivors for record in strategy.history] == [USERS] * 2
        np.testing.assert_allclose(values(result.arrays)["w"], 2 * mean_of(range(USERS)), atol=1e-5)

    def test_a_node_that_comes_back_under_another_id_gets_its_number_again(self, enrolled: Enrolled) -> None:
        """It has its ledger and proves itself with its packages; no new epoch is needed."""
        grid = grid_of(enrolled, USERS + 1, user_of=lambda index: 2 if index == USERS else index)
        grid.online.discard(106)

        def restart(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and round_of(message) == 1 and node == 105:
                grid.online = grid.online - {102} | {106}

        grid.before = restart
        strategy, _ = run(grid, enrolled.roster, rounds=3)
        assert [record.survivors for record in strategy.history] == [USERS, USERS - 1, USERS]
        assert [record.exchanges for record in strategy.history] == [4, 2, 2]

    def test_when_all_come_back_under_other_ids_they_are_asked_who_they_are_first(self, enrolled: Enrolled) -> None:
        grid = grid_of(enrolled, 2 * USERS, user_of=lambda index: index % USERS)
        grid.online = set(range(100, 100 + USERS))

        def restart(node: int, message: Message) -> None:
            if stage_of(message) == "UNMASK" and round_of(message) == 1 and node == 105:
                grid.online = set(range(100 + USERS, 100 + 2 * USERS))

        grid.before = restart
        strategy, _ = run(grid, enrolled.roster, rounds=3)
        assert [record.survivors for record in strategy.history] == [USERS] * 3
        assert [record.exchanges for record in strategy.history] == [4, 3, 2]


class TestConfiguration:
    def test_the_files_of_the_roster_command_are_what_nodes_and_server_read(self, tmp_path: Path) -> None:
        """As docs/flower-nodes.md says: identity, enrol, build, check; the identity's key is of no use to the node."""

        def roster(*arguments: object) -> None:
            with pytest.raises(SystemExit) as ended:
                main(["roster", *map(str, arguments), "--json"])
            assert ended.value.code == 0

        entries = [tmp_path / f"{user}.json" for user in range(3)]
        for user, entry in enumerate(entries):
            key, run_key = tmp_path / f"{user}.identity", tmp_path / f"{user}.key"
            roster("identity", "--key", key)
            roster("enrol", "--key", key, "--run", "digits", "--run-key", run_key, "--entry", entry)
            key.unlink()
        made = Enrolled(tmp_path)
        roster("build", "--run", "digits", "--roster", made.roster, *entries)
        roster("check", "--roster", made.roster)
        strategy, _ = run(grid_of(made, 3), made.roster)
        assert strategy.history[0].survivors == 3

    def failure(self, enrolled: Enrolled, node_config: dict[str, Any]) -> str:
        grid = LocalGrid(training_app(step), USERS, node_config=lambda index: node_config)
        return reason_of(grid, enrolled.roster)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"secagg-run-key": None}, "secagg-run-key must be named in the same configuration as secagg-roster"),
            ({"secagg-roster": None}, "secagg-roster must be named in the same configuration as secagg-run-key"),
            ({"secagg-roster": ""}, "secagg-roster must be a path"),
            ({"secagg-roster": 5}, "secagg-roster must be a path"),
            ({"secagg-roster": "/nowhere/roster.json"}, "secagg-roster must be the path of a roster file"),
            ({"secagg-roster": "0.key"}, "secagg-roster must be a roster file"),
            ({"secagg-run-key": "/nowhere/0.key"}, "secagg-run-key must be the path of a private run key"),
            ({"secagg-run-key": "roster.json"}, "secagg-run-key must be a file of 32 bytes"),
            ({"secagg-trusted": "roster.json"}, "secagg-trusted must be a file with one public identity key"),
            ({"secagg-runkey": "x"}, "is not a setting of a node: use one of"),
        ],
        ids=str,
    )
    def test_what_does_not_fit_together_is_refused_by_name(
        self, enrolled: Enrolled, changes: dict[str, Any], said: str
    ) -> None:
        here = {
            key: str(enrolled.folder / value) if isinstance(value, str) and value and "/" not in value else value
            for key, value in changes.items()
        }
        config = {key: value for key, value in {**enrolled.node_config(0), **here}.items() if value is not None}
        assert said in self.failure(enrolled, config)

    def test_trusted_identities_must_be_those_of_the_roster(self, enrolled: Enrolled, tmp_path: Path) -> None:
        """So a roster may be handed on by anybody, the server included."""
        known = [entry.identity.hex() for entry in Roster.load(enrolled.roster).entries]
        trusted = tmp_path / "trusted.txt"
        grid = LocalGrid(
            training_app(step),
            USERS,
            node_config=lambda index: {**enrolled.node_config(index), "secagg-trusted": str(trusted)},
        )
        trusted.write_text("\n".join(known), encoding="utf-8")
        assert run(grid, enrolled.roster)[0].history[0].survivors == USERS
        trusted.write_text("\n".join([*known[:-1], "ab" * 32]), encoding="utf-8")
        assert "user 5 of the roster has another identity than the trusted one" in reason_of(grid, enrolled.roster)

    @pytest.mark.parametrize(
        ("settings", "option"),
        [
            ({"threshold": 3}, "threshold"),
            ({"neighbours": 2}, "neighbours"),
            ({"group_size": 3}, "group_size"),
            ({"roster": "/nowhere/roster.json"}, "roster"),
        ],
        ids=str,
    )
    def test_settings_that_do_not_fit_the_roster_are_refused_at_construction(
        self, enrolled: Enrolled, settings: dict[str, Any], option: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            secagg(**{"roster": enrolled.roster, **settings})
        assert caught.value.option == option

    def test_a_strategy_that_chooses_too_few_stops_the_first_round_with_the_remedy(self, enrolled: Enrolled) -> None:
        with pytest.raises(InvalidInput, match=r"must choose 4 nodes or more.* raise fraction_train"):
            run(grid_of(enrolled), enrolled.roster, inner=FedAvg(fraction_train=0.5, fraction_evaluate=0.0))

    def test_no_run_key_is_in_anything_that_a_node_keeps_or_sends(
        self, enrolled: Enrolled, caplog: Any, ledger: Path
    ) -> None:
        grid = grid_of(enrolled)
        run(grid, enrolled.roster, rounds=2)
        spoken = repr([dict(content_of(reply)["secagg"]) for _, reply in grid.replied])
        kept = b"".join(path.read_bytes() for path in ledger.glob("*/ledger.sqlite3*"))
        for user in range(USERS):
            key = enrolled.run_key(user).read_bytes()
            assert key not in kept
            for spelling in (repr(key)[2:-1], key.hex()):
                assert spelling not in spoken
                assert spelling not in caplog.text
