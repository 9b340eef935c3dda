"""`sparsesecagg reproduce`: the paper's table, figures and theorems, measured again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from sparsesecagg.cli.errors import EXIT_BAD_INPUT, Ended
from sparsesecagg.cli.shared import JsonOption, SeedOption, at_least

CHECKOUT = Path(__file__).parents[4]
SOURCE_TREE = "https://github.com/sparsesecagg/sparsesecagg"


def reproduce(
    name: Annotated[str, typer.Argument()],
    quick: Annotated[bool, typer.Option("--quick", help="Small and on embedded data: a minute or two.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with mnist/ and cifar-10-batches-bin/; or set SPARSESECAGG_DATA.")
    ] = None,
    results_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for result files and plots.", show_default="results")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(callback=at_least(0), help="Stop after about this long; the same command resumes it later."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an interrupted run left behind.")] = False,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Measure the paper's tables, figures and theorems again, with our own settings beside them.

    NAME is table1, fig2, fig3, fig4, fig5, fig6, mcmahan (Figure 5 with the paper's network), hypotheses (what might
    explain Figures 5 and 6), theory, tradeoff, clock, or all of them: all.

    Long ones say how long they take, save their work after every round, and resume when the same command is given
    again. Results go to NAME.json, plots to plots/.
    """
    _experiments().reproduce_all(name, quick, data_dir, results_dir, minutes, fresh, as_json, seed)


def _experiments() -> ModuleType:
    """Return the experiments' module that does it. They write into a checkout, so they are not part of the package."""
    if not (CHECKOUT / "experiments" / "common").is_dir():
        raise Ended(
            "reproduce needs the source tree, which an installed package does not carry: "
            f"git clone {SOURCE_TREE}, then run make setup and .venv/bin/sparsesecagg reproduce in it",
            EXIT_BAD_INPUT,
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module("experiments.common.command")
