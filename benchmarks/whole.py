"""The whole of a round: bytes up, bytes down with the model, exchanges and seconds, of five ways to learn together.

Plain FedAvg sends a model each way. The others are measured as `benchmarks.compare` does it, in steady state and with
the same dropouts, each with its usual threshold; the model on its way down comes on top, whole (float32) or as a step
that a real `StepLog` makes of the round's own mean and a real `Replica` takes: of all coordinates, or of those alone
that the round covered. Bytes are per user and round, before HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import child, command, peer_flower, systems
from benchmarks.setting import Setting
from sparsesecagg.downlink import Replica, Spread, StepLog

SETTING = Setting(clients=100, dim=165_000, alpha=0.1, dropout=0.1, modulus_bits=8)
SIZES = (10, 50, 100, 1_000)
PLAIN, SECAGG, SLICED, STEPS, COVERED = "plain", "secagg", "sliced", "sliced_steps", "sliced_covered"
STEP_BITS = 4
LARGEST = {peer_flower.NAME: 50, SECAGG: 100}
"""Cohorts that these systems are measured with unless everything is asked for: they take minutes beyond."""
LARGEST_FULL = {peer_flower.NAME: 100, SECAGG: 1_000}
_FLOAT = 4
_WARM_UP = 2
"""Models before the step that is measured: the first ones have no rounding error to carry."""


def measure(setting: Setting = SETTING, sizes: Sequence[int] = SIZES, full: bool = False) -> dict[str, Any]:
    """Return, for each size of the cohort, what each system costs."""
    found, with_flower = {}, peer_flower.installed()
    settings = [replace(setting, clients=size) for size in sizes]
    for each in settings:
        systems.parameters(SLICED, each)  # Refuses bad settings before anything has run.
    with command.progress() as bar:
        for each in bar.track(settings, description="rounds"):
            largest = LARGEST_FULL if full else LARGEST
            chosen = [name for name, limit in largest.items() if each.clients <= limit]
            found[str(each.clients)] = _rows(each, [name for name in chosen if name == SECAGG or with_flower])
    return {"sizes": found, "settings": {**setting.settings(), "downlink_bits": STEP_BITS}}


def _rows(setting: Setting, others: Sequence[str]) -> dict[str, dict[str, Any]]:
    model = _FLOAT * setting.dim
    rows: dict[str, dict[str, Any]] = {PLAIN: {"sent_bytes": model, "received_bytes": model, "exchanges": 1}}
    for name in others:
        rows[name] = _with_model(child.measure_system(name, setting), model, 4 if name == peer_flower.NAME else 2)
    found = child.measure("whole", setting=setting.settings())
    rows[SLICED] = _with_model(found, model, 2)
    for name, step in found["steps"].items():
        rows[name] = _with_model(found, step["bytes"], 2)
        for side in ("client_seconds", "server_seconds"):
            rows[name][side] += step[side]
    for one in rows.values():
        one["total_bytes"] = one["sent_bytes"] + one["received_bytes"]
    return rows


def _with_model(found: dict[str, Any], model: int, exchanges: int) -> dict[str, Any]:
    return {
        "client_seconds": found["client_seconds"]["total"],
        "server_seconds": found["server_seconds"]["total"],
        "sent_bytes": found["sent_bytes"],
        "received_bytes": found["received_bytes"] + model,
        "model_bytes": model,
        "exchanges": exchanges,
        "exact": found["exact"],
        "settings": found["settings"],
    }


def measure_with_steps(setting: Setting) -> dict[str, Any]:
    """Run one round, and the steps of the model that its mean leads to."""
    run = systems.start(SLICED, setting, usual_threshold=True)
    measured = systems.measure_run(run, setting)
    result = run.server.result
    assert result is not None
    update = result.mean("observed").astype(np.float32)
    turns = run.params.shape.turns(run.params.epoch_seed(1, None))
    return {
        **asdict(measured),
        "steps": {STEPS: _step(setting, update, None), COVERED: _step(setting, update, turns)},
    }


def _step(setting: Setting, update: NDArray[np.float32], turns: NDArray[np.int32] | None) -> dict[str, float]:
    """Return the bytes of a step, and what it takes both sides; with `turns` it has the covered coordinates only."""
    start = np.random.default_rng(setting.seed).normal(0, 0.05, setting.dim).astype(np.float32)
    spread = Spread([setting.dim], turns)
    log = StepLog(spread.join([start]), bits=STEP_BITS)
    node = Replica.from_model(log.for_node(None))
    for _ in range(_WARM_UP + 1):
        begun = time.perf_counter()
        log.advance(spread.join([spread.split(log.model)[0] + update]))
        step = log.for_node(node.sequence, node.digest)
        made = time.perf_counter()
        node.catch_up(step)
        spread.split(node.model)
        taken = time.perf_counter()
    assert node.digest == log.digest
    return {"bytes": len(step), "server_seconds": made - begun, "client_seconds": taken - made}
