"""`sparsesecagg roster`: identities, run keys and rosters as files, for authenticated rounds.

Private keys are files that only their owner can read; nothing prints them. There is no --seed here: keys come from the
system's randomness.
"""

from __future__ import annotations

import json as json_format
import os
from pathlib import Path
from typing import Annotated

import typer

from sparsesecagg.cli.errors import Failed
from sparsesecagg.cli.shared import JsonOption, help_if_alone, out, print_json
from sparsesecagg.crypto.identity import IdentityKey, Roster, RosterEntry, RunSecret, enrol, identity_of
from sparsesecagg.crypto.secrets import SECRET_SIZE, Secret
from sparsesecagg.errors import InvalidInput, InvalidKey

roster_app = typer.Typer(
    help="Make identities, run keys and rosters for authenticated rounds.",
    rich_markup_mode="rich",
)

_SMALLEST_ROUND = 3


@roster_app.callback(invoke_without_command=True)
def roster_help(context: typer.Context) -> None:
    """Make identities, run keys and rosters for authenticated rounds."""
    help_if_alone(context)


@roster_app.command()
def identity(
    key: Annotated[Path, typer.Option(help="File for the new private identity key.")], json: JsonOption = False
) -> None:
    """Make a long-term identity. Keep the file; give the printed public key to the others, not through the server."""
    secret = IdentityKey(os.urandom(SECRET_SIZE))
    _write_private(key, secret, "key")
    _tell(json, {"identity": identity_of(secret).hex(), "key": str(key)})


@roster_app.command("enrol")
def enrol_user(
    key: Annotated[Path, typer.Option(help="The private identity key.")],
    run: Annotated[str, typer.Option(help="Name of the training run.")],
    run_key: Annotated[Path, typer.Option(help="File for the new private run key.")],
    entry: Annotated[Path, typer.Option(help="File for the signed public entry.")],
    json: JsonOption = False,
) -> None:
    """Make the keys of one training run and sign them. Hand the entry to whoever builds the roster."""
    if not run:
        raise InvalidInput("run", "must not be empty")
    identity_key, secret = IdentityKey(_read_private(key)), RunSecret(os.urandom(SECRET_SIZE))
    made = enrol(identity_key, run, secret)
    _write_private(run_key, secret, "run_key")
    try:
        entry.write_text(json_format.dumps(made.as_json()) + "\n", encoding="utf-8")
    except OSError as problem:
        run_key.unlink()  # Nobody will know its public half, and the next try needs the name.
        raise InvalidInput("entry", f"must name a file that can be written: {problem.strerror}") from None
    _tell(json, {"run": run, "identity": made.identity.hex(), "entry": str(entry), "run_key": str(run_key)})


@roster_app.command()
def build(
    run: Annotated[str, typer.Option(help="Name of the training run.")],
    roster: Annotated[Path, typer.Option(help="File for the roster.")],
    entries: Annotated[list[Path], typer.Argument(help="The users' entries; the order gives them their numbers.")],
    json: JsonOption = False,
) -> None:
    """Put the users' entries together, checking every signature."""
    if len(entries) < _SMALLEST_ROUND:
        raise InvalidInput("entries", f"must be those of at least {_SMALLEST_ROUND} users, got {len(entries)}")
    try:
        made = Roster(run, tuple(_read_entry(path) for path in entries))
    except InvalidKey as problem:
        raise Failed(f"no roster was built: {problem}") from None
    made.save(roster)
    _describe(made, json)


@roster_app.command()
def check(
    roster: Annotated[Path, typer.Option(help="The roster to check.")],
    trusted: Annotated[
        Path | None, typer.Option(help="Public identity keys you trust, one per line, in the order of the users.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check every signature of a roster and, with --trusted, that it names exactly the identities you know."""
    try:
        found = Roster.load(roster)
        if trusted is not None:
            found.require_identities(_read_trusted(trusted))
    except InvalidKey as problem:
        raise Failed(f"{roster} is not to be trusted: {problem}") from None
    _describe(found, json)


def _describe(roster: Roster, json: bool) -> None:
    users = [entry.identity.hex() for entry in roster.entries]
    _tell(json, {"run": roster.run, "users": len(users), "digest": roster.digest.hex(), "identities": users})


def _tell(json: bool, facts: dict[str, object]) -> None:
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            out.print(f"{name}: {line}", highlight=False, soft_wrap=True)


def _write_private(path: Path, secret: Secret, option: str) -> None:
    """Write a new file that only its owner can read; never overwrite one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(
            option, f"must name a new file: {path.name} exists, and a key is never overwritten"
        ) from None
    except OSError as problem:
        raise InvalidInput(option, f"must name a file that can be written: {problem.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(secret.reveal())


def _read_private(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InvalidInput("key", f"must name a private key file: {problem.strerror}") from None
    if len(data) != SECRET_SIZE:
        raise InvalidInput("key", f"must name a file of {SECRET_SIZE} bytes, as `roster identity` makes it")
    return data


def _read_entry(path: Path) -> RosterEntry:
    try:
        return RosterEntry.from_json(json_format.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput("entries", f"must be entries that `roster enrol` made, which {path.name} is not") from None


def _read_trusted(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        raise InvalidInput("trusted", "must name a file with one public identity key in hex per line") from None
