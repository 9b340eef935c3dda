"""What authentication costs a client: plain and authenticated rounds in turn, in one run.

    .venv/bin/python -m benchmarks.authenticated [--clients 100] [--dim 165000] [--json]

Enrolment, the draw and the secrets of the run keys happen once per run and are left out. An authenticated run confirms
who survived in a third exchange, unless its plan does without: both are measured.
"""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import command
from sparsesecagg.engines.in_process import InProcessRun
from sparsesecagg.engines.in_process.simulation import make_identities, seeded_entropy
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters

_NAMES = {
    "plain": "plain",
    "authenticated": "authenticated, with CONFIRM",
    "authenticated_without_confirm": "authenticated, without CONFIRM",
}


def main(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N).")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 165_000,
    repeats: Annotated[int, typer.Option(help="Rounds of each.")] = 7,
    json: command.JsonOption = False,
) -> None:
    """Measure what a roster costs a client, and report medians and ratios."""
    answer = measure(clients, dim, repeats)
    if json:
        command.print_json(answer)
        return
    for name, text in _NAMES.items():
        seconds, ratio = answer["client_seconds"][name], answer["ratios"].get(name, 1.0)
        command.out.print(f"{text}: {1000 * seconds:.1f} ms, {ratio:.2f}×", highlight=False)


def measure(clients: int, dim: int, repeats: int, alpha: float = 0.1) -> dict[str, Any]:
    """Return the client's seconds per round, and how many times the plain ones the others take."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    people = make_identities(clients, "benchmark", seeded_entropy(0))
    update = np.random.default_rng(0).standard_normal(dim).astype(np.float32) / 4
    common: dict[str, Any] = {"clients": clients, "dim": dim, "alpha": alpha, "modulus_bits": 16}
    signed = Parameters.create(**common, roster_digest=people[0].roster.digest)
    runs = {
        # The same threshold in all, so that only authentication differs.
        "plain": InProcessRun(Parameters.create(**common, threshold=signed.threshold)),
        "authenticated": InProcessRun(signed, identities=people),
        "authenticated_without_confirm": InProcessRun(signed.replace(confirm=False), identities=people),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            seconds[name].append(run.round(lambda _: update).client_seconds["total"])
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}  # The first warms up.
    return {
        "client_seconds": medians,
        "ratios": {name: medians[name] / medians["plain"] for name in medians if name != "plain"},
        "settings": {**common, "repeats": repeats, "threshold": signed.threshold},
    }


if __name__ == "__main__":
    command.run(main)
