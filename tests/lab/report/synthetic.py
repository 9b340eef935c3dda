"""Run folders made up for tests: laid out like real ones, figures from a formula. Nothing was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

STAGES = ("ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK")
DIM = 21_840
CLIENTS = 50

# Upload bytes, whether there are other stages, mean contributors: like each aggregator, but not measured.
SHAPES: dict[str, tuple[float, bool, int]] = {
    "sliced": (64 + DIM * 0.1 * 2, True, 7),
    "pairwise": (64 + DIM * 0.095 * 4.6, True, 7),
    "secagg": (64 + DIM * 4, True, 35),
    "plain": (64 + DIM * 4, False, 35),
}


def write_run(
    folder: Path,
    aggregator: str = "sliced",
    *,
    rounds: int = 30,
    failed: Sequence[int] = (),
    reason: str = "22 users left at UNMASK, 26 are needed",
    classes: Sequence[str] = tuple("0123456789"),
    clients: int = CLIENTS,
    seed: int = 1,
    **options: Any,
) -> Path:
    """Write a run folder as `sparsesecagg train` lays it out."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    config = {
        "aggregator": aggregator,
        "dataset": "synthetic test data",
        "partition": "dirichlet",
        "model": "mlp",
        "dim": DIM,
        "clients": clients,
        "rounds": rounds,
        "alpha": 0.1,
        "dropout": 0.3,
        "modulus_bits": 16,
        "epochs": 5,
        "batch": 28,
        "lr": 0.01,
        "momentum": 0.5,
        "bandwidth_mbit": 100.0,
        "latency_ms": 20.0,
        "seed": seed,
        "version": "0.0-test",
        **options,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    samples = rng.integers(24, 40, clients)
    counts = rng.multinomial(samples, rng.dirichlet(np.full(len(classes), 0.6), clients))
    partition = {"classes": list(classes), "counts": counts.tolist()}
    (folder / "partition.json").write_text(json.dumps(partition), "utf-8")
    lines = [
        json.dumps(line)
        for line in _lines(aggregator, rounds, failed=set(failed), reason=reason, clients=clients, rng=rng)
    ]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines), "utf-8")
    return folder


def write_comparison(folder: Path, aggregators: Sequence[str] = tuple(SHAPES), **more: Any) -> Path:
    """Write a comparison with one sub-folder per aggregator."""
    folder.mkdir(parents=True)
    for number, aggregator in enumerate(aggregators):
        write_run(folder / aggregator, aggregator, failed=(11,) if number == 0 else (), **more)
    (folder / "comparison.json").write_text(json.dumps({"runs": list(aggregators)}), "utf-8")
    return folder


def _lines(
    aggregator: str, rounds: int, *, failed: set[int], reason: str, clients: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    upload, secure, contributors = SHAPES.get(aggregator, SHAPES["sliced"])
    sent = {
        "ADVERTISE_KEYS": 64,
        "SHARE_KEYS": 88 * (clients - 1),
        "UPLOAD": upload,
        "UNMASK": 36 * (clients - 1),
    }
    received = {"ADVERTISE_KEYS": 68 * clients, "SHARE_KEYS": 88 * (clients - 1), "UPLOAD": 8, "UNMASK": 16}
    client = {"ADVERTISE_KEYS": 0.0004, "SHARE_KEYS": 0.012, "UPLOAD": upload * 4e-7, "UNMASK": 0.0006}
    server = {"ADVERTISE_KEYS": 0.001, "SHARE_KEYS": 0.004, "UPLOAD": upload * 1e-6, "UNMASK": 0.09}
    # The same clients drop out whatever the aggregator; what is learned differs a little.
    noise = np.random.default_rng(len(aggregator))
    lines: list[dict[str, Any]] = []
    accuracy = 0.1
    for number in range(1, rounds + 1):
        bad = number in failed
        if not bad:
            accuracy = 0.95 - 0.8 * math.exp(-number / 6) + float(noise.normal(0, 0.009))
        dropped = {"ADVERTISE_KEYS": 0, "SHARE_KEYS": int(rng.binomial(clients, 0.03))}
        dropped |= {
            "UPLOAD": int(rng.binomial(clients, 0.24)),
            "UNMASK": 10 if bad else int(rng.binomial(clients, 0.02)),
        }
        spread = {str(k): _poisson(k, contributors) for k in range(2, 19)} if contributors < 20 else {"35": 1.0}
        line: dict[str, Any] = {
            "round": number,
            "accuracy": accuracy,
            "loss": 2.3 * math.exp(-number / 8) + 0.2,
            "status": "failed" if bad else "ok",
            "reason": reason if bad else None,
            "survivors": clients - sum(dropped.values()),
            "dropped": dropped if secure else {"UPLOAD": dropped["UPLOAD"]},
            "upload_bytes": upload,
            "sent_bytes": {**sent, "total": _total(sent)} if secure else {},
            "downlink_bytes": DIM * 0.5,
            "exchanges": 2 if secure else 1,
            "coordinates_updated": 0.0 if bad else 0.9 if aggregator == "sliced" else 1.0,
            "received_bytes": {**received, "total": _total(received)} if secure else {},
            "client_seconds": {**client, "total": _total(client)} if secure else {},
            "server_seconds": {**server, "total": _total(server)} if secure else {},
            "training_seconds": 0.4,
            "transfer_seconds": 0.05 + upload * 8e-8,
            "contributors": {"mean": contributors, "min": 2 if contributors < 20 else 35},
            "contributors_histogram": spread,
            "clipped": 0,
        }
        if bad:
            line |= {"contributors": None, "contributors_histogram": {}}
        lines.append(line)
    return lines


def _total(values: Mapping[str, float]) -> float:
    return sum(values.values())


def _poisson(k: int, mean: float) -> float:
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
