"""The command line: one file per command, each a function that `make_app` registers.

Commands are thin: they read options, call the library, and print. The contract (options, JSON keys, exit codes) is
described in docs/command-line.md.

simulate   rounds in one process
plan       settings that keep a promise
roster     identities
shared     options and printing that commands share
errors     what a user sees when something goes wrong

The lab adds its commands to these (`sparsesecagg.lab.cli`), and the program has all of them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sparsesecagg import __version__
from sparsesecagg.cli.shared import help_if_alone


def make_app() -> typer.Typer:
    """Return the program with the commands of the product."""
    from sparsesecagg.cli import plan, roster, simulate

    app = typer.Typer(
        name="sparsesecagg", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.command(epilog="Example: sparsesecagg simulate --clients 30 --alpha 0.1 --dropout 0.1")(simulate.simulate)
    example = "sparsesecagg plan --clients 100 --dim 100000 --dropout 0.1 --colluding 0.1 --min-anonymity 5"
    app.command(epilog=f"Example: {example}")(plan.plan)
    app.add_typer(roster.app, name="roster")

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    ) -> None:
        """Sparse secure aggregation for federated learning."""
        if version:
            typer.echo(f"sparsesecagg {__version__}")
            raise typer.Exit
        help_if_alone(context)

    return app
