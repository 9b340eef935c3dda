"""What all commands share: options, checks of options, how they print.

A command raises; `sparsesecagg.cli.errors` turns errors into sentences and exit codes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparsesecagg.errors import InvalidInput

_PICTURES: Final = (".png", ".pdf", ".svg")
_BYTES_PER_COORDINATE: Final = 16
"""That a simulated round takes at the very least; measured, it is 27 to 32."""

_Number = TypeVar("_Number", int, float, int | None, float | None)


def at_least(minimum: int) -> Callable[[typer.CallbackParam, _Number], _Number]:
    """Return an option's check; NaN does not pass."""

    def check(parameter: typer.CallbackParam, value: _Number) -> _Number:
        if value is not None and not value >= minimum:
            raise InvalidInput(str(parameter.name), f"must be at least {minimum}, got {value:g}")
        return value

    return check


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[
    int, typer.Option("--seed", callback=at_least(0), help="Seed of everything random in the simulation.")
]

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


def help_if_alone(context: typer.Context) -> None:
    """Print the help of a group of commands that is called without one, and exit as for bad input."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def check_picture(path: Path, option: str = "plot") -> None:
    """Raise unless a picture can be written there."""
    if path.suffix.lower() not in _PICTURES:
        raise InvalidInput(option, f"must end in {', '.join(_PICTURES)}, got {path.name!r}: use {path.stem or 'x'}.png")
    if path.is_dir():
        raise InvalidInput(option, f"must name a file, got the directory {str(path)!r}")
    if not path.parent.is_dir():
        raise InvalidInput(option, f"must be in an existing directory, got {str(path.parent)!r}: create it")
    if not os.access(path.parent, os.W_OK):
        raise InvalidInput(option, f"must be in a directory that can be written to, got {str(path.parent)!r}")


def check_memory(dim: int) -> None:
    """Raise if this machine can't hold a model of so many coordinates; where its memory is not known, do nothing."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        return
    if dim * _BYTES_PER_COORDINATE > memory:
        most = memory // _BYTES_PER_COORDINATE
        raise InvalidInput("dim", f"must be at most {most:,} for this machine's {memory / 1e9:.0f} GB, got {dim}")
