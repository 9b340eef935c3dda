"""The command line: one file per command, each a function that `main` registers.

Commands are thin: they read options, call the library, and print. The contract (options, JSON keys, exit codes) is
described in docs/command-line.md.

simulate, train, reproduce    rounds, training, and the paper's figures; train_display: a run on the screen
plan, audit, attack           settings, and what a server reads; audit_picture: the same drawn
report                        run folders, drawn and compared
doctor                        what to change in a Flower app; doctor_app: reading the app
roster                        identities
shared, errors                common options and printing, and what a user sees when something goes wrong
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from sparsesecagg import __version__
from sparsesecagg.cli.errors import run
from sparsesecagg.cli.shared import help_if_alone


def _app() -> typer.Typer:
    from sparsesecagg.cli import attack, audit, doctor, plan, report, reproduce, simulate, train
    from sparsesecagg.cli.roster import roster_app

    app = typer.Typer(
        name="sparsesecagg",
        help="Sparse secure aggregation for federated learning.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    for command in (
        simulate.simulate,
        audit.audit,
        attack.attack,
        plan.plan,
        train.train,
        report.report,
        doctor.doctor,
        reproduce.reproduce,
    ):
        app.command()(command)
    app.add_typer(roster_app, name="roster")

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        _version: Annotated[
            bool,
            typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
        ] = False,
    ) -> None:
        """Sparse secure aggregation for federated learning."""
        help_if_alone(context)

    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparsesecagg {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 on success, 2 on bad input, 1 on a failed round, 130 after Ctrl-C."""
    run(_app(), arguments)
