"""Ten thousand users in one process, and a hundred thousand by a sample of their pods.

    python -m benchmarks.scale [--dim 1000000] [--save] [--json]

A user works within its pod, whatever the size of the cohort, so its seconds and bytes per round should not grow with N.
1,000 and 10,000 users take part in whole rounds. Of 100,000 everybody advertises a key and is drawn into a group; then
some of the pods are simulated in full, and what they cost is counted for all.
"""

from __future__ import annotations

import gc
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import child, command, results
from benchmarks.cohort import ANY_RUN, CLIP, Cohort
from benchmarks.sweeps import COMMITTEE_SIZE, POD_SIZE
from benchmarks.systems import setup_costs
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.protocol import Parameters, Stage

RESULT = "scale"
SMALL, LARGE, HUGE = 1_000, 10_000, 100_000
SAMPLED_PODS = 4
ALPHA, DROPOUT, BITS = 0.1, 0.1, 12
_COSTS = ("client_seconds", "server_seconds", "sent_bytes", "received_bytes")


def main(
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 1_000_000,
    save: Annotated[bool, typer.Option("--save", help="Write benchmarks/results/scale.json.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Run rounds of 1,000 and 10,000 users, and a sample of 100,000."""
    begun = results.begin(publish=save)
    answer = measure(dim)
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
        return
    for clients, one in answer["cohorts"].items():
        client, server = 1000 * one["client_seconds"], 1000 * one["server_seconds"]
        command.out.print(
            f"N = {int(clients):,}: per user {client:.1f} ms, {server:.2f} ms of the server, "
            f"{one['sent_bytes']:,.0f} bytes sent, {one['received_bytes']:,.0f} received; "
            f"peak memory {one['peak_memory_bytes'] / 1e9:.2f} GB",
            highlight=False,
        )


def measure(dim: int = 1_000_000, cohorts: tuple[int, int, int] = (SMALL, LARGE, HUGE)) -> dict[str, Any]:
    """Return what a round costs per user in each cohort, and how it grows from the first to the second."""
    small, large, huge = cohorts
    found: dict[str, dict[str, Any]] = {}
    with command.progress() as bar:
        for clients in bar.track(cohorts, description="rounds"):
            pods = SAMPLED_PODS if clients == huge else None
            found[str(clients)] = child.measure("scale", clients=clients, dim=dim, pods=pods)
    return {
        "cohorts": found,
        "growth": {cost: found[str(large)][cost] / found[str(small)][cost] for cost in _COSTS},
        "growth_sampled": {cost: found[str(huge)][cost] / found[str(small)][cost] for cost in _COSTS},
        "peak_memory_bytes": found[str(large)]["peak_memory_bytes"],
        "settings": {"dim": dim, "alpha": ALPHA, "dropout": DROPOUT, "modulus_bits": BITS}
        | {"committee_size": COMMITTEE_SIZE, "pod_size": POD_SIZE},
    }


def measure_round(clients: int, dim: int, pods: int | None, seed: int = 0) -> dict[str, Any]:
    """Run one round, of all pods or of some, and return its costs per user that was simulated."""
    params = Parameters.create(
        clients=clients,
        dim=dim,
        alpha=ALPHA,
        committee_size=COMMITTEE_SIZE,
        pod_size=POD_SIZE,
        dropout=DROPOUT,
        modulus_bits=BITS,
        clip=CLIP,
    )
    sampled = None if pods is None else range(min(pods, params.pods))
    run = InProcessRun(params, policy=ANY_RUN, pods=sampled)
    users = sorted(run.members)
    silent = np.random.default_rng(seed).choice(users, round(DROPOUT * len(users)), replace=False)
    # A user of a real run does not wait for a garbage collector that walks through everybody's secrets.
    gc.freeze()
    # Windows of common noise: what it costs to make an update is nobody's.
    updates = Cohort(clients, dim, ALPHA, DROPOUT, BITS, seed)
    _ = updates.noise
    outcome = run.round(updates.update, drops=dict.fromkeys(silent.tolist(), Stage.UPLOAD))
    result = outcome.result
    return {
        "client_seconds": outcome.client_seconds["total"],
        "server_seconds": outcome.server_seconds["total"] / len(users),
        "sent_bytes": result.mean_bytes(result.sent_bytes)["total"],
        "received_bytes": result.mean_bytes(result.received_bytes)["total"],
        "users_simulated": len(users),
        "pods": params.pods,
        "committees": params.committees,
        "committees_opened": result.committees_opened,
        "alpha_effective": params.selection_probability,
        "server_seconds_of_all": outcome.server_seconds["total"] * clients / len(users),
        "exact": outcome.exact,
        "setup": setup_costs(run),
    }


if __name__ == "__main__":
    command.run(main)
