"""Ten thousand users in one process, a hundred thousand by a sample of their groups, and one model of 10^8 coordinates.

A user works within its group, whatever the size of the cohort, so its seconds and bytes per round should not grow with
N. Of a sample everybody advertises a key and is drawn into a group; then some groups are simulated in full.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from benchmarks import child
from benchmarks.setting import ANYBODY, CLIP, Setting
from benchmarks.systems import setup_costs
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.simulate import InProcessRun

SMALL, LARGE, HUGE = 1_000, 10_000, 100_000
DIM = 1_000_000
SAMPLED_GROUPS = 4
HUGE_DIM = 100_000_000
_OPTIONS = RoundOptions(alpha=0.1, dropout=0.1, modulus_bits=12, clip=CLIP)
_SETTINGS = {"alpha": _OPTIONS.alpha, "dropout": _OPTIONS.dropout, "modulus_bits": _OPTIONS.modulus_bits}
_COSTS = ("client_seconds", "server_seconds", "sent_bytes", "received_bytes")


def measure(dim: int = DIM, cohorts: tuple[int, int] = (SMALL, LARGE)) -> dict[str, Any]:
    """Return what a round costs per user in two cohorts, and how it grows from the first to the second."""
    small, large = found = [child.measure("scale", clients=clients, dim=dim, groups=None) for clients in cohorts]
    return {
        "cohorts": {str(clients): one for clients, one in zip(cohorts, found, strict=True)},
        "growth": {cost: large[cost] / small[cost] for cost in _COSTS},
        "settings": {"dim": dim, **_SETTINGS},
    }


def measure_sample(clients: int = HUGE, dim: int = DIM, huge_dim: int = HUGE_DIM) -> dict[str, Any]:
    """Return what a round costs some groups of a huge cohort, and one client's UPLOAD of a huge model."""
    sample = child.measure("scale", clients=clients, dim=dim, groups=SAMPLED_GROUPS)
    upload = child.measure("upload", clients=100, dim=huge_dim, repeats=1, alpha=0.1, modulus_bits=16)
    return {"cohorts": {str(clients): sample}, "upload": upload, "settings": {"dim": dim, **_SETTINGS}}


def measure_round(clients: int, dim: int, groups: int | None, seed: int = 0) -> dict[str, Any]:
    """Run one round, of all groups or of some, and return its costs per user that was simulated."""
    params = Parameters.create(clients, dim, _OPTIONS)
    run = InProcessRun(params, ANYBODY, groups=None if groups is None else range(min(groups, params.groups)))
    users = sorted(run.members)
    silent = np.random.default_rng(seed).choice(users, round(_OPTIONS.dropout * len(users)), replace=False)
    # A user of a real run does not wait for a garbage collector that walks through everybody's secrets.
    gc.freeze()
    # Windows of common noise: what it costs to make an update is nobody's.
    updates = Setting(clients, dim, _OPTIONS.alpha, _OPTIONS.dropout, params.modulus_bits, seed)
    _ = updates.noise
    outcome = run.round(updates.update, drops=dict.fromkeys(silent.tolist(), Stage.UPLOAD))
    result = outcome.result
    return {
        "client_seconds": outcome.client_seconds["total"],
        "server_seconds": outcome.server_seconds["total"] / len(users),
        "sent_bytes": result.mean_bytes(result.sent_bytes)["total"],
        "received_bytes": result.mean_bytes(result.received_bytes)["total"],
        "users_simulated": len(users),
        "groups": params.groups,
        "groups_opened": result.groups_opened,
        "threshold": params.threshold,
        "exact": outcome.exact,
        "setup": setup_costs(run),
    }
