"""`sparsesecagg reproduce`: the paper's table, figures and theorems, measured again."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.table import Table

from sparsesecagg.cli.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, Ended
from sparsesecagg.cli.shared import JsonOption, SeedOption, at_least, err, out, print_json, progress, say
from sparsesecagg.lab.learning.data import load_dataset

CHECKOUT = Path(__file__).parents[4]
SOURCE_TREE = "https://github.com/sparsesecagg/sparsesecagg"
ALL = "all"


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
    common = _experiments()
    scale = "quick" if quick else "default"
    experiments = [common.load(one) for one in (common.NAMES if name == ALL else (name,))]
    folder = results_dir or CHECKOUT / "results" / ("" if scale == "default" else scale)
    work_dir = (results_dir or CHECKOUT) / "runs" / "reproduce"
    # Complain about missing files before the first experiment, not hours later.
    for dataset in dict.fromkeys(each for one in experiments for each in one.needs(one.configurations[scale])):
        load_dataset(dataset, data_dir)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    done = []
    for one in experiments:
        if not quick:
            say(_estimate(one), err)
        given = {"data_dir": data_dir, "deadline": deadline, "fresh": fresh}
        try:
            with _reporting(one.name) as report:
                done.append(common.reproduce(one.name, scale, seed, folder, work_dir, report=report, **given))
        except KeyboardInterrupt:
            raise Ended(f"interrupted: the same command resumes {one.name}", EXIT_INTERRUPTED) from None
        if not as_json:
            _show(done[-1], one.title)
    if as_json:
        print_json(
            {
                "scale": scale,
                "results": {one.name: str(one.results_file) for one in done if one.result is not None},
                "complete": {one.name: bool(one.result and one.result["complete"]) for one in done},
                "plots": [str(path) for one in done for path in one.plots],
                "comparison": {one.name: [row._asdict() for row in one.rows] for one in done},
                "seconds": {one.name: one.seconds for one in done},
            }
        )


def _experiments() -> ModuleType:
    """Return the experiments' common module. They write into a checkout, so they are not part of the package."""
    if not (CHECKOUT / "experiments" / "common").is_dir():
        raise Ended(
            "reproduce needs the source tree, which an installed package does not carry: "
            f"git clone {SOURCE_TREE}, then run make setup and .venv/bin/sparsesecagg reproduce in it",
            EXIT_BAD_INPUT,
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module("experiments.common.experiment")


def _estimate(experiment: Any) -> str:
    """Say what the default scale takes."""
    minutes = experiment.cpu_minutes
    time_taken = f"{minutes / 60:.0f} hours" if minutes >= 120 else f"{minutes:.0f} minutes"
    return f"{experiment.name}: about {time_taken} on one idle core; the same command resumes it after an interruption"


@contextmanager
def _reporting(name: str) -> Iterator[Any]:
    """Show a bar on a terminal, and a line per piece of work where there is none."""
    with progress() as bar:
        task = bar.add_task(name, total=None)
        last = ""

        def report(what: str, done: int, total: int) -> None:
            nonlocal last
            bar.update(task, description=f"{name}: {what}", completed=done, total=total)
            if not err.is_terminal and what != last:
                say(f"{name}: {what} ({done}/{total})", err)
            last = what

        yield report


def _show(done: Any, title: str) -> None:
    if done.result is None:
        say(f"{done.name}: out of time before there was anything to show; the same command resumes it.", err)
        return
    table = Table("", "paper", "ours", "note", title=f"{done.name}: {title}", title_justify="left", show_lines=True)
    for row in done.rows:
        table.add_row(*row)
    out.print(table)
    say(f"{done.results_file}{'' if done.result['complete'] else ' (not complete: the same command resumes it)'}")
    for path in done.plots:
        say(str(path))
