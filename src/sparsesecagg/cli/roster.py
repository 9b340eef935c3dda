"""`sparsesecagg roster`: identities, run keys and rosters as files, for authenticated rounds.

Private keys are files that only their owner can read; nothing prints them. There is no --seed here: keys come from the
system's randomness. A file that can't be read or written is explained by `cli.errors`, which knows its option.
"""

from __future__ import annotations

import json as json_format
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsesecagg.cli.errors import Ended
from sparsesecagg.cli.shared import COMMON, JsonOption, help_if_alone, print_json, say
from sparsesecagg.crypto.identity import (
    SEED_SIZE,
    USUAL_COLLUDING,
    IdentityKey,
    Roster,
    RosterEntry,
    RunSecret,
    enrol,
    identity_of,
)
from sparsesecagg.crypto.secrets import SECRET_SIZE, Secret
from sparsesecagg.errors import InvalidInput, InvalidKey, require
from sparsesecagg.patterns.groups import SMALLEST_GROUP, group_count

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def roster_help(context: typer.Context) -> None:
    """Make identities, run keys and rosters for authenticated rounds."""
    help_if_alone(context)


@app.command()
def identity(
    key: Annotated[Path, typer.Option(help="File for the new private identity key.")], json: JsonOption = False
) -> None:
    """Make a long-term identity. Keep the file; give the printed public key to the others, not through the server."""
    secret = IdentityKey(os.urandom(SECRET_SIZE))
    _write_private(key, secret, "key")
    _tell(json, {"identity": identity_of(secret).hex(), "key": str(key)})


@app.command("enrol")
def enrol_user(
    key: Annotated[Path, typer.Option(help="The private identity key.")],
    run: Annotated[str, typer.Option(help="Name of the training run.")],
    run_key: Annotated[Path, typer.Option(help="File for the new private run key.")],
    entry: Annotated[Path, typer.Option(help="File for the signed public entry.")],
    json: JsonOption = False,
) -> None:
    """Make the keys of one training run and sign them. Hand the entry to the builder of the roster."""
    require("run", bool(run), "must be a name, got an empty one")
    data = key.read_bytes()
    require("key", len(data) == SECRET_SIZE, f"must name a file that `roster identity` made, got {key.name}")
    secret = RunSecret(os.urandom(SECRET_SIZE))
    made = enrol(IdentityKey(data), run, secret)
    _write_private(run_key, secret, "run_key")
    try:
        with entry.open("x", encoding="utf-8") as file:  # A name given twice must not cost a key.
            file.write(json_format.dumps(made.as_json()) + "\n")
    except OSError as problem:
        run_key.unlink()  # Nobody will know its public half, and the next try needs the name.
        if isinstance(problem, FileExistsError):
            raise InvalidInput("entry", f"must name a new file, got {entry.name}, which exists") from None
        raise
    _tell(json, {"run": run, "identity": made.identity.hex(), "entry": str(entry), "run_key": str(run_key)})


