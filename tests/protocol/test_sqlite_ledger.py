"""The ledger in a file: one answer per stage, whatever is restarted, copied, raced or damaged."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pytest

from protocol.rounds import identities
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import AlreadyAnswered, InvalidInput, LedgerUnusable, PolicyViolation
from sparsesecagg.protocol import Client, Parameters, RoundOptions, Server, SqliteLedger
from sparsesecagg.protocol.ledger import Entry, StateStep, restore_state
from sparsesecagg.protocol.messages import UnmaskRequest, decode_server_message, encode
from sparsesecagg.protocol.sqlite_ledger import FILE
from sparsesecagg.protocol.stages import Progress
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

PARAMS = Parameters.create(4, 12, RoundOptions(threshold=3), session=bytes(32))
UPDATE = np.full(12, 0.25, np.float32)


class Parts(NamedTuple):
    """A step that says itself what has changed."""

    parts: dict[str, bytes | None]
    gone: list[Secret] = []  # noqa: RUF012

    def dropped(self) -> list[Secret]:
        return self.gone

    def changes(self) -> dict[str, bytes | None]:
        return self.parts


def step(state: bytes) -> Any:
    return Parts({"rest": state})


class Run:
    """Four users with ledgers in one folder; each message is answered by a client that is restored from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(PARAMS)
        for user in range(4):
            self.server.receive(None, Client(user, PARAMS, ledger=self.ledger(user)).advertise_keys())
        self.epoch = self.server.close_stage()
        for user, data in self.epoch.items():
            client = self.client(user)
            client.join(data)
            for package in client.share_keys(0):
                self.server.receive(None, package)

    def ledger(self, user: int) -> SqliteLedger:
        return SqliteLedger(self.folder, PARAMS.run, user)

    def client(self, user: int) -> Client:
        ledger = self.ledger(user)
        state = ledger.state()
        assert state is not None
        return Client.restore(state, ledger=ledger)

    def round(self) -> None:
        """Run one round, with a package of each user for a later one."""
        for user, header in self.server.begin_round().items():
            self.server.receive(None, self.client(user).upload(header, UPDATE))
            for package in self.client(user).share_keys(self.server.round_number):
                self.server.receive(None, package)
        for user, request in self.server.close_stage().items():
            self.server.receive(None, self.client(user).unmask(request))
        self.server.close_stage()


