"""The command line: one file per command, each a function that `main` registers.

Commands are thin: they read options, call the library, and print. The contract (options, JSON keys, exit codes) is
described in docs/command-line.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import typer

from sparsesecagg.errors import InvalidInput, MissingExtra, ProtocolError

EXIT_FAILED_ROUND = 1
EXIT_BAD_INPUT = 2


def _app() -> typer.Typer:
    from sparsesecagg.cli import audit, plan, reproduce, simulate, train
    from sparsesecagg.cli.roster import roster_app

    app = typer.Typer(
        name="sparsesecagg",
        help="Sparse secure aggregation for federated learning.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    for command in (simulate.simulate, audit.audit, plan.plan, train.train, reproduce.reproduce):
        app.command()(command)
    app.add_typer(roster_app, name="roster")

    @app.callback()
    def root() -> None:
        """Sparse secure aggregation for federated learning."""

    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit: 0 on success, 2 on bad input, 1 on a failed round."""
    try:
        code = _app()(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as problem:
        sys.stdout.write(problem.format_message() + "\n")
        code = EXIT_BAD_INPUT
    except click.ClickException as problem:
        code = _complain(" ".join(problem.format_message().split()), EXIT_BAD_INPUT)
    except InvalidInput as problem:
        code = _complain(f"--{problem.option.replace('_', '-')} {problem.problem}", EXIT_BAD_INPUT)
    except MissingExtra as problem:
        code = _complain(str(problem), EXIT_BAD_INPUT)
    except ProtocolError as problem:
        code = _complain(f"the round failed: {problem}", EXIT_FAILED_ROUND)
    except (click.Abort, KeyboardInterrupt):
        code = _complain("interrupted", 130)
    sys.exit(code or 0)


def _complain(sentence: str, code: int) -> int:
    end = "" if sentence.endswith((".", "?")) else "."
    sys.stderr.write(f"sparsesecagg: {sentence}{end}\n")
    return code
