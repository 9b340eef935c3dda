"""The example over HTTP: a real server and real clients on localhost, of which one is killed, and then the server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from sparsesecagg import Client, Parameters, RoundOptions

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[1] / "examples" / "http"
USERS, DIM, UPDATE = 6, 50, 0.5
THREADS = USERS - 1
"""Clients in threads, whose training waits for the test; the last one is a process of its own, to be killed."""
GRACE = 1.5
"""Seconds that a stage waits for somebody who is dead."""


class Pace:
    """Lets the clients in threads train as often as the test has allowed rounds."""

    def __init__(self) -> None:
        self._allowed, self._changed = 0, threading.Condition()

    def allow(self, rounds: int) -> None:
        with self._changed:
            self._allowed = rounds
            self._changed.notify_all()

    def trainer(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return the training of one client."""
        asked = 0

        def train(model: np.ndarray) -> np.ndarray:
            nonlocal asked
            asked += 1
            with self._changed:
                self._changed.wait_for(lambda: self._allowed >= asked)
            return np.full(len(model), UPDATE, np.float32)

        return train


class World:
    """The processes of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(EXAMPLE / script), *options]
        self.processes.append(subprocess.Popen(command))  # noqa: S603
        return self.processes[-1]

    def start_server(self, rounds: int) -> subprocess.Popen[bytes]:
        sizes = ["--users", str(USERS), "--dim", str(DIM), "--rounds", str(rounds), "--grace", str(GRACE)]
        return self.start("server.py", *sizes, "--state", str(self.folder / "server"), "--port", str(self.port))

    def start_client(self) -> subprocess.Popen[bytes]:
        return self.start("client.py", "--url", self.url, "--folder", str(self.folder / "user"))

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the server's status says something; return it."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                status: dict[str, Any] = httpx.get(f"{self.url}/status").json()
            except httpx.TransportError:
                status = {}
            if status and holds(status):
                return status
            time.sleep(0.02)
        raise AssertionError("the server did not get there")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for process in world.processes:
        process.kill()
        process.wait()


def test_the_run_outlives_a_killed_client_and_a_killed_server(world: World, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from client import take_part  # type: ignore[import-not-found]

    server, pace = world.start_server(rounds=100), Pace()
    clients = [
        threading.Thread(target=take_part, args=(world.url, world.folder / str(user), pace.trainer()), daemon=True)
        for user in range(THREADS)
    ]
    for thread in clients:
        thread.start()
    mortal = world.start_client()

    def rounds_until(survivors: int) -> dict[str, Any]:
        """Allow one round after the other until one has so many survivors; return the status."""
        while True:
            status = world.until(lambda status: status["stage"] == "UPLOAD")
            if status["history"] and status["history"][-1]["survivors"] == survivors:
                return status
            done = len(status["history"])
            assert done < 15
            pace.allow(status["round"])
            world.until(lambda status, done=done: len(status["history"]) > done)  # type: ignore[misc]

    rounds_until(USERS)
    number = json.loads((world.folder / "user" / "session.json").read_text(encoding="utf-8"))["user"]
    mortal.kill()
    mortal.wait()
    rounds_until(USERS - 1)  # The others do not need it.
    mortal = world.start_client()
    world.until(lambda status: status["stage"] == "UPLOAD" and number not in status["waiting_for"])
    rounds_until(USERS)  # It goes on where it was.
    lost = world.until(lambda status: status["stage"] == "UPLOAD" and number not in status["waiting_for"])["round"]
    server.kill()
    server.wait()
    world.start_server(rounds=lost + 3)
    pace.allow(100)
    status = world.until(lambda status: status["stage"] == "DONE")

    history = {entry["round"]: entry["survivors"] for entry in status["history"]}
    assert lost not in history
    assert max(survivors for number, survivors in history.items() if number > lost) == USERS
    model = np.frombuffer(httpx.get(f"{world.url}/model").content, np.float32)
    assert model.mean() == pytest.approx(UPDATE * sum(entry["updated"] for entry in status["history"]), abs=1e-3)
    assert mortal.wait(timeout=10) == 0
    for thread in clients:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_a_message_in_another_users_name_is_rejected(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from server import Run  # type: ignore[import-not-found]

    run = Run(Parameters.create(USERS, DIM, RoundOptions(alpha=0.5)), rounds=1, timeout=1.0, grace=1.0, folder=tmp_path)
    with TestClient(run.app()) as http:
        first, second = (http.post("/join").json() for _ in range(2))
        message = Client(first["user"], Parameters.decode(bytes.fromhex(first["params"]))).advertise_keys()
        answer = http.post("/messages", content=message, headers={"authorization": f"Bearer {second['token']}"})
        assert answer.status_code == httpx.codes.CONFLICT
        assert "sender 0" in answer.text
        assert "user 1" in answer.text
        assert http.get("/task", headers={"authorization": "Bearer made-up"}).status_code == httpx.codes.UNAUTHORIZED
