"""What all commands share: how they report errors, how they print.

A command raises; `main` turns errors into exit codes: 2 and one sentence that names the option for bad input, 1 with
the stage and the reason for a failed round.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random in the simulation.")]

# Tables and progress go to standard error when --json owns standard output.
out = Console()
err = Console(stderr=True)


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def progress() -> Progress:
    """Return a progress bar on standard error that leaves no trace when done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
