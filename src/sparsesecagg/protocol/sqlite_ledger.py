"""A ledger in a file of the node's own: what was answered stays answered, whatever is restarted, copied or run twice.

One SQLite database per folder; one row per run and user holds the last entry, and the client's state is there in parts,
of which only those are written that have changed. Both are on disk, in one transaction, before the answer leaves.

The state holds the user's secrets, so folder and file belong to their owner alone. What a later state no longer has is
overwritten in the file, and the log beside it is emptied; copies that a disk or a backup keeps are out of reach. A file
that is put back from a backup can't be told from the latest one: whoever does that counts as a colluder.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, Self

import msgspec

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import derive
from sparsesecagg.crypto.secrets import SECRET_SIZE
from sparsesecagg.errors import AlreadyAnswered, LedgerUnusable, MalformedMessage, PolicyViolation
from sparsesecagg.privacy.accountant import Cost
from sparsesecagg.protocol.ledger import OVERTAKEN, Entry, Spending, StateStep, restore_state
from sparsesecagg.protocol.parameters import Parameters

FILE = "ledger.sqlite3"
_VERSION = 6
_PATIENCE = 30.0
"""Seconds that one process waits for another to finish its transaction."""
_PLAIN_DAYS = 30
"""A plain run is over for good when its keys are gone, so rows of old ones are removed; those of rosters stay."""

# Without row numbers a table is its own index, so a commit writes fewer pages.
_TABLES = """
CREATE TABLE IF NOT EXISTS clients (
    run BLOB NOT NULL, user INTEGER NOT NULL, plain INTEGER NOT NULL, touched INTEGER NOT NULL,
    version INTEGER NOT NULL, round INTEGER NOT NULL, progress INTEGER NOT NULL,
    request BLOB, answer BLOB, PRIMARY KEY (run, user)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (
    run BLOB NOT NULL, user INTEGER NOT NULL, part TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (run, user, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS budget (one INTEGER PRIMARY KEY CHECK (one = 1), rho REAL NOT NULL, xi REAL NOT NULL);
CREATE TABLE IF NOT EXISTS rosters (name TEXT PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS own (id INTEGER PRIMARY KEY, secret BLOB NOT NULL);
"""


class SqliteLedger:
    """The ledger of one user in one run. Use it as a context, which closes the file.

    `folder` is made if it does not exist. `run` is `Parameters.run`. Raises `LedgerUnusable` for a folder or file that
    can't be used, `PolicyViolation` if the roster's run name stands for another roster here.
    """

    def __init__(self, folder: Path, run: bytes, user: int, roster: Roster | None = None) -> None:
        self._run, self._user, self._plain = run, user, roster is None
        self._path = folder / FILE
        _make_private(folder, self._path)
        with self._problems():
            self._database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            # FULL: a commit is on disk when it returns. A log that is written ahead needs one write to disk for it,
            # a journal three or four; some file systems have no such log.
            mode = "wal"
            with suppress(sqlite3.OperationalError):  # Another process is just making the file, and makes the log.
                mode = self._database.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                self._ask("PRAGMA journal_mode=TRUNCATE")
            self._ask("PRAGMA synchronous=FULL")
            self._ask("PRAGMA secure_delete=ON")
        try:
            self._prepare()
            if roster:
                self._bind(roster)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SqliteLedger(user={self._user}, run={self._run.hex()[:8]})"

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def last(self) -> Entry:
        rows = self._of_client("SELECT version, round, progress, request, answer FROM clients")
        return Entry(*rows[0]) if rows else Entry()

    def state(self) -> bytes | None:
        """Return the client's state as it was recorded with the last entry; None if there is none."""
        parts = dict(self._of_client("SELECT part, value FROM states"))
        if not parts:
            return None
        whole = msgspec.msgpack.encode(parts)
        try:
            state = restore_state(whole)
            owner = state.user, Parameters.decode(state.params).run
        except MalformedMessage:
            raise LedgerUnusable("is damaged: the state of this run can't be read") from None
        if owner != (self._user, self._run):
            raise LedgerUnusable("belongs to another user or run")
        return whole

    def spent(self) -> Cost:
        """Return what all uploads have cost, of whatever run and user: they are about the same data."""
        rows = self._ask("SELECT rho, xi FROM budget")
        return Cost(*rows[0]) if rows else Cost()

    def record(self, entry: Entry, step: StateStep, spending: Spending | None = None) -> None:
        owner, now = (self._run, self._user), int(time.time())
        with self._exclusively():
            last = self._of_client("SELECT version FROM clients")
            if entry.version != (last[0][0] if last else 0) + 1:
                raise AlreadyAnswered(OVERTAKEN)
            if spending and spending.cost != Cost():
                if spending.before != self.spent():
                    raise AlreadyAnswered(OVERTAKEN)
                after = spending.before + spending.cost
                self._database.execute("INSERT OR REPLACE INTO budget VALUES (1, ?, ?)", (after.rho, after.xi))
            if not last:
                oldest = now - _PLAIN_DAYS * 24 * 3600
                self._database.execute("DELETE FROM clients WHERE plain AND touched < ?", (oldest,))
                self._database.execute("DELETE FROM states WHERE (run, user) NOT IN (SELECT run, user FROM clients)")
            self._database.execute(
                "INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*owner, self._plain, now, *astuple(entry)),
            )
            for part, value in step.changes().items():
                if value is None:
                    self._database.execute("DELETE FROM states WHERE run = ? AND user = ? AND part = ?", (*owner, part))
                else:
                    self._database.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", (*owner, part, value))
        if step.dropped():
            # The log still has them. If another process reads just now, the next step that drops a secret empties it.
            self._ask("PRAGMA wal_checkpoint(TRUNCATE)")

    def users(self) -> set[int]:
        """Return the users for which this file has answered in the run."""
        return {int(user) for (user,) in self._ask("SELECT user FROM clients WHERE run = ?", self._run)}

    def own_secret(self, label: str) -> bytes:
        """Return 32 bytes that follow from a secret of this file, the same ones in all runs."""
        with self._exclusively():
            self._database.execute("INSERT OR IGNORE INTO own VALUES (0, ?)", (os.urandom(SECRET_SIZE),))
            ((secret,),) = self._ask("SELECT secret FROM own")
        return derive(secret, label, bytes(SECRET_SIZE))

    def _bind(self, roster: Roster) -> None:
        """Let a run's name stand for this roster, or raise if it stands for another."""
        with self._exclusively():
            self._database.execute("INSERT OR IGNORE INTO rosters VALUES (?, ?)", (roster.run, roster.digest))
            if self._ask("SELECT digest FROM rosters WHERE name = ?", roster.run) != [(roster.digest,)]:
                raise PolicyViolation(
                    f"the run {roster.run!r} has another roster in this ledger: a new roster needs a new run name"
                )

    # The file

    def _prepare(self) -> None:
        """Make the tables in a new file; refuse one that something else has made."""
        if self._ask("PRAGMA user_version") == [(_VERSION,)]:
            return
        with self._exclusively():
            ((found,),) = self._ask("PRAGMA user_version")
            ((tables,),) = self._ask("SELECT COUNT(*) FROM sqlite_master")
            if found not in (0, _VERSION) or (found == 0 and tables):
                raise LedgerUnusable(f"is not a ledger of version {_VERSION}: the file {FILE} has another content")
            for statement in filter(str.strip, _TABLES.split(";")):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {_VERSION}")

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that answer."""
        with self._problems():
            return self._database.execute(question, values).fetchall()

    def _of_client(self, question: str) -> list[tuple[Any, ...]]:
        """Return the rows that answer for this run and user."""
        return self._ask(question + " WHERE run = ? AND user = ?", self._run, self._user)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Run a transaction that nobody else is in; it is on disk when this ends."""
        with self._problems():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as problem:
            raise LedgerUnusable(f"can't be read or written: {problem}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
            raise LedgerUnusable(f"is damaged: {problem}") from None


def _make_private(folder: Path, path: Path) -> None:
    """Make folder and file, for their owner's eyes only; refuse what others could read or have made."""
    try:
        for each in (*reversed(folder.parents), folder):  # `parents=True` would leave those open to others.
            each.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        found = folder.stat(), path.stat()
    except OSError as problem:
        raise LedgerUnusable(f"can't be written: {problem.strerror}") from None
    if os.name != "posix":
        return  # Elsewhere permissions are not in the mode.
    if any(each.st_uid != os.getuid() for each in found):
        raise LedgerUnusable("must belong to the user that runs this process, and belongs to another")
    if any(stat.S_IMODE(each.st_mode) & 0o077 for each in found):
        raise LedgerUnusable("must be closed to others: chmod 700 the folder and chmod 600 its files")
