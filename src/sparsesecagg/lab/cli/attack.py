"""`sparsesecagg attack`: play a hostile server, user or network against the real code."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from sparsesecagg.cli.shared import DEFAULT_ALPHA, AlphaOption, JsonOption, SeedOption, counting, err, out, print_json
from sparsesecagg.errors import InvalidInput, MissingExtra

MOST_CLIENTS = 2000


def attack(
    name: Annotated[str, typer.Argument(help="Which attack: list, all, or the name of one.")] = "list",
    clients: Annotated[int, typer.Option(help="Users in the cohort (N), from 12 to 2000.")] = 60,
    alpha: AlphaOption = DEFAULT_ALPHA,
    authenticated: Annotated[
        bool | None,
        typer.Option("--authenticated/--plain", help="Users with a roster, or without one; both if left out."),
    ] = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Attack the real clients and the real server, and show what was read.

    Each attack runs twice: as it is, where nothing may be read that is promised, and as a control with the one check
    taken out that stops it, where it must succeed. Exits with 1 if a promise is broken or a control shows nothing.
    """
    from sparsesecagg.lab.attacks import ATTACKS, Mode, Setting, run

    if name not in (*ATTACKS, "list", "all"):
        raise InvalidInput("name", f"must be list, all, or one of {', '.join(ATTACKS)}, got {name!r}")
    if not 12 <= clients <= MOST_CLIENTS:
        raise InvalidInput("clients", f"must be from 12 to {MOST_CLIENTS}, got {clients}")
    if not 0 < alpha <= 1:
        raise InvalidInput("alpha", f"must be in (0, 1], got {alpha:g}")
    if clients * alpha < 5 - 1e-9:
        raise InvalidInput("alpha", f"must be at least {5 / clients:.2g}, for committees of five, got {alpha:g}")
    if name == "list":
        rows = [
            {"name": each.name, "lie": each.lie, "promise": each.promise, "available": each.available}
            for each in ATTACKS.values()
        ]
        if json:
            print_json({"attacks": rows})
        else:
            table = Table("name", "lie", "promise")
            for row in rows:
                name = str(row["name"]) + ("" if row["available"] else " (not available: needs the extra flower)")
                table.add_row(name, str(row["lie"]), str(row["promise"]))
            out.print(table)
        return
    modes: tuple[Mode, ...] = ("plain", "authenticated")
    if authenticated is not None:
        modes = ("authenticated",) if authenticated else ("plain",)
    chosen = [each for each in ATTACKS.values() if each.available] if name == "all" else [ATTACKS[name]]
    for each in chosen:
        if not each.available:
            raise MissingExtra(each.extra, f"the attack {each.name}")
    if missing := len(ATTACKS) - len(chosen) if name == "all" else 0:
        err.print(f"note: {missing} attacks on nodes of Flower are not available: install sparsesecagg\\[flower].")
    played = [(each, mode) for mode in modes for each in chosen if mode in each.modes]
    if not played:
        raise InvalidInput("name", f"must name an attack on {modes[0]} runs, got {name!r}, which is none")
    outcomes = []
    with counting("attacking", len(played)) as count:
        for number, (each, mode) in enumerate(played):
            count(number)
            outcomes.append(run(each, Setting(clients, alpha, mode, seed)))
    if json:
        print_json({"attacks": [outcome.as_json() for outcome in outcomes]})
    else:
        name_column = Column("attack", no_wrap=True)
        table = Table(name_column, "mode", "promised", "read", "refused by", "control read", "verdict")
        for outcome in outcomes:
            verdict = "[red]BROKEN[/red]" if outcome.broken else "holds" if outcome.promised else "not promised"
            table.add_row(
                outcome.attack.name,
                outcome.mode,
                "yes" if outcome.promised else "no",
                str(outcome.reading.values),
                outcome.reading.refused_by or "",
                str(outcome.control.values),
                verdict,
            )
        out.print(table)
    broken = [outcome.attack.name for outcome in outcomes if outcome.broken]
    if broken:
        err.print(f"sparsesecagg: a promise is broken, or a control shows nothing: {', '.join(broken)}.")
        raise typer.Exit(1)
