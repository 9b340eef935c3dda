"""Replaying recorded rounds with the library: from the vector's file alone, not from what made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sparsesecagg.crypto.identity import Identity, Roster, RosterEntry, RunSecret
from sparsesecagg.protocol import Client, Result, RoundParameters, Server, Stage

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "vectors" / "v1"
Vector = dict[str, Any]


def load(name: str) -> Vector:
    """Return one vector."""
    content: Vector = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def names() -> list[str]:
    """Return the names of all vectors."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read_roster(run: str, users: list[Vector]) -> Roster:
    """Return a checked roster."""
    fields = ("identity", "run_key", "draw_key", "chain_tip", "signature")
    return Roster(run, tuple(RosterEntry(*(bytes.fromhex(user[field]) for field in fields)) for user in users))


class ReplayedRound:
    """A recorded round, brought to life up to any of its messages."""

    def __init__(self, name: str) -> None:
        self.vector = load(name)
        self.params = RoundParameters.decode(bytes.fromhex(self.vector["parameters"]["bytes"]))
        self.server = Server(self.params)
        identities = self._identities()
        self.clients = [
            Client(user, self.params, entropy=self._entropy(user), identity=identities[user] if identities else None)
            for user in range(self.params.clients)
        ]
        self.inbox: dict[int, bytes] = {}
        self.masked: dict[int, dict[int, int]] = {}

    def _identities(self) -> list[Identity]:
        if "roster" not in self.vector:
            return []
        users = self.vector["roster"]["users"]
        roster = read_roster(self.vector["roster"]["run"], users)
        secrets = [RunSecret(bytes.fromhex(user["run_secret"])) for user in users]
        return [Identity(user, secret, roster) for user, secret in enumerate(secrets)]

    def _entropy(self, user: int) -> Any:
        draws = (bytes.fromhex(draw) for draw in self.vector["users"][user]["randomness"].values())

        def read(size: int) -> bytes:
            drawn = next(draws)
            assert len(drawn) == size
            return drawn

        return read

    def play(self, start: int = 0, stop: int | None = None) -> None:
        """Go through the messages from `start` to `stop`; each must come out as it was recorded."""
        for note in self.vector["messages"][start:stop]:
            data = bytes.fromhex(note["bytes"])
            if "to" in note:
                if self.server.stage is not Stage[note["stage"]]:
                    self.inbox = self.server.close_stage()
                assert all(self.inbox[user] == data for user in note["to"])
            else:
                user = note["from"]
                assert self.answer(user, self.inbox.get(user, b"")) == data
                self.server.receive(data, sender=user)

    def finish(self) -> Result:
        """End the last stage and return the result."""
        self.server.close_stage()
        assert self.server.result is not None
        return self.server.result

    def answer(self, user: int, request: bytes) -> bytes:
        """Let a client answer a request at the stage it is in."""
        client, facts = self.clients[user], self.vector["users"][user]
        match client.stage:
            case Stage.ADVERTISE_KEYS:
                return client.advertise_keys()
            case Stage.SHARE_KEYS:
                return client.share_keys(request)
            case Stage.UPLOAD:
                return client.upload(request, np.array(facts["update"]), facts["weight"], self._trace(user))
            case Stage.CONFIRM:
                return client.confirm(request)
            case _:
                return client.unmask(request)

    def _trace(self, user: int) -> Any:
        noted = self.masked.setdefault(user, {})

        def note(where: Any, values: Any) -> None:
            places = range(where.start, where.stop) if isinstance(where, slice) else where.tolist()
            noted.update(zip(places, values.tolist(), strict=True))

        return note

    def recorded(self, user: int) -> dict[int, int]:
        """Return what the vector says that a user masks: by place in the flat array of blocks."""
        width, places = self.params.width, {}
        for note in self.vector["users"][user]["masked"]:
            blocks = note["blocks"] if "blocks" in note else [note["block"]]
            flat = [block * width + offset for block in blocks for offset in range(width)]
            places.update(zip(flat, note["integers"], strict=True))
        return places
