"""Opening a large round with one thread and with two: committees are independent, and the cipher runs in parallel.

    python -m benchmarks.threads [--clients 100] [--dim 10000000] [--save] [--json]

Two runs of the same cohort take turns, so that a busy moment of the machine hits both alike. What is compared is
the server's last step: secrets are restored, and the masks that are left are taken away.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import command, results
from benchmarks.cohort import Cohort
from benchmarks.systems import parameters
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Stage

RESULT = "threads"
COUNTS = (1, 2)


def main(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N).")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 10_000_000,
    repeats: Annotated[int, typer.Option(help="Rounds with each number of threads.")] = 5,
    save: Annotated[bool, typer.Option("--save", help="Write benchmarks/results/threads.json.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Open rounds with one thread and with two."""
    begun = results.begin(publish=save)
    answer = measure(clients, dim, repeats)
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
        return
    for count, seconds in answer["seconds"].items():
        command.out.print(f"{count} thread(s): {1000 * seconds:,.0f} ms", highlight=False)
    command.out.print(f"{answer['speedup']:.2f}× as fast", highlight=False)


def measure(clients: int = 100, dim: int = 10_000_000, repeats: int = 5) -> dict[str, Any]:
    """Return the median seconds of opening a round, by the number of threads, and how many times as fast two are."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    cohort = Cohort(clients, dim, alpha=0.1, dropout=0.1, modulus_bits=16)
    # Two sets of users drop out in turn: who misses one round still has a package in the next, but not in a third.
    order = np.random.default_rng(0).permutation(clients)
    silent = [part.tolist() for part in (order[: clients // 10], order[-(clients // 10) :])]
    runs = {count: InProcessRun(parameters("committee", cohort), threads=count) for count in COUNTS}
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    exact = True
    with command.progress() as bar:
        for turn in bar.track(range(repeats + 1), description="rounds"):
            drops = dict.fromkeys(silent[turn % 2], Stage.UPLOAD)
            for count, run in runs.items():
                outcome = run.round(cohort.update, drops=drops)
                seconds[count].append(outcome.server_seconds[Stage.UNMASK.name])
                exact &= outcome.exact
    medians = {count: float(np.median(values[1:])) for count, values in seconds.items()}  # The first warms up.
    return {
        "seconds": {str(count): value for count, value in medians.items()},
        "speedup": medians[1] / medians[2],
        "exact": exact,
        "settings": {**cohort.settings(), "repeats": repeats},
    }


if __name__ == "__main__":
    command.run(main)
