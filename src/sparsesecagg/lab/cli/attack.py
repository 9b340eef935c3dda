"""`sparsesecagg attack`: play a hostile server, user or network against the real code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from sparsesecagg.cli.errors import Ended
from sparsesecagg.cli.shared import DEFAULT_ALPHA, JsonOption, SeedOption, counting, note, out, print_json, say
from sparsesecagg.errors import InvalidInput, require

if TYPE_CHECKING:
    from sparsesecagg.lab.attacks import AttackOutcome, Mode

FEWEST_CLIENTS, MOST_CLIENTS = 12, 2000
LEAST_ALPHA = 0.001


def attack(
    name: Annotated[str, typer.Argument(help="Which attack: list, all, or the name of one.")] = "list",
    clients: Annotated[int, typer.Option(help="Users in the cohort (N), from 12 to 2000.")] = 40,
    alpha: Annotated[float, typer.Option(help="Fraction of the model that each user sends (α).")] = DEFAULT_ALPHA,
    authenticated: Annotated[
        bool | None,
        typer.Option("--authenticated/--plain", help="Users with a roster, or without one; both if left out."),
    ] = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Attack the real clients and the real server, and show what was read.

    Each attack is played twice. Against the code as it is, it must read nothing that is promised to stay hidden. As a
    control, the one check that stops it is removed, and it must succeed. Exits with 1 if a promise is broken or a
    control shows nothing.
    """
    from sparsesecagg.lab.attacks import ATTACKS, MODES, Setting, flower_installed, run

    if name not in (*ATTACKS, "list", "all"):
        raise InvalidInput("name", f"must be all or an attack that `attack list` names, got {name!r}")
    if not FEWEST_CLIENTS <= clients <= MOST_CLIENTS:
        raise InvalidInput("clients", f"must be from {FEWEST_CLIENTS} to {MOST_CLIENTS}, got {clients}")
    require("alpha", LEAST_ALPHA <= alpha <= 1, f"must be in [{LEAST_ALPHA}, 1], got {alpha:g}")
    if name == "list":
        _list(json)
        return
    asked = {None: MODES, True: ("authenticated",), False: ("plain",)}
    modes: tuple[Mode, ...] = asked[authenticated]
    chosen = list(ATTACKS.values()) if name == "all" else [ATTACKS[name]]
    if not flower_installed():
        note("attacks on nodes of Flower are left out: install sparsesecagg[flower]")
    played = [(each, mode) for mode in modes for each in chosen if mode in each.modes]
    require("name", bool(played), f"must name an attack on {modes[0]} runs, got {name!r}, which is none")
    outcomes = []
    with counting("attacking", len(played)) as count:
        for number, (each, mode) in enumerate(played):
            count(number)
            outcomes.append(run(each, Setting(clients, alpha, mode, seed)))
    sentences = [in_words(mode, [each for each in outcomes if each.mode == mode]) for mode in modes]
    if json:
        print_json({"attacks": [outcome.as_json() for outcome in outcomes], "summary": sentences})
    else:
        out.print(_table(outcomes))
        for sentence in sentences if name == "all" else []:
            say(sentence)
    if broken := [outcome.attack.name for outcome in outcomes if outcome.broken]:
        raise Ended(f"a promise is broken, or a control shows nothing: {', '.join(broken)}")


def in_words(mode: Mode, outcomes: Sequence[AttackOutcome]) -> str:
    """Say how many promises hold, what is not promised, and what a roster would add."""
    held = [each for each in outcomes if each.promised and not each.broken]
    open_ones = [each for each in outcomes if not each.promised]
    closed = [each.attack.name for each in open_ones if "authenticated" in each.attack.promised]
    told = [f"{mode}: {len(held)} of {len(outcomes)} hold"]
    if open_ones:
        told.append(f"not promised: {', '.join(each.attack.name for each in open_ones)}")
    if closed:
        told.append(f"a roster closes {', '.join(closed)}")
    return "; ".join(told) + "."


def _list(json: bool) -> None:
    from sparsesecagg.lab.attacks import ATTACKS

    rows = [{"name": each.name, "lie": each.lie, "promise": each.promise} for each in ATTACKS.values()]
    if json:
        print_json({"attacks": rows})
        return
    table = Table(Column("name", no_wrap=True), "lie", "promise")
    for row in rows:
        table.add_row(*row.values())
    out.print(table)


def _table(outcomes: Sequence[AttackOutcome]) -> Table:
    table = Table(Column("attack", no_wrap=True), "mode", "promised", "read", "refused by", "control read", "verdict")
    for each in outcomes:
        row = each.as_json()
        read, control = str(row["values_read"]), str(row["control_values_read"])
        verdict = "[red]BROKEN[/red]" if each.broken else "holds" if each.promised else "not promised"
        promised = "yes" if each.promised else "no"
        table.add_row(each.attack.name, each.mode, promised, read, row["refused_by"], control, verdict)
    return table
