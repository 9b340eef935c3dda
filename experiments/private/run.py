"""Train MNIST with noise, 1,000 users: in groups, with a trusted server, and with local noise; results/private.json.

    .venv/bin/python -m experiments.private.run

Every user sends the gradient of its 10 samples in each of 60 rounds. What is compared has the same ε, δ, rounds, clip,
dropouts and learning rate (the best of three for the trusted server at ε = 8, with another seed):

    central   a trusted server adds Gaussian noise to the sum of whole updates
    planned   α = 0.2 and the groups of `sparsesecagg plan --epsilon`, against a malicious server, θ = γ = 0.1
    groups    the same in four groups of 250, whose members hold fewer shares
    local     every user adds Gaussian noise that protects it alone

Slices, clipping, rounding and noise are those of the protocol (`Mechanism`, `SkellamTable`). Two things are left out
because they change no sum: masks, and that noise is drawn by each user (Skellam noise of n users is Skellam noise of n
times the variance, so a group's is drawn at once). Runs that are in the file already are not made again.
"""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.results import commit
from sparsesecagg import Parameters, __version__
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.lab.learning.data import Dataset, load_dataset
from sparsesecagg.planning.noise import DifferentialPrivacy
from sparsesecagg.planning.planner import Goal, plan_round
from sparsesecagg.privacy.accountant import noise_for
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.privacy.mechanism import Mechanism, NoiseSeed, SkellamTable

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "private.json", ROOT / "docs" / "differential-privacy.md"
BEGIN, END = "<!-- table: results/private.json -->\n", "<!-- end: private -->\n"
USERS, SAMPLES, ROUNDS, TESTED, LAST = 1000, 10, 60, 2000, 5
DELTA, CLIP, ALPHA, DROPOUT, COLLUDING, ANONYMITY = 1e-5, 0.5, 0.2, 0.1, 0.1, 5
HIDDEN = {"softmax": 0, "MLP": 16}
EPSILONS = (8.0, 2.0)
SEEDS = (0, 1, 2)
SYSTEMS = ("central", "planned", "groups", "local")
RATES = (0.5, 1.0, 2.0)
TUNING_SEED = 100
GROUP_SIZES = {"planned": None, "groups": 250}
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Network:
    """Softmax regression, or one hidden layer of ReLU before it; gradients of all users at once."""

    hidden: int

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(fan-in, fan-out) of each layer; a bias counts as one more input."""
        return [(785, 10)] if not self.hidden else [(785, self.hidden), (self.hidden + 1, 10)]

    @property
    def dim(self) -> int:
        """Parameters."""
        return sum(rows * columns for rows, columns in self.sizes)

    def layers(self, model: Matrix) -> list[Matrix]:
        """Return the weights as matrices, the last row for the bias."""
        found, at = [], 0
        for rows, columns in self.sizes:
            found.append(model[at : at + rows * columns].reshape(rows, columns))
            at += rows * columns
        return found

    def initial(self, seed: int) -> Matrix:
        """Return zeros for softmax, else weights uniform in ±√(6 / fan-in)."""
        rng = np.random.default_rng([seed, 1])
        model = np.zeros(self.dim, np.float32)
        if self.hidden:
            for layer in self.layers(model):
                bound = sqrt(6 / len(layer))
                layer[:-1] = rng.uniform(-bound, bound, layer[:-1].shape)
        return model

    def scores(self, model: Matrix, x: Matrix) -> list[Matrix]:
        """Return the input of each layer with a one behind it, then the scores."""
        values = [x]
        for number, layer in enumerate(self.layers(model), start=1):
            out = values[-1] @ layer
            values.append(out if number == len(self.sizes) else _with_one(np.maximum(out, 0)))
        return values

    def updates(self, model: Matrix, x: Matrix, y: NDArray[np.int64]) -> Matrix:
        """Return each user's negative gradient, shape (users, dim); `x` has shape (users · samples, 785)."""
        values = self.scores(model, x)
        back = np.exp(values[-1] - values[-1].max(axis=1, keepdims=True))
        back /= back.sum(axis=1, keepdims=True)
        back[np.arange(len(y)), y] -= 1
        back *= -1 / SAMPLES
        found: list[Matrix] = []
        for number in reversed(range(len(self.sizes))):
            by_user = (each.reshape(-1, SAMPLES, each.shape[1]) for each in (values[number], back))
            found.insert(0, np.matmul(next(by_user).transpose(0, 2, 1), next(by_user)).reshape(len(x) // SAMPLES, -1))
            if number:
                back = (back @ self.layers(model)[number].T)[:, :-1] * (values[number][:, :-1] > 0)
        return np.concatenate(found, axis=1)

    def accuracy(self, model: Matrix, x: Matrix, y: NDArray[np.int64]) -> float:
        """Return the part of the samples that is recognised."""
        return float((self.scores(model, x)[-1].argmax(axis=1) == y).mean())


def _with_one(x: Matrix) -> Matrix:
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


@cache
def _mnist() -> Dataset:
    return load_dataset("mnist")


class Data:
    """Training samples by user, and those of the test."""

    def __init__(self, seed: int, users: int = USERS) -> None:
        data = _mnist()
        order = np.random.default_rng([seed, 2]).permutation(len(data.train_x))[: users * SAMPLES]
        self.x, self.y = _with_one(data.train_x.reshape(len(data.train_x), -1)[order]), data.train_y[order]
        self.test_x = _with_one(data.test_x.reshape(len(data.test_x), -1)[:TESTED])
        self.test_y = data.test_y[:TESTED]


def quantised(mechanism: Mechanism, slices: Matrix, rng: np.random.Generator, peak: float) -> NDArray[np.int64]:
    """Clip and round the slices of many users; as `Mechanism.steps` does for one, which a test compares."""
    norms = np.linalg.norm(slices.astype(np.float64), axis=1, keepdims=True)
    scaled = slices * (mechanism.scale * np.minimum(1.0, mechanism.slice_clip / np.maximum(norms, 1e-30)) * (1 - 1e-12))
    scaled = np.clip(scaled, -peak, peak)
    rounded: NDArray[np.int64] = np.floor(scaled + rng.random(scaled.shape)).astype(np.int64)
    for _ in range(3):
        again = np.flatnonzero(np.square(rounded).sum(axis=1) > mechanism.squared_norm)
        rounded[again] = np.floor(scaled[again] + rng.random((len(again), scaled.shape[1]))).astype(np.int64)
    again = np.flatnonzero(np.square(rounded).sum(axis=1) > mechanism.squared_norm)
    rounded[again] = np.trunc(scaled[again]).astype(np.int64)
    return rounded


class Groups:
    """Means as the protocol opens them."""

    def __init__(self, dim: int, epsilon: float, group_size: int | None, seed: int) -> None:
        goal = Goal(
            USERS, dim, DROPOUT, COLLUDING, ANONYMITY, alpha=ALPHA, group_size=group_size,
            noise=DifferentialPrivacy(epsilon, ROUNDS, DELTA, CLIP),
        )  # fmt: skip
        self.plan = plan_round(goal)
        self.params = Parameters.create(USERS, dim, self.plan.options, session=bytes([seed] * 32))
        self.seed = self.params.epoch_seed(1, None)
        self.groups = [np.array(group.users) for group in self.params.draw(self.seed).groups]
        self.stream = KeyStream(NoiseSeed(bytes([seed + 1] * 32)))
        self.rng = np.random.default_rng([seed, 3])
        mechanism, honest = self.params.mechanism, self.plan.anonymity
        assert mechanism is not None and honest
        self.peak = mechanism.peak(self.params.word.largest, self.params.contributors, honest)

    def describe(self) -> dict[str, Any]:
        """Return what the plan came to."""
        plan, noise = self.plan, self.plan.noise
        assert noise is not None and plan.options is not None
        return {
            "groups": plan.groups,
            "threshold": plan.threshold,
            "honest": noise.honest,
            "noise_multiplier": noise.multiplier,
            "modulus_bits": plan.options.modulus_bits,
            "bits_per_parameter": 8 * self.params.shape.upload_size() / self.params.dim,
        }

    def step(self, number: int, updates: Matrix, present: NDArray[np.bool_]) -> Matrix:
        """Return 1/κ times the mean of the survivors, 0 where nothing was opened."""
        mechanism, honest = self.params.mechanism, self.plan.anonymity
        assert mechanism is not None and honest
        total, count = np.zeros(self.params.dim), np.zeros(self.params.dim)
        for group, users in enumerate(self.groups):
            survivors = users[present[users]]
            if len(survivors) < self.params.threshold:
                continue
            where = np.concatenate(
                [_places(each) for each in self.params.shape.masked_sum(group, number, self.seed, bytes(32)).indices()]
            )
            integers = quantised(mechanism, updates[np.ix_(survivors, where)], self.rng, self.peak).sum(axis=0)
            table = SkellamTable.of(len(survivors) * mechanism.variance / honest)
            total[where] += integers + table.draw(self.stream, len(where))
            count[where] += len(survivors)
        gain = 1 / self.params.shape.coverage
        return (gain * total / mechanism.scale / np.maximum(count, 1)).astype(np.float32)


def _places(index: Any) -> NDArray[np.int64]:
    return np.arange(index.start, index.stop) if isinstance(index, slice) else np.asarray(index)


def gaussian_step(updates: Matrix, present: NDArray[np.bool_], noise: float, rng: np.random.Generator) -> Matrix:
    """Return the mean of whole, clipped updates with Gaussian noise of this deviation."""
    kept = updates[present]
    factor = np.minimum(1.0, CLIP / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-30))
    noisy: Matrix = ((kept * factor).mean(axis=0) + rng.normal(0, noise, kept.shape[1])).astype(np.float32)
    return noisy


def accuracy(model_name: str, epsilon: float, system: str, seed: int, rate: float) -> tuple[float, dict[str, Any]]:
    """Train one run; return the accuracy in percent, the mean of the last rounds, and how it was aggregated."""
    network, data = Network(HIDDEN[model_name]), Data(seed)
    model = network.initial(seed)
    rng = np.random.default_rng([seed, 4])
    groups = Groups(network.dim, epsilon, GROUP_SIZES[system], seed) if system in GROUP_SIZES else None
    # Skellam noise this wide is Gaussian: the surcharge of its bound is below 1e-6.
    multiplier = noise_for(epsilon, DELTA, ROUNDS, 1e4, 1e4)
    found = []
    for number in range(1, ROUNDS + 1):
        present = np.random.default_rng([seed, 5, number]).random(USERS) < availability(DROPOUT)
        updates = network.updates(model, data.x, data.y)
        if groups is not None:
            step = groups.step(number, updates, present)
        else:
            n = present.sum()
            deviation = multiplier * CLIP / (n if system == "central" else sqrt(n))
            step = gaussian_step(updates, present, deviation, rng)
        model = model + np.float32(rate) * step
        if number > ROUNDS - LAST:
            found.append(100 * network.accuracy(model, data.test_x, data.test_y))
    return fmean(found), groups.describe() if groups else {"noise_multiplier": multiplier}


def main() -> None:
    """Measure what is missing, save after each run, publish. Names of models leave the others to another process."""
    models = sys.argv[1:] or list(HIDDEN)
    result = _read()
    for model in models:
        if model not in result["rates"]:
            tried = {rate: accuracy(model, EPSILONS[0], "central", TUNING_SEED, rate)[0] for rate in RATES}
            rates = {str(rate): round(found, 2) for rate, found in tried.items()}
            result = _read()
            result["rates"][model] = {"tried": rates, "rate": max(tried, key=lambda rate: tried[rate])}
            _write(result)
    for seed, system, model, epsilon in itertools.product(SEEDS, SYSTEMS, models, EPSILONS):
        about = {"model": model, "epsilon": epsilon, "system": system, "seed": seed}
        if _key(about) in map(_key, _read()["runs"]):
            continue
        found, how = accuracy(model, epsilon, system, seed, _read()["rates"][model]["rate"])
        result = _read()
        result["runs"].append({**about, "accuracy": round(found, 2), **how})
        _write(result)
        print(about, round(found, 2), flush=True)
    publish(_read())


def _key(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["model"], run["epsilon"], run["system"], run["seed"]


def _read() -> dict[str, Any]:
    configuration = {
        "users": USERS, "samples_per_user": SAMPLES, "rounds": ROUNDS, "delta": DELTA, "clip": CLIP, "alpha": ALPHA,
        "dropout": DROPOUT, "colluding": COLLUDING, "tested": TESTED, "hidden": HIDDEN["MLP"],
    }  # fmt: skip
    about = {
        "command": "python -m experiments.private.run",
        "version": __version__,
        "commit": commit(),
        "seeds": list(SEEDS),
        "data": {"name": "mnist", "sha256": load_dataset("mnist").digest},
        "configuration": configuration,
        "complete": False,
        "rates": {},
        "runs": [],
    }
    if RESULTS.exists():
        before = json.loads(RESULTS.read_text(encoding="utf-8"))
        if (before["configuration"], before["commit"], before["data"]) == (
            configuration,
            about["commit"],
            about["data"],
        ):
            return dict(before)
    return about


def _write(result: dict[str, Any]) -> None:
    result["complete"] = len(result["runs"]) == len(HIDDEN) * len(EPSILONS) * len(SYSTEMS) * len(SEEDS)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def cell(result: dict[str, Any], model: str, epsilon: float, system: str) -> dict[str, Any] | None:
    """Return mean, range and the way it was aggregated, of the seeds of one setting; None if there is none yet.

    `beside` is the mean difference to the trusted server with the same seeds.
    """
    runs = [run for run in result["runs"] if _key(run)[:3] == (model, epsilon, system)]
    if not runs:
        return None
    found = [run["accuracy"] for run in runs]
    central = {run["seed"]: run["accuracy"] for run in result["runs"] if _key(run)[:3] == (model, epsilon, "central")}
    pairs = [run["accuracy"] - central[run["seed"]] for run in runs if run["seed"] in central]
    figures = {"mean": fmean(found), "least": min(found), "most": max(found), "seeds": len(runs)}
    return {**runs[0], **figures, "beside": fmean(pairs) if pairs else None}


def table(result: dict[str, Any]) -> str:
    """Return the table of the page."""
    lines = [
        "| model, parameters | ε | trusted server | planned: one group | four groups of 250 | local noise | upload |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for model, hidden in HIDDEN.items():
        for epsilon in EPSILONS:
            cells = {system: cell(result, model, epsilon, system) for system in SYSTEMS}
            row = [f"{model}, {Network(hidden).dim:,}", f"{epsilon:g}"]
            for system in SYSTEMS:
                one = cells[system]
                if one is None or one["beside"] is None:
                    row.append("–")
                elif system == "central":
                    row.append(f"{one['mean']:.1f} % ({one['least']:.1f} to {one['most']:.1f})")
                else:
                    row.append(f"{one['beside']:+.1f} ({one['seeds']})")
            planned = cells["planned"]
            row.append("–" if planned is None else f"{planned['bits_per_parameter']:.2f} bit per parameter")
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def publish(result: dict[str, Any]) -> None:
    """Put the table into the page."""
    text = DOCUMENT.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table(result) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
