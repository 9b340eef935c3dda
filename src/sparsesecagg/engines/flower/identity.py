"""Who a node is in an authenticated run: a roster and a private run key, from files that its owner names.

The owner of a node names them with `flower-supernode --node-config`. A run's configuration may name them for nodes
whose owner has named none, which is what simulations need; it can't put another roster in the place of the owner's. A
node that has a roster takes part in nothing that is not bound to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context

from sparsesecagg.crypto.identity import Identity, Roster, RunKeys, RunSecret
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, PrivateKey
from sparsesecagg.errors import InvalidInput

ROSTER, RUN_KEY, TRUSTED = "secagg-roster", "secagg-run-key", "secagg-trusted"
IDENTITY_KEYS = (ROSTER, RUN_KEY, TRUSTED)

_PARTITION = "{partition-id}"


@dataclass(frozen=True)
class Enrolment:
    """A node's place in a run: its number and roster, and the key that proves it."""

    identity: Identity
    run_key: PrivateKey


def is_enrolled(context: Context) -> bool:
    """Return whether anybody has named a roster for this node, readable or not."""
    return bool(_named_files(context))


def enrolment_of(context: Context) -> Enrolment | None:
    """Return who the node is; None if it has no roster. Raises `InvalidInput` for files that don't fit together."""
    named = _named_files(context)
    if not named:
        return None
    for needed, other in ((ROSTER, RUN_KEY), (RUN_KEY, ROSTER)):
        if needed not in named:
            raise InvalidInput(needed, f"must be named in the same configuration as {other}")
    roster = _read_roster(_path(named, ROSTER, context))
    if TRUSTED in named:
        roster.require_identities(_read_trusted(_path(named, TRUSTED, context)))
    secret = _read_run_secret(_path(named, RUN_KEY, context))
    run_key = RunKeys(secret, roster.run).run_key
    public = public_key(run_key)
    number = next((user for user, entry in enumerate(roster.entries) if entry.run_key == public), None)
    if number is None:
        raise InvalidInput(RUN_KEY, "must be the key of a user of the roster: its public half is not listed there")
    return Enrolment(Identity(number, secret, roster), run_key)


def load_roster(given: str | Path | Roster) -> Roster:
    """Return the roster of a server: one that it has, or the file that holds it."""
    return given if isinstance(given, Roster) else Roster.load(Path(given))


def _named_files(context: Context) -> dict[str, Any]:
    """Return the files by key: the node's own if it names any, else those that the run's configuration names."""
    own = {key: context.node_config[key] for key in IDENTITY_KEYS if key in context.node_config}
    # Apps declare the keys that a run may set, with an empty text for "none".
    return own or {key: context.run_config[key] for key in IDENTITY_KEYS if context.run_config.get(key)}


def _path(named: Mapping[str, Any], key: str, context: Context) -> Path:
    """Return a path; in a simulation, where all nodes are told the same, it may hold the number of the partition."""
    value = named[key]
    if not isinstance(value, str) or not value:
        raise InvalidInput(key, f"must be the path of a file, not {value!r}")
    return Path(value.replace(_PARTITION, str(context.node_config.get("partition-id", ""))))


def _read_roster(path: Path) -> Roster:
    try:
        found = path.stat()
    except OSError as problem:
        raise InvalidInput(ROSTER, f"must be the path of a roster file: {problem.strerror}") from None
    try:
        return _checked_roster(path, found.st_ino, found.st_mtime_ns, found.st_size)
    except InvalidInput as problem:
        raise InvalidInput(ROSTER, problem.problem) from None


@lru_cache(maxsize=4)
def _checked_roster(path: Path, _inode: int, _modified: int, _size: int) -> Roster:
    """Return a roster file's content; its signatures are checked once per process and version of the file."""
    return Roster.load(path)


def _read_run_secret(path: Path) -> RunSecret:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InvalidInput(RUN_KEY, f"must be the path of a private run key: {problem.strerror}") from None
    if len(data) != SECRET_SIZE:
        raise InvalidInput(RUN_KEY, f"must be a file of {SECRET_SIZE} bytes, as `sparsesecagg roster enrol` makes it")
    return RunSecret(data)


def _read_trusted(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        raise InvalidInput(TRUSTED, "must be a file with one public identity key in hex per line") from None
