"""Run a few rounds of each system; write results/overview.json and the tables of README and start page.

    .venv/bin/python -m experiments.overview.run [--peer | --publish]

Real clients and servers in one process, 165,000 parameters; a tenth of the users drop out of each round. Bytes are
those of one user in the last round: keys for later rounds and the model itself are included. Our own rows use the
planner's settings. Their model travels down as steps of four bits; all other systems send it whole. Flower's SecAgg+
is Flower's own workflow and mod; `--peer` measures that row alone, for it takes minutes and does not depend on
this package; without it that row stays. The accuracy comes from results/slices.json. What nodes of a Flower app save is
computed from the message formats at the default settings. `--publish` measures nothing and writes the tables.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import peer_flower
from benchmarks.setting import Setting
from experiments.common.results import commit
from sparsesecagg import Cohort, Goal, InProcessRun, Parameters, Policy, RoundOptions, Stage, plan_round
from sparsesecagg.downlink import Spread, StepLog
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.files import write_atomically
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.message_sizes import message_bytes
from sparsesecagg.privacy.anonymity import planned_colluders
from sparsesecagg.protocol.parameters import VERSION
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

ROOT = Path(__file__).parents[2]
RESULTS, SLICES = ROOT / "results" / "overview.json", ROOT / "results" / "slices.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "flower.md")
DIM, DROPOUT, COLLUDING, ROUNDS = 165_000, 0.1, 0.1, 3
WHOLE = 4 * DIM
"""Bytes of the model as float32."""
STEP_BITS, NODES, FLOWER_DIM = 4, (10, 50, 300), 100_000


@dataclass(frozen=True)
class Row:
    """One system with one cohort."""

    name: str
    clients: int
    options: RoundOptions
    roster: bool = True
    steps: bool = False
    """The model travels down in steps."""


def ours(name: str, clients: int) -> Row:
    """Return a row at the planner's settings."""
    plan = plan_round(Goal(clients, DIM, DROPOUT, COLLUDING, min_anonymity=5, alpha=DEFAULT_ALPHA))
    assert plan.options
    return Row(name, clients, plan.options, steps=True)


def rows() -> tuple[Row, ...]:
    """Return the systems whose rounds run through this package."""
    return (
        Row("SecAgg, 100 users", 100, RoundOptions(pattern="full")),
        Row("SparseSecAgg as published, 100 users", 100, RoundOptions(pattern="pairwise", alpha=0.1), roster=False),
        ours("**ours**, 10 users", 10),
        ours("**ours**, 100 users", 100),
        ours("**ours**, 1,000 users in 10 groups", 1000),
    )


def main() -> None:
    """Measure, save, publish."""
    if "--peer" in sys.argv[1:]:
        save(read() | {"peer": measure_peer()})
    elif "--publish" not in sys.argv[1:]:
        about = {
            "command": "python -m experiments.overview.run",
            "protocol": VERSION,
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "settings": {
                "dim": DIM,
                "dropout": DROPOUT,
                "colluding": COLLUDING,
                "rounds": ROUNDS,
                "alpha": DEFAULT_ALPHA,
                "step_bits": STEP_BITS,
            },
        }
        measured = {"rows": [measure(row) for row in rows()], "flower": [of_nodes(nodes) for nodes in NODES]}
        save(about | measured | {"peer": read().get("peer")})
    publish()


def save(result: dict[str, Any]) -> None:
    """Write what was measured."""
    write_atomically(RESULTS, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def read() -> dict[str, Any]:
    """Return what was measured."""
    result: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return result


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
    turns = params.shape.turns(params.epoch_seed(1, people[0].roster if people else None))
    spread = Spread([DIM], turns)
    log = StepLog(np.zeros(spread.size, np.float32), STEP_BITS)
    for _ in range(ROUNDS):
        gone = rng.choice(row.clients, round(DROPOUT * row.clients), replace=False)
        outcome = run.round(lambda _: update, drops=dict.fromkeys(gone.tolist(), Stage.UPLOAD))
        before = log.sequence
        log.advance(spread.join([spread.split(log.model)[0] + outcome.result.mean()]))
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
        "model_bytes": len(log.for_node(before)) if row.steps else WHOLE,
        "exchanges": 2,
        "honest_users": kept if params.shape.protects else None,
        "authenticated": row.roster,
    }


def measure_peer() -> dict[str, Any]:
    """Run one round of Flower's own SecAgg+, with everybody holding everybody's shares."""
    setting = Setting(clients=50, dim=DIM, alpha=1.0, dropout=DROPOUT, modulus_bits=32)
    measured = peer_flower.measure(setting)
    return {
        "name": "Flower's SecAgg+, 50 users",
        "clients": setting.clients,
        "alpha": 1.0,
        "modulus_bits": measured.settings["modulus_bits"],
        "threshold": setting.majority,
        "exact": measured.exact,
        "sent_bytes": measured.sent_bytes,
        "received_bytes": measured.received_bytes,
        "model_bytes": WHOLE,
        "exchanges": 4,
        "honest_users": setting.majority - planned_colluders(setting.clients, COLLUDING),
        "authenticated": False,
        "flwr": version("flwr"),
        "commit": commit(),
    }


