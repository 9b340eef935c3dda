"""Options of a command from one dataclass: each field is an option, and what it says about itself is the help.

A field without words of its own means the same in every command; `COMMON` explains it once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, field, fields
from functools import wraps
from typing import Annotated, Any, Final, get_type_hints

import typer

from sparsesecagg.cli.shared import USUAL_MAX_WEIGHT, at_least

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
    "weights": {"help": "How users count: uniform, or by examples (private weights).", "shown": "uniform"},
    "max_weight": {"help": "The largest private weight.", "shown": f"{USUAL_MAX_WEIGHT} with --weights examples"},
    "authenticated": {"help": "Use a roster of identities."},
    "seed": {"help": "Seed of everything random in the simulation.", "at_least": 0},
}


def option(default: Any, text: str, shown: str | None = None, **more: Any) -> Any:
    """Return a field with words of its own; `shown` is what the help says of the default."""
    return field(default=default, metadata={"help": text, "shown": shown, **more})


def parameters(options: type, kinds: Mapping[str, Any] | None = None) -> Iterator[inspect.Parameter]:
    """Yield an option for each field of a dataclass."""
    hints = get_type_hints(options)
    for each in fields(options):
        words = each.metadata or COMMON[each.name]
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        yield parameter(each.name, (kinds or hints)[each.name], default, words)


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
            chosen = {name: given.pop(name) for name in mine}
            command(options(**chosen), **given)

        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others]
        show(called, [*mine.values(), *own])
        return called

    return decorate


def show(command: Callable[..., None], signature: list[inspect.Parameter]) -> None:
    """Give a function the signature that typer reads."""
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature}
