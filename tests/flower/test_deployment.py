"""Flower for real: nodes in Ray, nodes as processes, nodes that die, TLS and node authentication.

These tests start processes and wait for them, so they take turns, even when several workers run tests. Each has a limit
of its own, and checks that it leaves no process behind.
"""

from __future__ import annotations

import fcntl
import json
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flower.enrolment import enrol_users
from flower.federation import LocalFederation, Node

APP = Path(__file__).parent / "mean_app"

pytestmark = [pytest.mark.timeout(580), pytest.mark.slow]


@pytest.fixture(autouse=True)
def one_at_a_time() -> Iterator[None]:
    """Two cores carry one deployment at a time."""
    with (Path(tempfile.gettempdir()) / "sparsesecagg-deployment-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def step(partition: int, server_round: int) -> float:
    """The app's own training, see mean_app/__init__.py."""
    return 0.01 * (partition + 1) * server_round


def weight(partition: int) -> int:
    """The app's own number of examples: a power of two, so that rounding weights changes nothing."""
    return int(2 ** (1 + partition % 4))


def mean_step(partitions: list[int], server_round: int) -> float:
    """Return the mean over nodes, by their numbers of examples."""
    weights = [weight(partition) for partition in partitions]
    moved = sum(weight * step(partition, server_round) for partition, weight in zip(partitions, weights, strict=True))
    return moved / sum(weights)


class Outcome:
    """What the app wrote down."""

    def __init__(self, path: Path, output: str) -> None:
        assert path.is_file(), output[-6000:]
        content = json.loads(path.read_text(encoding="utf-8"))
        self.rounds: list[dict[str, Any]] = content["rounds"]
        self.models = {int(number): model for number, model in content["models"].items()}

    def require(self, server_round: int, survivors: list[int]) -> None:
        """Assert that a round added exactly the mean of these nodes, everywhere; nothing if there are none."""
        expected = mean_step(survivors, server_round) if survivors else 0.0
        low, high, _ = self.models[server_round]
        before_low, before_high, _ = self.models[server_round - 1]
        assert low - before_low == pytest.approx(expected, abs=1e-6)
        assert high - before_high == pytest.approx(expected, abs=1e-6)


def wait_for(node: Node, text: str, count: int, timeout: float) -> None:
    """Return when a node has logged something so many times."""
    deadline = time.monotonic() + timeout
    while node.log_text().count(text) < count:
        assert time.monotonic() < deadline, node.log_text()[-3000:]
        time.sleep(0.05)


FIRST_ROUND = 6
"""Messages of a first round, which exchanges keys and votes on ranges."""
RAY_TOO_SLOW = "The current node timed out during startup"


def test_a_simulation_in_ray_with_a_client_that_raises_in_every_round(tmp_path: Path) -> None:
    """10 nodes, 3 rounds, another client fails in each: every aggregate is the mean of the other nine."""
    out = tmp_path / "out.json"
    resources = "num-supernodes=10 client-resources-num-cpus=1 init-args-num-cpus=2"
    settings = {"rounds": 3, "nodes": 10, "raising": "2@1 5@2 7@3", "out": str(out)}
    for attempt in range(3):
        with LocalFederation(tmp_path / f"deployment-{attempt}", simulation=True) as federation:
            log = federation.run(APP, settings, ["--federation-config", resources]).finish(timeout=240)
        assert federation.processes() == []
        # Ray gives its own start 30 seconds, which a busy machine may not have.
        if RAY_TOO_SLOW not in log:
            break
    outcome = Outcome(out, log)
    for number, failing in ((1, 2), (2, 5), (3, 7)):
        outcome.require(number, [partition for partition in range(10) if partition != failing])
        assert outcome.rounds[number - 1]["dropped"]["UPLOAD"] == 1


def test_a_deployment_survives_kills(tmp_path: Path) -> None:
    """Five SuperNodes. One is killed when it has done with round 1, so that it never uploads in round 2; there another
    one is told to end when it is asked to unmask."""
    with LocalFederation(tmp_path / "deployment") as federation:
        for index in range(5):
            federation.add_node(index, {"partition-id": index, "num-partitions": 5})
        federation.wait_for_nodes(5, timeout=120)
        out = tmp_path / "out.json"
        # Long enough for four uploads on a busy machine. Flower itself notices after a minute that a node was killed.
        run = federation.run(APP, {"rounds": 2, "upload-seconds": 60.0, "out": str(out)})
        wait_for(federation.nodes[4], "Sent successfully", FIRST_ROUND, timeout=240)
        federation.signal_node(4, signal.SIGKILL)
        wait_for(federation.nodes[3], "Receiving: train message", FIRST_ROUND + 2, timeout=180)
        federation.signal_node(3, signal.SIGTERM)
        outcome = Outcome(out, run.finish(timeout=240))
    assert federation.processes() == []
    assert [record["status"] for record in outcome.rounds] == ["ok"] * 2
    assert [record["exchanges"] for record in outcome.rounds] == [FIRST_ROUND, 2]
    outcome.require(1, [0, 1, 2, 3, 4])
    assert outcome.rounds[1]["dropped"]["UPLOAD"] == 1
    outcome.require(2, [0, 1, 2, 3])
    assert outcome.rounds[1]["dropped"]["UNMASK"] == 1


def test_tls_node_authentication_a_roster_a_stranger_who_is_rejected_and_a_server_that_is_killed(
    tmp_path: Path,
) -> None:
    """Three SuperNodes with run keys take part in authenticated rounds; a fourth was never registered. The ServerApp is
    killed in round 2; another one goes on from its folder, in the same epoch."""
    users = enrol_users(tmp_path / "users", 3)
    with LocalFederation(tmp_path / "deployment", tls=True) as federation:
        keys = [federation.new_key(f"node-key-{index}") for index in range(4)]
        for key in keys[:3]:
            federation.register(key)
        for index, key in enumerate(keys):
            config = {"partition-id": index, "num-partitions": 3, **users.node_config(2 - index if index < 3 else 0)}
            federation.add_node(index, config, key)
        federation.wait_for_nodes(3)
        out = tmp_path / "out.json"
        folder = tmp_path / "run"
        settings = {"rounds": 2, "nodes": 3, "roster": str(users.roster), "out": str(out), "run-dir": str(folder)}
        federation.run(APP, settings).wait_for("SecAgg round 1: ", timeout=240)
        federation.kill_server()
        outcome = Outcome(out, federation.run(APP, settings).finish(timeout=240))
        stranger = federation.nodes[3]
        assert stranger.process.wait(timeout=30) != 0
    assert federation.processes() == []
    first, second = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    assert (first["survivors"], second["survivors"]) == (3, 3)
    assert first["exchanges"] == FIRST_ROUND
    assert outcome.models[1][:2] == pytest.approx([mean_step([0, 1, 2], 1)] * 2, abs=1e-6)
    assert [record["round"] for record in outcome.rounds] == [2]
    assert second["exchanges"] == 3  # Nodes are first asked what Flower's new run has told them.
    outcome.require(2, [0, 1, 2])
    assert "SuperNode ID" not in stranger.log_text()
    assert "Failed to activate SuperNode" in stranger.log_text()


@pytest.mark.soak  # In one process, tests/flower/test_privacy.py has the same, with copies of ledgers too.
def test_nodes_answer_until_their_privacy_budget_and_no_further_also_after_a_restart(tmp_path: Path) -> None:
    """Noise for ε = 3.2 in three rounds; the nodes allow 2, which is one round. Their ledgers say what was spent."""

    def spent() -> list[tuple[float, float]]:
        files = [tmp_path / "deployment" / f"ledger-{index}" / "ledger.sqlite3" for index in range(3)]
        return [sqlite3.connect(file).execute("SELECT rho, xi FROM budget").fetchone() for file in files]

    settings = {"rounds": 3, "nodes": 3, "dp-epsilon": 3.2, "upload-seconds": 60.0, "out": str(tmp_path / "out.json")}
    config = {"num-partitions": 3, "secagg-max-epsilon": 2, "secagg-clip": 1.0}
    with LocalFederation(tmp_path / "deployment") as federation:
        for index in range(3):
            federation.add_node(index, {"partition-id": index, **config})
        federation.wait_for_nodes(3, timeout=120)
        output = federation.run(APP, settings).finish(timeout=240)
        assert "SecAgg round 1: the sum of 3 of 3 nodes" in output
        assert "nodes have spent their own privacy budgets" in output
        once = spent()
        assert len(set(once)) == 1 and once[0][0] > 0
        for index in range(3):
            federation.signal_node(index, signal.SIGTERM)
            federation.nodes[index].process.wait(timeout=60)
        for index in range(3):
            federation.add_node(index, {"partition-id": index, **config})
        federation.wait_for_nodes(3, timeout=120)
        output = federation.run(APP, settings).finish(timeout=240)
        assert "SecAgg round 1: the sum" not in output
        assert "2 is allowed" in output
        assert spent() == once
    assert federation.processes() == []
