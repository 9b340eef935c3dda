"""Cost against N, d, α and θ, with fitted exponents beside the paper's O(·).

    python -m benchmarks.scaling [--full] [--only upload_dim,…] [--json]

UPLOAD is timed for one client in a cohort of any size (see lone_client.py); the server in whole rounds. Client times
are processor seconds, the least of the repeats, which a busy machine hardly changes; server times are the clock's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from benchmarks import child, command, results
from benchmarks.sweeps import SWEEPS, Sweep
from sparsesecagg.errors import InvalidInput

RESULT = "scaling"


def main(
    full: Annotated[bool, typer.Option("--full", help="All points, up to 2,000 clients and 10^8 coordinates.")] = False,
    only: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(SWEEPS)}.")] = "",
    save: Annotated[bool, typer.Option("--save", help="Write benchmarks/results/scaling.json.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Measure how the cost grows, and fit the exponents."""
    begun = results.begin(publish=save)
    answer = measure(_chosen(only), full)
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
    else:
        command.out.print(_table(answer))


def measure(chosen: Sequence[str], full: bool) -> dict[str, Any]:
    """Return all sweeps, each with its points and exponents."""
    plan = [(name, *point) for name in chosen for point in SWEEPS[name].points(full)]
    series: dict[str, dict[str, list[list[float]]]] = {name: {} for name in chosen}
    with command.progress() as bar:
        task = bar.add_task("", total=len(plan))
        for name, system, value, arguments in plan:
            bar.update(task, description=f"{name} {system} {value:g}")
            measured = child.measure(SWEEPS[name].job, **arguments)
            series[name].setdefault(system, []).append([float(value), _cost(SWEEPS[name], measured)])
            bar.advance(task)
    return {"sweeps": {name: _described(SWEEPS[name], series[name]) for name in chosen}, "full": full}


def exponent(points: Sequence[Sequence[float]]) -> float | None:
    """Return b of the power law a·x^b that fits best in log-log scale; None for fewer than two points."""
    if len(points) < 2:
        return None
    x, y = np.log(np.array(points, float)).T
    return float(np.polyfit(x, y, 1)[0])


def _cost(sweep: Sweep, measured: dict[str, Any]) -> float:
    if sweep.job == "upload":
        return float(measured["processor_seconds"])
    return float(measured["server_seconds"]["total"])


def _described(sweep: Sweep, series: dict[str, list[list[float]]]) -> dict[str, Any]:
    return {
        "title": sweep.title,
        "varied": sweep.varied,
        "quantity": sweep.quantity,
        "paper_exponent": sweep.paper,
        "series": {
            system: {"points": sorted(points), "exponent": exponent(points)} for system, points in series.items()
        },
    }


def _table(answer: dict[str, Any]) -> Table:
    table = Table(title="Exponents of the fitted power laws")
    for heading in ("sweep", "against", "system", "from, ms", "to, ms", "exponent", "paper"):
        table.add_column(heading, justify="left" if heading in {"sweep", "system"} else "right")
    for name, sweep in answer["sweeps"].items():
        for system, series in sweep["series"].items():
            first, last = series["points"][0], series["points"][-1]
            fitted, paper = series["exponent"], sweep["paper_exponent"]
            table.add_row(
                name,
                f"{sweep['varied']} {first[0]:g} to {last[0]:g}",
                system,
                f"{1000 * first[1]:,.1f}",
                f"{1000 * last[1]:,.1f}",
                "" if fitted is None else f"{fitted:.2f}",
                "" if paper is None else f"{paper:g}",
            )
        table.add_section()
    return table


def _chosen(only: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in SWEEPS:
            raise InvalidInput("only", f"must be some of {', '.join(SWEEPS)}, got {name!r}")
    return names or tuple(SWEEPS)


if __name__ == "__main__":
    command.run(main)
