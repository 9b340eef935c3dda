"""What `sparsesecagg reproduce` does: run experiments one after the other, and show what came of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.common import experiment as common
from sparsesecagg.cli.errors import EXIT_INTERRUPTED, Ended
from sparsesecagg.cli.shared import err, out, print_json, progress, say
from sparsesecagg.lab.cli.reproduce import CHECKOUT
from sparsesecagg.lab.learning.data import load_dataset

ALL = "all"


def reproduce_all(
    name: str,
    quick: bool,
    data_dir: Path | None,
    results_dir: Path | None,
    minutes: float | None,
    fresh: bool,
    as_json: bool,
    seed: int,
) -> None:
    """Measure one experiment, or all of them."""
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
        given: dict[str, Any] = {"data_dir": data_dir, "deadline": deadline, "fresh": fresh}
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