def test_clients_that_are_restored_for_every_message_run_whole_rounds(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    for _ in range(3):
        run.round()
        assert run.server.result is not None
        np.testing.assert_allclose(run.server.result.mean(), 0.25, atol=1e-6)


def test_the_same_request_gets_the_same_bytes_and_another_one_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    headers = run.server.begin_round()
    copy = run.client(0).save()
    first = run.client(0).upload(headers[0], UPDATE)
    assert run.client(0).upload(headers[0], UPDATE + 1) == first
    with pytest.raises(AlreadyAnswered):
        run.client(0).upload(headers[1], UPDATE)
    old = Client.restore(copy, ledger=run.ledger(0))
    assert old.upload(headers[0], UPDATE + 1) == first, "even a client restored from a copy gives the same bytes"


def test_a_copy_of_the_state_from_before_an_answer_answers_nothing_else(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    for user, header in run.server.begin_round().items():
        run.server.receive(None, run.client(user).upload(header, UPDATE))
    copy = run.client(0).save()
    requests = run.server.close_stage()
    run.client(0).unmask(requests[0])
    with pytest.raises(AlreadyAnswered):
        Client.restore(copy, ledger=run.ledger(0)).unmask(requests[1])


def test_of_two_that_race_from_one_state_one_answers(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    headers = run.server.begin_round()
    for user, header in headers.items():
        run.server.receive(None, run.client(user).upload(header, UPDATE))
    requests = run.server.close_stage()
    # The second request names one survivor less; either could be answered, but not both.
    whole = decode_server_message(requests[0])
    assert isinstance(whole, UnmaskRequest)
    fewer = msgspec.structs.replace(whole, survivors=bytes([0b0111]), tags=b"")
    partners = [1, 2, 3]
    tags = whole.tags
    size = len(tags) // len(partners)
    other = encode(msgspec.structs.replace(fewer, tags=tags[: 2 * size]))
    barrier = threading.Barrier(2)
    outcomes: list[bytes | None] = []

    def answer(request: bytes) -> None:
        client = run.client(0)
        barrier.wait()
        try:
            outcomes.append(client.unmask(request))
        except AlreadyAnswered:
            outcomes.append(None)

    threads = [threading.Thread(target=answer, args=(request,)) for request in (requests[0], other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2
    assert outcomes.count(None) == 1


def test_two_processes_that_write_at_the_same_time_leave_one_entry_per_version(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import AlreadyAnswered
from sparsesecagg.protocol import SqliteLedger
from sparsesecagg.protocol.ledger import ClientState, StateStep
from sparsesecagg.protocol.ledger import Entry
won, step = 0, StateStep(ClientState(user=0, params=b""), ClientState(user=0, params=b""))
with SqliteLedger(Path({str(tmp_path / "ledger")!r}), b"run", 0) as ledger:
    for number in range(1, 40):
        try:
            ledger.record(Entry(number, number, 0), step)
            won += 1
        except AlreadyAnswered:
            pass
print(won)
"""
    SqliteLedger(tmp_path / "ledger", b"run", 0).close()
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ)  # noqa: S603
        for _ in range(2)
    ]
    won = [int(process.communicate(timeout=60)[0]) for process in started]
    assert sum(won) == 39
    with SqliteLedger(tmp_path / "ledger", b"run", 0) as ledger:
        assert ledger.last() == Entry(39, 39, 0)


def test_rows_of_other_runs_and_users_are_apart(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger", b"a", 0) as one, SqliteLedger(tmp_path / "ledger", b"a", 1) as other:
        one.record(Entry(1, 5, 2), step(b""))
        assert other.last() == Entry()
    with SqliteLedger(tmp_path / "ledger", b"b", 0) as ledger:
        assert ledger.last() == Entry()


def test_only_the_owner_can_read_folder_and_file(tmp_path: Path) -> None:
    SqliteLedger(tmp_path / "new" / "ledger", b"a", 0).close()
    for folder in (tmp_path / "new", tmp_path / "new" / "ledger"):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "ledger" / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("later", [{"rest": b"short"}, {"rest": None}], ids=["shorter", "gone"])
@pytest.mark.parametrize("progress", Progress)
def test_secrets_that_are_dropped_are_left_in_no_file(
    tmp_path: Path, later: dict[str, bytes | None], progress: Progress
) -> None:
    """Whichever step drops them."""
    secret = os.urandom(32)

    def holding() -> list[Path]:
        return [path for path in (tmp_path / "ledger").iterdir() if secret in path.read_bytes()]

    with SqliteLedger(tmp_path / "ledger", b"a", 0) as ledger:
        ledger.record(Entry(1, 1, 0), step(bytes(5000) + secret))
        assert holding()
        ledger.record(Entry(2, 1, progress), cast(StateStep, Parts(later, [Secret(secret)])))
        assert not holding(), "although the ledger is still open"


def test_the_parts_that_were_written_down_make_up_the_state(tmp_path: Path) -> None:
    """After each message of two rounds, of which each writes what has changed only."""
    run = Run(tmp_path / "ledger")
    client = run.client(0)

    def check() -> None:
        with run.ledger(0) as ledger:
            state = ledger.state()
            assert state is not None
            assert restore_state(state) == client._state

    check()
    for _ in range(2):
        headers = run.server.begin_round()
        for user, header in headers.items():
            one = client if user == 0 else run.client(user)
            run.server.receive(None, one.upload(header, UPDATE))
            check()
            for package in one.share_keys(run.server.round_number):
                run.server.receive(None, package)
            check()
        for user, request in run.server.close_stage().items():
            run.server.receive(None, (client if user == 0 else run.client(user)).unmask(request))
            check()
        run.server.close_stage()


def test_one_record_holds_an_upload_and_the_packages_that_leave_with_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    client, header = run.client(0), run.server.begin_round()[0]
    with run.ledger(0) as ledger:
        before = ledger.last().version
        with client.one_record():
            answer = client.upload(header, UPDATE)
            packages = client.share_keys(1)
            assert ledger.last().version == before, "nothing may leave before the block ends"
        assert ledger.last().version == before + 1
    assert run.client(0).upload(header, UPDATE) == answer
    assert run.client(0).share_keys(1, again=True)[-1:] == packages


def test_of_two_clients_that_record_at_once_the_second_has_answered_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    first, second, header = run.client(0), run.client(0), run.server.begin_round()[0]
    before = second._state
    with pytest.raises(AlreadyAnswered), second.one_record():
        second.upload(header, UPDATE / 2)
        first.upload(header, UPDATE)
    assert second._state is before


def test_what_was_shared_stays_on_record_if_the_upload_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    client, header = run.client(0), run.server.begin_round()[0]
    with pytest.raises(InvalidInput), client.one_record():
        packages = client.share_keys(1)
        client.upload(header, UPDATE[:3])
    assert packages
    assert run.client(0).share_keys(1, again=True)[-1:] == packages


def _damage(path: Path) -> None:
    path.write_bytes(b"not a database" * 300)


def _other_content(path: Path) -> None:
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE somebody (name TEXT)")
    database.close()
    path.chmod(0o600)


def _other_version(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()


def _open_to_others(path: Path) -> None:
    path.chmod(0o644)


def _folder_open_to_others(path: Path) -> None:
    path.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_damage, "ledger is damaged"),
        (_other_content, "ledger is not a ledger of version"),
        (_other_version, "ledger is not a ledger of version"),
        (_open_to_others, "ledger must be closed to others"),
        (_folder_open_to_others, "ledger must be closed to others"),
    ],
)
def test_a_file_that_can_not_be_relied_on_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    SqliteLedger(tmp_path / "ledger", b"a", 0).close()
    change(tmp_path / "ledger" / FILE)
    with pytest.raises(LedgerUnusable, match=said):
        SqliteLedger(tmp_path / "ledger", b"a", 0)


@pytest.mark.skipif(os.name != "posix", reason="files have no owner here")
def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who made it can read it, whatever its mode says now."""
    SqliteLedger(tmp_path / "ledger", b"a", 0).close()
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(LedgerUnusable, match="belongs to another"):
        SqliteLedger(tmp_path / "ledger", b"a", 0)


def test_a_ledger_says_whose_it_is_and_is_closed_with_its_block(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "ledger", b"ab", 3) as ledger:
        assert repr(ledger) == "SqliteLedger(user=3, run=6162)"
        assert ledger.last() == Entry()
    with pytest.raises(LedgerUnusable):
        ledger.last()


def test_of_two_that_make_the_file_the_second_finds_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both saw an empty file; the first was quicker."""
    ledger = SqliteLedger(tmp_path / "ledger", b"a", 0)
    answers = iter([[(0,)]])
    monkeypatch.setattr(ledger, "_ask", lambda *question: next(answers, None) or SqliteLedger._ask(ledger, *question))
    ledger._prepare()
    assert next(answers, "asked") == "asked"
    ledger.close()


def test_a_folder_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnusable, match="ledger can't be written"):
        SqliteLedger(tmp_path / "file" / "ledger", b"a", 0)


def test_a_state_of_another_user_or_run_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    state = restore_state(run.client(1).save())
    with SqliteLedger(tmp_path / "ledger", PARAMS.run, 7) as ledger:
        ledger.record(Entry(1), StateStep(state.with_changes(version=0), state))
        with pytest.raises(LedgerUnusable, match="belongs to another user or run"):
            ledger.state()
    with SqliteLedger(tmp_path / "ledger", PARAMS.run, 8) as ledger:
        ledger.record(Entry(1), step(b"rubbish"))
        with pytest.raises(LedgerUnusable, match="is damaged"):
            ledger.state()


def test_an_answer_that_can_not_be_written_down_is_not_given(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    headers = run.server.begin_round()
    client = run.client(0)
    with sqlite3.connect(tmp_path / "ledger" / FILE) as database:
        database.execute("DROP TABLE clients")
    with pytest.raises(LedgerUnusable):
        client.upload(headers[0], UPDATE)


def test_rows_of_plain_runs_are_removed_after_a_month_and_those_of_rosters_never(tmp_path: Path) -> None:
    roster = identities(5)[0].roster
    for run, known in ((b"plain", None), (b"roster", roster)):
        with SqliteLedger(tmp_path / "ledger", run, 0, known) as ledger:
            ledger.record(Entry(1), step(b""))
    with sqlite3.connect(tmp_path / "ledger" / FILE) as database:
        database.execute("UPDATE clients SET touched = touched - 31 * 24 * 3600")
    with SqliteLedger(tmp_path / "ledger", b"new", 0) as ledger:
        ledger.record(Entry(1), step(b""))
    with sqlite3.connect(tmp_path / "ledger" / FILE) as database:
        for table in ("clients", "states"):
            assert {row[0] for row in database.execute(f"SELECT run FROM {table}")} == {b"roster", b"new"}  # noqa: S608


def test_a_runs_name_stands_for_one_roster(tmp_path: Path) -> None:
    """Another seed, group size or user under the same name would be another draw of the groups."""
    roster = identities(5)[0].roster
    others = [roster.with_seed(b"s" * 32), identities(5, 3 + 1)[0].roster, identities(6)[0].roster]
    SqliteLedger(tmp_path / "ledger", roster.digest, 0, roster).close()
    SqliteLedger(tmp_path / "ledger", roster.digest, 1, roster).close()
    for other in others:
        assert other.digest != roster.digest
        with pytest.raises(PolicyViolation, match="the run 'test' has another roster in this ledger"):
            SqliteLedger(tmp_path / "ledger", other.digest, 0, other)
    renamed = make_identities(5, "another run", seeded_entropy(1))[0].roster
    SqliteLedger(tmp_path / "ledger", renamed.digest, 0, renamed).close()


def test_the_header_on_record_stays_so_in_another_process(tmp_path: Path) -> None:
    """A crash between `accept` and `upload`."""
    run = Run(tmp_path / "ledger")
    header = run.server.begin_round()[0]
    assert run.client(0).accept(header) is None
    other = encode(msgspec.structs.replace(decode_server_message(header), context=b"c" * 32))
    with pytest.raises(AlreadyAnswered):
        run.client(0).accept(other, context=b"c" * 32)
    with pytest.raises(AlreadyAnswered):
        run.client(0).upload(other, UPDATE, context=b"c" * 32)
    first = run.client(0).upload(header, UPDATE)
    assert run.client(0).upload(header, -UPDATE) == run.client(0).accept(header) == first


def test_a_file_knows_its_users_and_has_a_secret_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path / "ledger")
    with run.ledger(0) as ledger, SqliteLedger(tmp_path / "ledger", b"another run", 0) as other:
        assert (ledger.users(), other.users()) == ({0, 1, 2, 3}, set())
        assert ledger.own_secret("a") == other.own_secret("a") != ledger.own_secret("b")
    with SqliteLedger(tmp_path / "elsewhere", b"run", 0) as stranger, run.ledger(0) as ledger:
        assert stranger.own_secret("a") != ledger.own_secret("a")
