"""The whole of a round: bytes up, bytes down with the model, exchanges and seconds, of four ways to learn together.

    .venv/bin/python -m benchmarks.whole [--clients 100] [--dim 165000] [--alpha 0.1] [--modulus-bits 8] [--json]

Plain FedAvg sends a model each way. Flower's SecAgg+ and our committees are measured as `benchmarks.compare` does it,
rounds in steady state with the same dropouts; the model on its way down comes on top, whole (float32) or as a step
that a real `StepLog` makes of the round's own mean and a real `Replica` takes. Bytes are per user and round, before
HTTP.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import child, command, peer_flower, results
from benchmarks.cohort import ANY_RUN, Cohort
from benchmarks.systems import measure_round, parameters
from sparsesecagg.downlink import Replica, StepLog
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.protocol import Stage

RESULT = "whole"
COHORT = Cohort(clients=100, dim=165_000, alpha=0.1, dropout=0.1, modulus_bits=8)
PLAIN, COMMITTEE, STEPS = "plain", "committee", "committee_steps"
_FLOAT = 4
_WARM_UP = 2
"""Models before the step that is measured: the first ones have no rounding error to carry."""


def main(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N).")] = COHORT.clients,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = COHORT.dim,
    alpha: Annotated[float, typer.Option(help="Fraction that each user sends, in (0, 1].")] = COHORT.alpha,
    dropout: Annotated[float, typer.Option(help="Fraction of users that drop out at UPLOAD (θ).")] = COHORT.dropout,
    modulus_bits: Annotated[int, typer.Option(help="Bits of a word.")] = COHORT.modulus_bits,
    downlink_bits: Annotated[int, typer.Option(help="Bits of a step per coordinate: 2, 4 or 8.")] = 4,
    peer: Annotated[bool, typer.Option("--peer/--no-peer", help="Measure Flower's SecAgg+ too; minutes.")] = True,
    save: Annotated[bool, typer.Option("--save", help=f"Write the result file {RESULT}.json.")] = False,
    json: command.JsonOption = False,
    seed: command.SeedOption = 0,
) -> None:
    """Count everything that a user moves in a round, the model included, and compare."""
    begun = results.begin(publish=save)
    answer = measure(Cohort(clients, dim, alpha, dropout, modulus_bits, seed), downlink_bits, peer)
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
        return
    for name, one in answer["systems"].items():
        command.out.print(
            f"{name}: {one['sent_bytes'] / 1e3:,.1f} kB up, {one['received_bytes'] / 1e3:,.1f} kB down with the model, "
            f"{one['total_bytes'] / 1e3:,.1f} kB in all, {one['exchanges']} exchange(s)",
            highlight=False,
            soft_wrap=True,
        )


def measure(cohort: Cohort, downlink_bits: int = 4, peer: bool = True) -> dict[str, Any]:
    """Return the four rows, and how many times less the last one moves than the others."""
    if downlink_bits not in (2, 4, 8):
        raise InvalidInput("downlink_bits", f"must be 2, 4 or 8, got {downlink_bits}")
    parameters(COMMITTEE, cohort)  # Refuses bad settings before anything has run.
    model = _FLOAT * cohort.dim
    systems: dict[str, dict[str, Any]] = {
        PLAIN: {"sent_bytes": model, "received_bytes": model, "model_bytes": model, "exchanges": 1}
    }
    if peer and _peer_installed():
        found = child.measure("system", system=peer_flower.NAME, cohort=cohort.settings())
        systems[peer_flower.NAME] = _with_model(found, model, exchanges=4)
    found = child.measure("whole", cohort=cohort.settings(), downlink_bits=downlink_bits)
    exchanges = 3 if found["settings"]["confirm"] else 2
    systems[COMMITTEE] = _with_model(found, model, exchanges)
    systems[STEPS] = _with_model(found, found["step_bytes"], exchanges)
    for side in ("client_seconds", "server_seconds"):
        systems[STEPS][side] = {**found[side], "total": found[side]["total"] + found["step_seconds"][side]}
    for one in systems.values():
        one["total_bytes"] = one["sent_bytes"] + one["received_bytes"]
    return {
        "systems": systems,
        "ratios": {name: one["total_bytes"] / systems[STEPS]["total_bytes"] for name, one in systems.items()},
        "settings": {**cohort.settings(), "downlink_bits": downlink_bits, "dropped": len(cohort.dropped)},
    }


def measure_with_steps(cohort: Cohort, downlink_bits: int) -> dict[str, Any]:
    """Run one round, and one step of the model that its mean leads to."""
    params = parameters(COMMITTEE, cohort)
    measured = measure_round(params, cohort)
    drops = dict.fromkeys(cohort.dropped, Stage.UPLOAD)
    mean = InProcessRun(params, policy=ANY_RUN).round(cohort.update, drops=drops).result.mean("observed")
    update = mean.astype(np.float32)
    start = np.random.default_rng(cohort.seed).normal(0, 0.05, cohort.dim).astype(np.float32)
    log = StepLog(start, downlink_bits)
    node = Replica.from_model(log.for_node(None))
    for _ in range(_WARM_UP):
        log.advance(log.model + update)
        node.catch_up(log.for_node(node.sequence, node.digest))
    begun = time.perf_counter()
    log.advance(log.model + update)
    step = log.for_node(node.sequence, node.digest)
    made = time.perf_counter()
    node.catch_up(step)
    taken = time.perf_counter()
    assert node.digest == log.digest
    return {
        **asdict(measured),
        "settings": {**measured.settings, "confirm": params.confirm},
        "step_bytes": len(step),
        "step_seconds": {"server_seconds": made - begun, "client_seconds": taken - made},
    }


def _with_model(found: dict[str, Any], model: int, exchanges: int) -> dict[str, Any]:
    kept = {key: found[key] for key in ("client_seconds", "server_seconds", "sent_bytes", "exact", "settings")}
    received = found["received_bytes"] + model
    return {**kept, "received_bytes": received, "model_bytes": model, "exchanges": exchanges}


def _peer_installed() -> bool:
    try:
        peer_flower.require_flower()
    except MissingExtra as missing:
        command.note(f"{missing}; measuring the rest")
        return False
    return True


if __name__ == "__main__":
    command.run(main)
