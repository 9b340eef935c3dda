"""Ten silos learn from tabular data, each record protected by noise; results/silos.json and the page's table.

    .venv/bin/python -m experiments.silos.run

Logistic regression on scikit-learn's breast cancer data: 455 records in ten silos, 114 for the test, 30 rounds of one
gradient each, clipped for each record. What is compared has the same rounds, clip and learning rate:

    none      no protection: neither clip nor noise
    trusted   a trusted server has all gradients and adds the noise once
    shared    `unit="example"`: each silo adds 1/H of the variance under secure aggregation, one of ten may collude
    local     each silo adds all of the noise itself, since nobody hides its sum

Clipping, rounding and noise are those of the protocol (`Mechanism.steps`). Masks are left out: they change no sum.
"""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.results import commit
from sparsesecagg import Parameters, Policy, RoundOptions, __version__
from sparsesecagg.crypto.kdf import derive
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "silos.json", ROOT / "docs" / "differential-privacy.md"
BEGIN, END = "<!-- table: results/silos.json -->\n", "<!-- end: silos -->\n"
SILOS, TRAINING, ROUNDS, LAST = 10, 455, 30, 5
DELTA, CLIP, RATE, COLLUDING = 1e-5, 1.0, 4.0, 0.1
EPSILONS = (4.0, 1.0, 0.5)
SEEDS = tuple(range(3))
SYSTEMS = ("none", "trusted", "shared", "local")
Matrix = NDArray[np.float64]


@cache
def _records() -> tuple[Matrix, Matrix]:
    """Return features with a one behind them, scaled by their published ranges, and labels."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    low, high = features.min(axis=0), features.max(axis=0)
    scaled = 4 * (features - low) / (high - low) - 1
    return np.concatenate([scaled, np.ones((len(labels), 1))], axis=1), labels.astype(np.float64)


def accuracy(system: str, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Train one run; return the accuracy in percent, the mean of the last rounds, and what noise there was."""
    features, labels = _records()
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = order[:TRAINING], order[TRAINING:]
    goal = DifferentialPrivacy(epsilon, ROUNDS, DELTA, CLIP, unit="example")
    dim = features.shape[1]
    params = Parameters.create(SILOS, dim, with_noise(RoundOptions(), goal, SILOS, dim), session=bytes(32))
    mechanism, honest = params.mechanism, Policy(colluding=COLLUDING).check(params).anonymity
    assert mechanism is not None
    # Each silo's steps add 1/sharers of what a sum needs; a trusted server's ten shares add up to just that.
    sharers = {"trusted": SILOS, "shared": honest, "local": 1}
    model, found = np.zeros(dim), []
    for number in range(ROUNDS):
        total = np.zeros(dim)
        for silo in range(SILOS):
            own = train[silo::SILOS]
            rows = (labels[own] - 1 / (1 + np.exp(-features[own] @ model)))[:, None] * features[own]
            if system == "none":
                total += rows.sum(axis=0)
                continue
            clip, rounding, noise = mechanism.steps(sharers[system], _entropy(system, seed, number, silo))
            clip.begin(lambda rows=rows: [rows])  # type: ignore[misc]
            scaled = clip.apply(rows)
            rounding.begin(lambda scaled=scaled: [scaled])  # type: ignore[misc]
            total += noise.apply(rounding.apply(scaled)) / mechanism.scale
        model = model + RATE * total / TRAINING
        if number >= ROUNDS - LAST:
            found.append(100 * float(((features[test] @ model > 0) == (labels[test] > 0.5)).mean()))
    noise_of = (
        {"noise_multiplier": mechanism.multiplier, "silos_that_share": sharers[system]} if system in sharers else {}
    )
    return fmean(found), noise_of


def _entropy(*about: Any) -> Any:
    """Return bytes that follow from the seed, for a simulation that can be repeated."""
    counter = itertools.count()

    def read(size: int) -> bytes:
        return derive(bytes(32), "silos", repr((*about, next(counter))).encode())[:size]

    return read


def main() -> None:
    """Measure everything, write results and the table."""
    runs = []
    for epsilon, system, seed in itertools.product(EPSILONS, SYSTEMS, SEEDS):
        found, how = accuracy(system, epsilon, seed)
        runs.append({"epsilon": epsilon, "system": system, "seed": seed, "accuracy": round(found, 2), **how})
    result = {
        "command": "python -m experiments.silos.run",
        "version": __version__,
        "commit": commit(),
        "seeds": list(SEEDS),
        "data": {"name": "breast cancer of scikit-learn"},
        "configuration": {
            "silos": SILOS, "training": TRAINING, "rounds": ROUNDS, "delta": DELTA, "clip": CLIP, "rate": RATE,
            "colluding": COLLUDING,
        },
        "complete": True,
        "runs": runs,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table(result) + END + rest.split(END)[1], encoding="utf-8")


def table(result: dict[str, Any]) -> str:
    """Return the table of the page."""
    lines = [
        '| ε per record | no protection | trusted server | `unit="example"`, shared noise | local noise |',
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for epsilon in EPSILONS:
        row = [f"{epsilon:g}"]
        for system in SYSTEMS:
            found = [run["accuracy"] for run in result["runs"] if (run["epsilon"], run["system"]) == (epsilon, system)]
            row.append(f"{fmean(found):.1f} % ({min(found):.1f} to {max(found):.1f})")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
