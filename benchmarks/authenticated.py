"""What authentication costs client and server: plain and authenticated rounds in turn, in one run.

    .venv/bin/python -m benchmarks.authenticated [--clients 100] [--dim 165000] [--json]

Enrolment, the draw and the secrets of the run keys happen once per run and are left out. An authenticated run confirms
who survived in a third exchange, unless its plan does without: both are measured. With a ledger in a file, every answer
is on disk before it leaves; each user has a folder of its own, as a node has. The other rounds have theirs in memory.
Nodes write a ledger in plain runs too, so the cost of authentication alone is between the two runs with one on disk.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import command
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters, SqliteLedger

SIDES = ("client", "server")
_NAMES = {
    "plain": "plain",
    "plain_on_disk": "plain, with a ledger on disk",
    "authenticated": "authenticated, with CONFIRM",
    "authenticated_without_confirm": "authenticated, without CONFIRM",
    "authenticated_on_disk": "authenticated, with CONFIRM and a ledger on disk",
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
        parts = (
            f"{side} {1000 * answer[f'{side}_seconds'][name]:.1f} ms, {answer[f'{side}_ratios'][name]:.2f}×"
            for side in SIDES
        )
        command.out.print(f"{text}: {'; '.join(parts)}", highlight=False)


def measure(clients: int, dim: int, repeats: int, alpha: float = 0.1) -> dict[str, Any]:
    """Return the seconds per round of client and server, and how many times the plain ones the others take."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    people = make_identities(clients, "benchmark", seeded_entropy(0))
    update = np.random.default_rng(0).standard_normal(dim).astype(np.float32) / 4
    common: dict[str, Any] = {"clients": clients, "dim": dim, "alpha": alpha, "modulus_bits": 16}
    signed = Parameters.create(**common, roster_digest=people[0].roster.digest)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as files:

        def ledgers_of(params: Parameters) -> Callable[[int], SqliteLedger]:
            chain = b"%d" if params.roster_digest else b""

            def ledger_of(user: int) -> SqliteLedger:
                place = Path(folder) / params.run.hex() / str(user)
                return files.enter_context(SqliteLedger(place, params.run, user, chain and chain % user))

            return ledger_of

        plain = Parameters.create(**common, threshold=signed.threshold)  # So that only authentication differs.
        runs = {
            "plain": InProcessRun(plain),
            "plain_on_disk": InProcessRun(plain, ledger_of=ledgers_of(plain)),
            "authenticated": InProcessRun(signed, identities=people),
            "authenticated_without_confirm": InProcessRun(signed.replace(confirm=False), identities=people),
            "authenticated_on_disk": InProcessRun(signed, identities=people, ledger_of=ledgers_of(signed)),
        }
        seconds: dict[str, dict[str, list[float]]] = {side: {name: [] for name in runs} for side in SIDES}
        for _ in range(repeats + 1):
            for name, run in runs.items():
                outcome = run.round(lambda _: update)
                seconds["client"][name].append(outcome.client_seconds["total"])
                seconds["server"][name].append(outcome.server_seconds["total"])
    answer: dict[str, Any] = {"settings": {**common, "repeats": repeats, "threshold": signed.threshold}}
    for side, found in seconds.items():
        medians = {name: statistics.median(values[1:]) for name, values in found.items()}  # The first warms up.
        answer[f"{side}_seconds"] = medians
        answer[f"{side}_ratios"] = {name: medians[name] / medians["plain"] for name in medians}
        answer[f"{side}_ratio_on_disk"] = medians["authenticated_on_disk"] / medians["plain_on_disk"]
    return answer


if __name__ == "__main__":
    command.run(main)
