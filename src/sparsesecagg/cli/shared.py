"""What all commands share: options, checks of options, how they print.

A command raises; `sparsesecagg.cli.errors` turns errors into sentences and exit codes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparsesecagg.downlink import gain
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.groups import USUAL_GROUP
from sparsesecagg.planning.message_sizes import default_levels, shortest_word

SECONDS_BETWEEN_LINES: Final = 5.0
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


DEFAULT_ALPHA: Final = gain.DEFAULT_ALPHA
"""What a user sends if nobody says otherwise: the same in all commands."""
WEIGHTS: Final = ("uniform", "examples")
USUAL_MAX_WEIGHT: Final = 1000

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


def note(sentence: str) -> None:
    """Say something about the settings on standard error."""
    err.print(f"[yellow]note:[/yellow] {escape(sentence)}.", highlight=False, soft_wrap=True)


def progress() -> Progress:
    """Return a progress bar on standard error that leaves no trace when done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error: a bar, or a line now and then where nobody would see a bar move."""
    if err.is_terminal:
        with progress() as bar:
            task = bar.add_task(what, total=total)
            yield lambda completed: bar.update(task, completed=completed)
        return
    shown = time.monotonic()

    def count(completed: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= SECONDS_BETWEEN_LINES:
            shown = time.monotonic()
            err.print(f"{what}: {completed} of {total}", highlight=False, soft_wrap=True)

    yield count


def pattern_of(name: str) -> str:
    """Return a pattern by its name in any command: `train` calls full by the protocol's name, secagg."""
    return "full" if name == "secagg" else name


def word_bits(pattern: str, asked: int | None, users: int = USUAL_GROUP) -> int:
    """Return the bits of a word: the given number, or what the group size needs, or the paper's 32."""
    if asked is not None:
        return asked
    short = pattern in PATTERNS and PATTERNS[pattern].short_words
    return shortest_word(users, default_levels(users)) if short else WORD_BITS[-1]


def weight_limit(weights: str | None, max_weight: int | None) -> int:
    """Return the largest private weight, 0 where users count alike; a limit alone says that they do not."""
    if weights is not None and weights not in WEIGHTS:
        raise InvalidInput("weights", f"must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    if weights == "uniform" and max_weight:
        raise InvalidInput("max_weight", f"must not be given with uniform weights, got {max_weight}")
    return max_weight or 0 if max_weight is not None or weights != "examples" else USUAL_MAX_WEIGHT


def help_if_alone(context: typer.Context) -> None:
    """Print the help of a group of commands that is called without one, and exit as for bad input."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def check_memory(dim: int) -> None:
    """Raise if this machine can't hold a model of this size; where its memory is not known, do nothing."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        return
    if dim * _BYTES_PER_COORDINATE > memory:
        most = memory // _BYTES_PER_COORDINATE
        raise InvalidInput("dim", f"must be at most {most:,} for this machine's {memory / 1e9:.0f} GB, got {dim}")


def bytes_text(size: float) -> str:
    """Write a number of bytes in its best unit."""
    return _in_units(size, {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1})


def seconds_text(seconds: float) -> str:
    """Write a duration in its best unit."""
    return _in_units(seconds, {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6})


def _in_units(value: float, units: Mapping[str, float]) -> str:
    """Write a value with three digits in the largest unit that it reaches, or else in the smallest."""
    unit = next((name for name, size in units.items() if value >= 0.9995 * size), [*units][-1])
    amount = value / units[unit]
    return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:,.0f} {unit}"
