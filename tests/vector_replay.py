"""Replaying recorded runs with the library: from the vector's file alone, not from what made it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparsesecagg import errors
from sparsesecagg.crypto.identity import Identity, Roster, RosterEntry, RunSecret
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Result, Server, Stage
from sparsesecagg.protocol.messages import EpochKeys, RoundHeader, decode_server_message

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "vectors" / "v3"
Vector = dict[str, Any]
POLICY = Policy(min_anonymity=1, patterns=frozenset(PATTERNS))
"""That of vectors/README.md: whatever the pattern, and however small the groups."""
raw = bytes.fromhex


def load(name: str) -> Vector:
    """Return one vector."""
    content: Vector = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def names() -> list[str]:
    """Return the names of all vectors."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read_roster(content: Vector) -> Roster:
    """Return a checked roster."""
    fields = ("identity", "run_key", "signature")
    entries = tuple(RosterEntry(*(raw(user[field]) for field in fields)) for user in content["users"])
    rules = content["group_size"], content["colluding"], content["beacon"]
    return Roster(content["run"], entries, raw(content["seed"]) or None, *rules)


def identities_of(content: Vector) -> list[Identity]:
    """Return the users of a roster that is written down with its secrets."""
    roster = read_roster(content)
    return [Identity(user, RunSecret(raw(each["run_secret"])), roster) for user, each in enumerate(content["users"])]


class ReplayedRun:
    """A recorded run, brought to life up to any of its steps."""

    def __init__(self, name: str) -> None:
        self.vector = load(name)
        self.params = Parameters.decode(raw(self.vector["parameters"]["bytes"]))
        identities = identities_of(self.vector["roster"]) if "roster" in self.vector else []
        self.server = Server(self.params, identities[0].roster if identities else None)
        self.draws = [[raw(draw) for draw in user["randomness"]] for user in self.vector["users"]]
        self.clients = [
            Client(
                user, self.params, POLICY, self._entropy(user), identities[user] if identities else None, MemoryLedger()
            )
            for user in range(self.params.clients)
        ]
        self.context = bytes(32)
        self.inbox: dict[int, bytes] = {}
        self.packages: dict[int, list[bytes]] = {}
        self.results: list[Result] = []

    def _entropy(self, user: int) -> Callable[[int], bytes]:
        def read(size: int) -> bytes:
            drawn = self.draws[user].pop(0)
            assert len(drawn) == size
            return drawn

        return read

    @property
    def steps(self) -> list[Vector]:
        """All steps of the run."""
        steps: list[Vector] = self.vector["steps"]
        return steps

    def play(self, start: int = 0, stop: int | None = None) -> None:
        """Go through the steps from `start` to `stop`; each message must come out as it was recorded."""
        for step in self.steps[start:stop]:
            if "begin" in step:
                self.context = raw(step["context"])
                self.inbox = self.server.begin_round(context=self.context)
                assert self.server.round_number == step["begin"]
            elif "epoch" in step:
                self.server.begin_epoch(step["epoch"])
            elif "close" in step:
                self._close(step)
            elif "result" in step:
                self._compare(step["result"])
            elif "to" in step:
                self._deliver(step)
            else:
                self._send(step)

    def _close(self, step: Vector) -> None:
        assert self.server.stage is Stage[step["close"]]
        try:
            self.inbox = self.server.close_stage()
            assert "error" not in step
        except errors.SparseSecAggError as error:
            assert type(error).__name__ == step["error"]

    def _deliver(self, step: Vector) -> None:
        assert all(self.inbox[user] == raw(step["bytes"]) for user in step["to"])
        if step["stage"] == "ADVERTISE_KEYS":
            for user in step["to"]:
                self.clients[user].join(raw(step["bytes"]))

    def _send(self, step: Vector) -> None:
        user, data = step["from"], raw(step["bytes"])
        answer = self._answer(user, step)
        assert (answer == data) != step.get("forged", False)
        self.server.receive(user, data)

    def _answer(self, user: int, step: Vector) -> bytes:
        client = self.clients[user]
        match Stage[step["stage"]]:
            case Stage.ADVERTISE_KEYS:
                return client.advertise_keys(self.server.epoch_number)
            case Stage.SHARE_KEYS:
                if not self.packages.get(user):
                    self.packages[user] = client.share_keys(self.server.round_number)
                return self.packages[user].pop(0)
            case Stage.UPLOAD:
                return self._upload(user, step)
            case _:
                return client.unmask(self.inbox[user])

    def _upload(self, user: int, step: Vector) -> bytes:
        coordinates: list[int] = []
        integers: list[int] = []

        def note(where: Any, values: Any) -> None:
            coordinates.extend(range(where.start, where.stop) if isinstance(where, slice) else where.tolist())
            integers.extend(values.tolist())

        client, update = self.clients[user], np.array(step["update"])
        answer = client.upload(self.inbox[user], update, step["weight"], context=self.context, trace=note)
        assert (coordinates, integers) == (step["coordinates"], step["integers"])
        return answer

    def _compare(self, expected: Vector) -> None:
        result = self.server.result
        assert result is not None
        self.results.append(result)
        assert list(result.survivors) == expected["survivors"]
        assert result.total.tolist() == expected["total"]
        assert result.contributors.tolist() == expected["contributors"]
        weights = result.combined.weights
        assert (None if weights is None else weights.tolist()) == expected["weights"]
        assert result.clipped == expected["clipped"]
        assert sorted(result.lost) == expected["lost"]
        false = [[holder, list(owners)] for holder, owners in sorted(result.false_shares.items())]
        assert false == expected["false_shares"]
        assert sorted(result.excluded) == expected["excluded"]

    def receive(self, user: int, data: bytes) -> None:
        """Give a client a message that is not in the record; it is asked by the message's name."""
        client = self.clients[user]
        match decode_server_message(data):
            case EpochKeys():
                client.join(data)
            case RoundHeader():
                client.upload(data, np.zeros(self.params.dim), context=self.context)
            case _:
                client.unmask(data)
