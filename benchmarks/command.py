"""What the benchmarks' command lines share: exit codes, consoles, JSON.

The same contract as the program's: 0 on success, 2 on bad input with one sentence that names the option, 1 on a
failed round.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparsesecagg.cli import errors
from sparsesecagg.cli.shared import at_least

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[
    int, typer.Option("--seed", callback=at_least(0), help="Seed of the updates and of who drops out.")
]

out = Console()
err = Console(stderr=True)


def run(command: Callable[..., None], arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    errors.run(app, arguments)


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def progress() -> Progress:
    """Return a progress bar on standard error that leaves no trace when done."""
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    return Progress(*columns, console=err, transient=True)


def note(sentence: str) -> None:
    """Tell the reader something that does not stop the command."""
    err.print(f"[yellow]note:[/yellow] {escape(sentence)}.", highlight=False, soft_wrap=True)