def of_nodes(nodes: int) -> dict[str, Any]:
    """Return what `SecAgg(FedAvg())` costs a node, and what it keeps with a roster and without one."""
    from sparsesecagg.flower.settings import DEFAULTS, with_words

    options = with_words(DEFAULTS, nodes, None)
    params = Parameters.create(nodes, FLOWER_DIM, options)
    people = make_identities(nodes, "overview", seeded_entropy(1))
    listed = Parameters.create(nodes, FLOWER_DIM, options, roster=people[0].roster)
    log = StepLog(np.zeros(FLOWER_DIM, np.float32), STEP_BITS)
    covered = np.arange(FLOWER_DIM) < params.shape.coverage * FLOWER_DIM
    # Random values: those of a training take fewer bytes.
    log.advance(np.where(covered, np.random.default_rng(0).standard_normal(FLOWER_DIM), 0).astype(np.float32))
    sizes = message_bytes(params)
    return {
        "nodes": nodes,
        "dim": FLOWER_DIM,
        "alpha": params.shape.fraction(),
        "modulus_bits": params.modulus_bits,
        "sent_bytes": sizes.all_sent,
        "received_bytes": sizes.all_received,
        "model_bytes": len(log.for_node(0)),
        "honest_users_plain": kept_by(params, "semi-honest", COLLUDING).anonymity,
        "honest_users_roster": kept_by(listed, "malicious", COLLUDING).anonymity,
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
    """Write the tables into the pages."""
    result = read()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, lines in (("overview", table(result, page)), ("nodes", nodes_table(result))):
            begin, end = f"<!-- table: results/overview.json, {name} -->\n", f"<!-- end: {name} -->\n"
            if begin in text:
                before, rest = text.split(begin)
                text = before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
        page.write_text(text, encoding="utf-8")


def table(result: dict[str, Any], page: Path) -> list[str]:
    """Return the systems side by side, as Markdown."""
    docs = "" if page.parent.name == "docs" else "docs/"
    lines = [
        "| one user, one round | honest users in every sum | bytes up + down "
        "| times less | accuracy lost | exchanges |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        f"| plain FedAvg | 1: the server reads every update | {2 * WHOLE / 1e3:,.0f} kB | 1× | 0 | 1 |",
    ]
    for row in (result["peer"], *result["rows"]):
        up, down = row["sent_bytes"], row["received_bytes"] + row["model_bytes"]
        lines.append(
            f"| {_name(row)} | {_honest(row, docs)} | {up / 1e3:,.0f} + {down / 1e3:,.0f} kB "
            f"| {2 * WHOLE / (up + down):.{0 if row['name'].startswith('**') else 1}f}× | {_lost(row)} "
            f"| {row['exchanges']} |"
        )
    return lines


def _name(row: dict[str, Any]) -> str:
    return f"{row['name']}, α = {row['alpha']:.2g}" if row["name"].startswith("**") else str(row["name"])


def _honest(row: dict[str, Any], docs: str) -> str:
    if row["honest_users"] is None:
        return f"1: [single values are readable]({docs}weakness.md)"
    if row["name"].startswith("Flower"):
        return f"{row['honest_users']} if the server follows the protocol, else [1]({docs}peers.md#flowers-secagg)"
    return str(row["honest_users"])


def _lost(row: dict[str, Any]) -> str:
    if row["alpha"] == 1:
        return "0"
    lost = accuracy_lost(row["clients"], round(row["alpha"], 6)) if row["name"].startswith("**") else None
    return "not measured" if lost is None else f"{max(0.0, lost):.1f} points"


def nodes_table(result: dict[str, Any]) -> list[str]:
    """Return what a Flower app saves, as Markdown."""
    lines = [
        "| nodes | α | bits per value | bytes up + down | plain Flower | times less | honest nodes in every sum "
        "| even if the server lies (roster) |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in result["flower"]:
        up, down, plain = row["sent_bytes"], row["received_bytes"] + row["model_bytes"], 8 * row["dim"]
        lines.append(
            f"| {row['nodes']} | {row['alpha']:.2g} | {row['modulus_bits']} "
            f"| {up / 1e3:,.0f} + {down / 1e3:,.0f} kB | {plain / 1e3:,.0f} kB "
            f"| {plain / (up + down):.1f}× | {row['honest_users_plain']} | {row['honest_users_roster']} |"
        )
    return lines


if __name__ == "__main__":
    main()
