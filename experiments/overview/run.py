"""Run one round of each system in steady state; write results/overview.json and the README's table.

    .venv/bin/python -m experiments.overview.run

Real clients and servers in one process, 165,000 parameters, a tenth of the users drops out of each round. Bytes are
those that one user sends and receives in a round, keys for later rounds included, the model itself left out. Honest
users are those that every sum has which a server can open, a tenth of all users colluding with it: with a roster even
if the server lies, without one if it follows the protocol. The accuracy beside them is that of results/slices.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from experiments.common.results import commit
from sparsesecagg import Cohort, InProcessRun, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.files import write_atomically
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol.parameters import VERSION
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

ROOT = Path(__file__).parents[2]
RESULTS, README, SLICES = ROOT / "results" / "overview.json", ROOT / "README.md", ROOT / "results" / "slices.json"
BEGIN, END = "<!-- table: results/overview.json -->\n", "<!-- end: overview -->\n"
DIM, DROPOUT, COLLUDING, ROUNDS = 165_000, 0.1, 0.1, 3


@dataclass(frozen=True)
class Row:
    """One system with one cohort."""

    name: str
    clients: int
    options: RoundOptions
    roster: bool = True


ROWS = (
    Row("SecAgg, 100 users", 100, RoundOptions(pattern="full")),
    Row("SparseSecAgg as published, 100 users", 100, RoundOptions(pattern="pairwise", alpha=0.1), roster=False),
    Row("**ours**, 10 users", 10, RoundOptions(alpha=0.1, modulus_bits=7)),
    Row("**ours**, 100 users", 100, RoundOptions(alpha=0.1, modulus_bits=9)),
    Row("**ours**, 1,000 users in 10 groups", 1000, RoundOptions(alpha=0.1, modulus_bits=9, group_size=100)),
)


def main() -> None:
    """Measure, save, publish."""
    rows = [measure(row) for row in ROWS]
    about = {
        "command": "python -m experiments.overview.run",
        "protocol": VERSION,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "settings": {"dim": DIM, "dropout": DROPOUT, "colluding": COLLUDING, "rounds": ROUNDS},
    }
    write_atomically(RESULTS, json.dumps(about | {"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    publish()


def measure(row: Row) -> dict[str, Any]:
    """Run some rounds and return what the last one cost, and what it promises."""
    people = (
        make_identities(row.clients, "overview", seeded_entropy(1), group_size=row.options.group_size)
        if row.roster
        else None
    )
    params = Parameters.create(row.clients, DIM, row.options, roster=people[0].roster if people else None)
    run = InProcessRun(params, Cohort(policy=Policy(min_anonymity=0, patterns=frozenset(PATTERNS)), identities=people))
    rng = np.random.default_rng(0)
    update = (rng.standard_normal(DIM) / 10).astype(np.float32)
    for _ in range(ROUNDS):
        gone = rng.choice(row.clients, round(DROPOUT * row.clients), replace=False)
        outcome = run.round(lambda _: update, drops=dict.fromkeys(gone.tolist(), Stage.UPLOAD))
    result = outcome.result
    kept = kept_by(params, "malicious" if people else "semi-honest", COLLUDING).anonymity
    return {
        "name": row.name,
        "clients": row.clients,
        "alpha": params.shape.fraction(),
        "modulus_bits": params.modulus_bits,
        "threshold": params.threshold,
        "exact": outcome.exact,
        "sent_bytes": result.mean_bytes(result.sent_bytes)["total"],
        "received_bytes": result.mean_bytes(result.received_bytes)["total"],
        "upload_bytes": result.mean_bytes(result.sent_bytes)["UPLOAD"],
        "exchanges": 2,
        "honest_users": kept if params.shape.protects else None,
        "authenticated": row.roster,
    }


def accuracy_lost(clients: int, alpha: float) -> float | None:
    """Return the points below α = 1 at round 40, the mean of MNIST IID and shards and three seeds, if measured."""
    runs = json.loads(SLICES.read_text(encoding="utf-8"))["runs"]

    def at(fraction: float) -> float | None:
        found = [
            fmean(run["accuracy"][35:40])
            for run in runs
            if run["task"] == "MNIST"
            and (run["users"], run["alpha"], run["gain"], run["epochs"]) == (clients, fraction, "adaptive", 1)
            and (run["cut"], run["strategy"], run["levels"]) == ("blocks", "FedAvg", None)
        ]
        return fmean(found) if found else None

    whole, part = at(1.0), at(alpha)
    return None if whole is None or part is None else whole - part


def publish() -> None:
    """Write the table into the README."""
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    README.write_text(text[:start] + table(result) + text[stop:], encoding="utf-8")


def table(result: dict[str, Any]) -> str:
    """Return the rows as Markdown."""
    whole = 4 * DIM
    base = next(row for row in result["rows"] if row["name"].startswith("SecAgg"))
    lines = [
        "| one round | honest users in every sum | sent per user | received, without the model "
        "| times less than SecAgg | accuracy lost | exchanges |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| plain FedAvg | 1: the server reads each update | {whole / 1e3:,.0f} kB | – | – | 0 | 1 |",
    ]
    for row in result["rows"]:
        moved = row["sent_bytes"] + row["received_bytes"]
        ratio = (base["sent_bytes"] + base["received_bytes"]) / moved
        lost = accuracy_lost(row["clients"], round(row["alpha"], 6)) if row["authenticated"] else None
        if row is base:
            lost = 0.0
        honest = "1: see [why](docs/weakness.md)" if row["honest_users"] is None else f"{row['honest_users']}"
        lines.append(
            f"| {row['name']} | {honest} | {row['sent_bytes'] / 1e3:,.1f} kB | {row['received_bytes'] / 1e3:,.1f} kB "
            f"| {ratio:.1f}× | {'–' if lost is None else f'{max(0.0, lost):.1f} points'} | {row['exchanges']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
