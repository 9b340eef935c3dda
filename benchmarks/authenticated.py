"""What authentication and a ledger on disk cost client and server: four kinds of rounds in turn, in one run.

Enrolment happens once per run and is left out. With a ledger on disk every answer is written before it leaves; each
user has a folder of its own, as a node has. The other rounds have theirs in memory. Nodes write a ledger in plain runs
too, so the cost of authentication alone is between the two kinds with one on disk.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters, RoundOptions, SqliteLedger
from sparsesecagg.simulate import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

SIDES = ("client", "server")
NAMES = {
    "plain": "plain",
    "plain_on_disk": "plain, with a ledger on disk",
    "authenticated": "authenticated",
    "authenticated_on_disk": "authenticated, with a ledger on disk",
}


def measure(clients: int = 100, dim: int = 165_000, repeats: int = 5) -> dict[str, Any]:
    """Return the seconds per round of client and server, and how many times the plain ones the others take."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    people = make_identities(clients, "benchmark", seeded_entropy(0))
    roster = people[0].roster
    update = np.random.default_rng(0).standard_normal(dim).astype(np.float32) / 4
    # The same threshold in all, so that only authentication differs.
    options = RoundOptions(alpha=0.1, modulus_bits=16, colluding=roster.colluding)
    plain, signed = Parameters.create(clients, dim, options), Parameters.create(clients, dim, options, roster=roster)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as files:

        def ledgers(name: str, params: Parameters) -> Callable[[int], SqliteLedger]:
            def ledger_of(user: int) -> SqliteLedger:
                place = Path(folder) / name / str(user)
                own = roster if params.authenticated else None
                return files.enter_context(SqliteLedger(place, params.run, user, own))

            return ledger_of

        runs = {
            "plain": InProcessRun(plain),
            "plain_on_disk": InProcessRun(plain, Cohort(ledger_of=ledgers("plain", plain))),
            "authenticated": InProcessRun(signed, Cohort(identities=people)),
            "authenticated_on_disk": InProcessRun(
                signed, Cohort(identities=people, ledger_of=ledgers("signed", signed))
            ),
        }
        seconds: dict[str, dict[str, list[float]]] = {side: {name: [] for name in runs} for side in SIDES}
        for _ in range(repeats + 1):
            for name, run in runs.items():
                outcome = run.round(lambda _: update)
                seconds["client"][name].append(outcome.client_seconds["total"])
                seconds["server"][name].append(outcome.server_seconds["total"])
    answer: dict[str, Any] = {
        "settings": {"clients": clients, "dim": dim, "alpha": 0.1, "modulus_bits": 16, "repeats": repeats}
        | {"threshold": plain.threshold}
    }
    for side, found in seconds.items():
        medians = {name: statistics.median(values[1:]) for name, values in found.items()}  # The first warms up.
        answer[f"{side}_seconds"] = medians
        answer[f"{side}_ratios"] = {name: medians[name] / medians["plain"] for name in medians}
    return answer