@app.command()
def build(
    run: Annotated[str, typer.Option(help="Name of the training run.")],
    roster: Annotated[Path, typer.Option(help="File for the roster.")],
    entries: Annotated[list[Path], typer.Argument(help="The users' entries; the order gives them their numbers.")],
    group_size: Annotated[
        int | None, typer.Option(help=COMMON["group_size"]["help"], show_default=COMMON["group_size"]["shown"])
    ] = None,
    colluding: Annotated[
        float, typer.Option(help="Fraction of users that may help the server (γ), in [0, 0.5).")
    ] = USUAL_COLLUDING,
    beacon: Annotated[
        str, typer.Option(help="Value of a public beacon that the seed is made from, such as 'drand round 5000000'.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Put the users' entries together, check every signature, and draw the seed of the groups last.

    The builder is trusted for the draw. With --beacon nobody is: the roster is written without a seed and
    handed out, and `roster seal` adds the seed when the beacon's value is known.
    """
    require("run", bool(run), "must be a name, got an empty one")
    # Whoever could draw again until the groups please would choose them.
    require("roster", not roster.exists(), f"must name a new file, got {roster.name}, which exists")
    if len(entries) < SMALLEST_GROUP:
        raise InvalidInput("entries", f"must be those of at least {SMALLEST_GROUP} users, got {len(entries)}")
    group_count(len(entries), group_size)  # Raises for a size that can't be cut.
    with _ending("no roster was built"):
        made = Roster(run, tuple(map(_read_entry, entries)), group_size=group_size, colluding=colluding, beacon=beacon)
    if not beacon:
        made = made.with_seed(os.urandom(SEED_SIZE))
    made.save(roster)
    _describe(made, json)


@app.command()
def seal(
    roster: Annotated[Path, typer.Option(help="The roster without a seed, which names its beacon; rewritten.")],
    value: Annotated[str, typer.Option(help="The beacon's value, in hex.")],
    json: JsonOption = False,
) -> None:
    """Add the seed that follows from the beacon's value. Everybody who does so gets the same roster."""
    with _ending(f"{roster} is not to be trusted"):
        found = Roster.load(roster)
    require("roster", not found.seed, f"must have no seed yet, got {roster.name}, which has one")
    sealed = _from_beacon(found, value)
    sealed.save(roster)
    _describe(sealed, json)


@app.command()
def check(
    roster: Annotated[Path, typer.Option(help="The roster to check.")],
    trusted: Annotated[
        Path | None, typer.Option(help="Public identity keys you trust, one per line, in the order of the users.")
    ] = None,
    value: Annotated[str | None, typer.Option(help="The beacon's value, in hex: is the seed made from it?")] = None,
    json: JsonOption = False,
) -> None:
    """Check every signature of a roster, with --trusted its identities, and with --value its seed."""
    with _ending(f"{roster} is not to be trusted"):
        found = Roster.load(roster)
        if trusted is not None:
            found.require_identities(_read_trusted(trusted))
        if value is not None:
            sealed = _from_beacon(found, value)
            unsealed = f"must have a seed with --value, got {roster.name}, which has none yet: roster seal adds it"
            require("roster", bool(found.seed), unsealed)
            if found.seed != sealed.seed:
                raise InvalidKey("its seed does not follow from the beacon's value")
    _describe(found, json, trusted=trusted is not None or None)


@contextmanager
def _ending(what: str) -> Iterator[None]:
    """End the command if a key or signature is not what it must be."""
    try:
        yield
    except InvalidKey as problem:
        raise Ended(f"{what}: {problem}") from None


def _from_beacon(roster: Roster, value: str) -> Roster:
    """Return the roster with the seed that a beacon's value makes."""
    if not roster.beacon:
        raise InvalidInput("value", "must not be given for a roster that names no beacon: its builder drew the seed")
    try:
        data = bytes.fromhex(value)
    except ValueError:
        data = b""
    require("value", bool(data), f"must be hex digits, two for each byte, got {value!r}")
    return roster.with_beacon(data)


def _describe(roster: Roster, json: bool, trusted: bool | None = None) -> None:
    """Print what a roster says; `trusted` is None where identities were not compared."""
    facts: dict[str, Any] = {
        "run": roster.run,
        "users": len(roster.entries),
        "groups": group_count(len(roster.entries), roster.group_size),
        "group_size": roster.group_size,
        "colluding": roster.colluding,
        "beacon": roster.beacon or None,
        "seed": roster.seed.hex() if roster.seed else None,
        "digest": (roster.digest if roster.seed else roster.unseeded_digest).hex(),
        "trusted": trusted,
        "identities": [entry.identity.hex() for entry in roster.entries],
    }
    if not json:
        source = f"made from {roster.beacon}" if roster.beacon else "drawn by the builder of the roster"
        facts["seed"] = f"{roster.seed.hex()} ({source})" if roster.seed else "none yet: roster seal adds it"
        compared = "all as in --trusted" if trusted else "signatures valid; identities not compared, give --trusted"
        facts["trusted"] = compared
    _tell(json, facts)


def _tell(json: bool, facts: dict[str, Any]) -> None:
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        for line in value if isinstance(value, list) else ["–" if value is None else value]:
            say(f"{name}: {line}")


def _write_private(path: Path, secret: Secret, option: str) -> None:
    """Write a new file that only its owner can read; never overwrite one."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        problem = f"must name a new file, got {path.name}, which exists: a key is never overwritten"
        raise InvalidInput(option, problem) from None
    with os.fdopen(handle, "wb") as file:
        file.write(secret.reveal())


def _read_entry(path: Path) -> RosterEntry:
    try:
        return RosterEntry.from_json(json_format.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("entries", f"must be entries that `roster enrol` made, got {path.name}") from None


def _read_trusted(path: Path) -> list[bytes]:
    try:
        return [bytes.fromhex(line) for line in path.read_text(encoding="utf-8").split()]
    except ValueError:
        raise InvalidInput("trusted", f"must hold one public identity key in hex per line, got {path.name}") from None
