"""Rosters and run keys as files, for nodes of a test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol


@dataclass(frozen=True)
class Enrolled:
    """The users of a run, and where their files are."""

    folder: Path

    @property
    def roster(self) -> Path:
        """The roster."""
        return self.folder / "roster.json"

    def run_key(self, user: int) -> Path:
        """The private run key of a user."""
        return self.folder / f"{user}.key"

    def node_config(self, user: int) -> dict[str, str]:
        """What the owner of a node says about it."""
        return {"secagg-roster": str(self.roster), "secagg-run-key": str(self.run_key(user))}


def enrol_users(folder: Path, users: int, run: str = "test") -> Enrolled:
    """Make what `sparsesecagg roster identity`, `enrol` and `build` make."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Enrolled(folder)
    entries = []
    for user in range(users):
        key = os.urandom(32)
        made.run_key(user).write_bytes(key)
        entries.append(enrol(IdentityKey(os.urandom(32)), run, RunSecret(key)))
    Roster(run, tuple(entries)).with_seed(os.urandom(32)).save(made.roster)
    return made
