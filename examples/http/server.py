"""Secure aggregation over HTTP, the server's side: many rounds, dropouts, restarts.

    python examples/http/server.py --users 6 --rounds 5 --state state/server

Users ask for work with GET /task and answer with POST /messages; docs/transport.md explains every step. All of the
protocol is in `Server`, which knows nothing of HTTP: this file carries its bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sparsesecagg import Parameters, RoundOptions, Server, Stage
from sparsesecagg.errors import DuplicateMessage, ProtocolError, ThresholdNotMet, TooLittleOpened

Found = TypeVar("Found")
PATIENCE = 10.0
"""Seconds that a request for work is held open when there is none."""
MOST = 0.8
"""When this fraction of the users has answered, the others get `grace` seconds."""


class Saved(msgspec.Struct):
    """What outlives the process. It holds no secret of a user, and tokens only as hashes."""

    server: bytes
    model: bytes
    epoch_keys: dict[int, bytes]
    users: dict[str, int]
    history: list[dict[str, float]]


class Run:
    """A run of many rounds. One task drives it (`drive`); requests of users come in between."""

    def __init__(self, params: Parameters, rounds: int, timeout: float, grace: float, folder: Path) -> None:
        self.rounds, self.timeout, self.grace, self.path = rounds, timeout, grace, folder / "run.msgpack"
        self.busy = asyncio.Lock()  # `Server` does one thing at a time, and opening a sum takes a while.
        self.news = asyncio.Condition()
        self.asking = Stage.ADVERTISE_KEYS.name
        self.inbox: dict[int, bytes] = {}
        self.users: dict[str, int] = {}
        self.epoch_keys: dict[int, bytes] = {}
        self.history: list[dict[str, float]] = []
        if self.path.exists():  # Started again: go on after the last round that was begun.
            saved = msgspec.msgpack.decode(self.path.read_bytes(), type=Saved)
            self.server = Server.restore(saved.server)
            self.model = np.frombuffer(saved.model, np.float32)
            self.epoch_keys, self.users, self.history = saved.epoch_keys, saved.users, saved.history
            self.asking = Stage.SHARE_KEYS.name
        else:
            self.server = Server(params)
            self.model = np.zeros(params.dim, np.float32)

    # The run

    async def drive(self) -> None:
        """Set up once, then one round after the other."""
        if not self.epoch_keys:
            await self.wait(lambda: not self.server.waiting_for, 60 * self.timeout)  # Once: wait for everybody.
            self.epoch_keys = await self.alone(self.server.close_stage)
            await self.publish(Stage.SHARE_KEYS.name, {})
            await self.wait(lambda: not self.server.waiting_for, self.timeout)
        while self.server.round_number < self.rounds:
            try:
                await self.round()
            except (ThresholdNotMet, TooLittleOpened) as failure:  # Too many dropped out: the model stays as it is.
                self.log(0, 0.0)
                print(f"round {self.server.round_number} failed: {failure}", flush=True)
        await self.publish("DONE", {})

    async def round(self) -> None:
        """UPLOAD, then UNMASK. Whoever misses the deadline has dropped out, and may be back in the next round."""
        headers = await self.alone(partial(self.server.begin_round, context=context_of(self.model)))
        await self.publish(Stage.UPLOAD.name, headers)
        await self.answers(len(headers))
        requests = await self.alone(self.server.close_stage)
        await self.publish(Stage.UNMASK.name, requests)
        await self.answers(len(requests))
        await self.alone(self.server.close_stage)
        result = self.server.result
        assert result is not None
        self.model = self.model + result.mean()
        self.log(len(result.survivors), result.coordinates_updated)
        await self.alone(self.save)
        print(
            f"round {result.round_number}: {len(result.survivors)} survivors, {result.coordinates_updated:.0%} of the "
            f"model updated, {result.mean_bytes(result.sent_bytes)['total']:,.0f} bytes sent per user",
            flush=True,
        )

    async def answers(self, asked: int) -> None:
        """Wait for everybody; once most have answered, only a little longer for the rest."""
        await self.wait(lambda: len(self.server.waiting_for) <= (1 - MOST) * asked, self.timeout)
        await self.wait(lambda: not self.server.waiting_for, self.grace)

    async def publish(self, task: str, inbox: dict[int, bytes]) -> None:
        """Save, then let users fetch their messages: a server that is started again knows what it has asked for."""
        await self.alone(self.save)
        async with self.news:
            self.asking, self.inbox = task, dict(inbox)
            self.news.notify_all()

    async def wait(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait until something holds, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout), self.news:
                await self.news.wait_for(done)

    async def alone(self, work: Callable[[], Found]) -> Found:
        """Let `Server` work in a thread, where it does not block the event loop, and with nobody else at it."""
        async with self.busy:
            return await asyncio.to_thread(work)

    def log(self, survivors: int, updated: float) -> None:
        self.history.append({"round": self.server.round_number, "survivors": survivors, "updated": updated})

    def save(self) -> None:
        """Replace the file in one step: a crash leaves the old one or the new one."""
        saved = Saved(self.server.save(), self.model.tobytes(), self.epoch_keys, self.users, self.history)
        part = self.path.with_suffix(".part")
        part.write_bytes(msgspec.msgpack.encode(saved))
        part.replace(self.path)

    # Requests

    async def join(self, _: Request) -> Response:
        """POST /join: give a user its number, its token and the parameters of the run."""
        user = len(self.users)
        if self.epoch_keys or user >= self.server.params.clients:
            return Response("the run is full", 409)
        token = secrets.token_urlsafe()
        self.users[hashed(token)] = user
        return JSONResponse({"user": user, "token": token, "params": self.server.params.encode().hex()})

    async def task(self, request: Request) -> Response:
        """GET /task: what this user is to answer now; held open while there is nothing."""
        user = self.user_of(request)
        if user is None:
            return Response("unknown token", 401)
        await self.wait(lambda: self.work_for(user) is not None, PATIENCE)
        task, body = self.work_for(user) or ("WAIT", b"")
        return Response(body, headers={"secagg-task": task, "secagg-round": str(self.server.round_number)})

    def work_for(self, user: int) -> tuple[str, bytes] | None:
        """Return what a user is to answer and the server's message; None if there is nothing."""
        if self.asking == Stage.ADVERTISE_KEYS.name:
            return (self.asking, b"") if user in self.server.waiting_for else None
        if user in self.inbox or self.asking == "DONE":
            return self.asking, self.inbox.get(user, b"")
        if self.server.lacking(user):  # Keys of the next two rounds: of use in any stage.
            return Stage.SHARE_KEYS.name, self.epoch_keys[user]
        return None

    async def messages(self, request: Request) -> Response:
        """POST /messages: one message of the protocol. The token says who sends it, not the message."""
        user = self.user_of(request)
        if user is None:
            return Response("unknown token", 401)
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > 8 * self.server.params.dim + (1 << 20):
                return Response("larger than any message of this run", 413)
        try:
            await self.alone(partial(self.server.receive, user, bytes(data)))
        except DuplicateMessage:
            pass  # Sent again because our answer was lost.
        except ProtocolError as problem:
            return Response(str(problem), 409)
        async with self.news:
            if user not in self.server.waiting_for:
                self.inbox.pop(user, None)
            self.news.notify_all()
        return Response(status_code=204)

    async def get_model(self, _: Request) -> Response:
        """GET /model: the model that updates are relative to."""
        return Response(self.model.tobytes())

    async def status(self, _: Request) -> Response:
        """GET /status: where the run is, for its operator."""
        where = {"round": self.server.round_number, "stage": self.asking}
        return JSONResponse({**where, "waiting_for": sorted(self.server.waiting_for), "history": self.history})

    def user_of(self, request: Request) -> int | None:
        return self.users.get(hashed(request.headers.get("authorization", "").removeprefix("Bearer ")))

    def app(self) -> Starlette:
        """Return the application; it runs the rounds as long as it runs."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            driver = asyncio.create_task(self.drive())
            driver.add_done_callback(lambda task: task.cancelled() or task.result())  # Log what it ended with.
            yield
            driver.cancel()

        routes = [
            Route("/join", self.join, methods=["POST"]),
            Route("/task", self.task),
            Route("/messages", self.messages, methods=["POST"]),
            Route("/model", self.get_model),
            Route("/status", self.status),
        ]
        return Starlette(routes=routes, lifespan=lifespan)


def context_of(model: np.ndarray) -> bytes:
    """Return the digest of everything else that decides what a user contributes; here that is the model."""
    return hashlib.sha256(model.tobytes()).digest()


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def main() -> None:
    """Serve one run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--users", type=int, default=6)
    options.add_argument("--dim", type=int, default=1000)
    options.add_argument("--alpha", type=float, default=0.5)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--timeout", type=float, default=60.0, help="seconds that a stage waits for most users")
    options.add_argument("--grace", type=float, default=5.0, help="seconds that it waits for the rest")
    options.add_argument("--state", type=Path, required=True, help="folder of the server's state")
    options.add_argument("--port", type=int, default=8000)
    given = options.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    options_of_round = RoundOptions(alpha=given.alpha, modulus_bits=16, dropout=0.2)
    params = Parameters.create(given.users, given.dim, options_of_round)
    run = Run(params, given.rounds, given.timeout, given.grace, given.state)
    uvicorn.run(run.app(), host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
