"""What all commands share: options, checks of options, how they print.

The options of a command are the fields of one dataclass, and what a field says about itself is the help. A field
without words of its own means the same in every command; `COMMON` explains it once.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, field, fields
from functools import wraps
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from sparsesecagg.downlink import gain
from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.groups import USUAL_GROUP
from sparsesecagg.planning.message_sizes import default_levels, shortest_word

SECONDS_BETWEEN_LINES: Final = 5.0
_BYTES_PER_COORDINATE: Final = 16
"""That a simulated round takes at the very least; measured, it is 27 to 32."""

DEFAULT_ALPHA: Final = gain.DEFAULT_ALPHA
"""What a user sends if nobody says otherwise: the same in all commands."""

COMMON: Final[dict[str, Mapping[str, Any]]] = {
    "clients": {"help": "Users in the cohort (N), at least 3."},
    "dim": {"help": "Coordinates of the model (d)."},
    "alpha": {"help": "Fraction of the model that each user sends (α), in (0, 1]."},
    "dropout": {"help": "Chance that a user drops out of a round (θ), in [0, 0.5)."},
    "pattern": {
        "help": "Who sends what: sliced, pairwise (as published), or full, also called secagg (everybody everything).",
        "names": ("--pattern", "--aggregator"),
    },
    "group_size": {"help": "Users of a group, at most.", "shown": "one group up to 128 users, else 100"},
    "modulus_bits": {"help": "Bits of a word, from 4 to 32.", "shown": "by size of the groups for sliced, else 32"},
    "neighbours": {"help": "Degree of the graph of masks and shares; complete if left out."},
    "threshold": {"help": "Users of a group that must stay for its sum to open.", "shown": "as dropouts allow"},
    "max_weight": {"help": "Users count by private weights of up to this.", "shown": "0: all alike"},
    "authenticated": {"help": "Use a roster of identities."},
    "seed": {"help": "Seed of everything random in the simulation.", "at_least": 0},
}

_Stage = TypeVar("_Stage")
_Number = TypeVar("_Number", int, float, int | None, float | None)


def at_least(minimum: int) -> Callable[[typer.CallbackParam, _Number], _Number]:
    """Return an option's check; NaN does not pass."""

    def check(parameter: typer.CallbackParam, value: _Number) -> _Number:
        if value is not None and not value >= minimum:
            raise InvalidInput(str(parameter.name), f"must be at least {minimum}, got {value:g}")
        return value

    return check


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[int, typer.Option("--seed", callback=at_least(0), help=COMMON["seed"]["help"])]

# Tables and progress go to standard error when --json owns standard output.
out = Console()
err = Console(stderr=True)


def option(default: Any, text: str, shown: str | None = None, **more: Any) -> Any:
    """Return a field with words of its own; `shown` is what the help says of the default."""
    return field(default=default, metadata={"help": text, "shown": shown, **more})


def parameters(options: type) -> Iterator[inspect.Parameter]:
    """Yield an option for each field of a dataclass."""
    hints = get_type_hints(options)
    for each in fields(options):
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield parameter(each.name, hints[each.name], default, each.metadata or COMMON[each.name])


def parameter(name: str, kind: Any, default: Any, words: Mapping[str, Any]) -> inspect.Parameter:
    """Return one option: `words` has its help, what is shown of the default, other names, a panel, a minimum."""
    names = words.get("names", ()) or ((f"--{name.replace('_', '-')}",) if kind in (bool, bool | None) else ())
    said = typer.Option(
        *names,
        help=words["help"],
        show_default=words.get("shown") or (default is not None and default is not False),
        rich_help_panel=words.get("panel"),
        callback=at_least(words["at_least"]) if "at_least" in words else None,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said])


def takes(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take its options as one value of a dataclass, which is its first argument."""
    mine = {each.name: each for each in parameters(options)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *others = inspect.signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def called(**given: Any) -> None:
            command(options(**{name: given.pop(name) for name in mine}), **given)

        show(called, [*mine.values(), *others])
        return called

    return decorate


def show(command: Callable[..., None], signature: Sequence[inspect.Parameter]) -> None:
    """Give a function the signature that typer reads."""
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature}


def help_if_alone(context: typer.Context) -> None:
    """Print the help of a group of commands that is called without one, and exit as for bad input."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def print_json(value: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def note(sentence: str) -> None:
    """Say something about the settings on standard error."""
    err.print(f"[yellow]note:[/yellow] {escape(sentence)}.", highlight=False, soft_wrap=True)


def say(line: str, console: Console = out) -> None:
    """Print a line as it is, without markup and without breaking it."""
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def progress(*columns: ProgressColumn) -> Progress:
    """Return a progress bar on standard error that leaves no trace when done; `columns` follow the bar."""
    told = columns or (MofNCompleteColumn(), TimeRemainingColumn())
    text = TextColumn("{task.description}")
    return Progress(text, BarColumn(), *told, console=err, transient=True, disable=not err.is_terminal)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error: a bar, or a line now and then where nobody would see a bar move."""
    shown = time.monotonic()
    with progress() as bar:
        task = bar.add_task(what, total=total)

        def count(completed: int) -> None:
            nonlocal shown
            bar.update(task, completed=completed)
            if not err.is_terminal and time.monotonic() - shown >= SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                say(f"{what}: {completed} of {total}", err)

        yield count


def alpha_of(pattern: str, asked: float) -> float:
    """Return the α that a pattern uses: full sends everything."""
    return asked if pattern not in PATTERNS or PATTERNS[pattern].sparse else 1.0


def note_unused_alpha(pattern: str, asked: float) -> None:
    """Say so if a pattern does not use the α that was asked for."""
    if alpha_of(pattern, asked) != asked and asked != DEFAULT_ALPHA:
        note(f"{pattern} sends everything: --alpha {asked:g} is not used")


def drop_stage(asked: str, known: Mapping[str, _Stage]) -> _Stage:
    """Return what --drop-at names, in any case."""
    name = asked.upper().replace("-", "_")
    require("drop_at", name in known, f"must be one of {', '.join(known)}, got {asked!r}")
    return known[name]


def word_bits(pattern: str, asked: int | None, users: int = USUAL_GROUP) -> int:
    """Return the bits of a word: the given number, or what the group size needs, or the paper's 32."""
    if asked is not None:
        return asked
    short = pattern in PATTERNS and PATTERNS[pattern].short_words
    return shortest_word(users, default_levels(users)) if short else WORD_BITS[-1]


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
