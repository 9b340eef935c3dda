"""Train MNIST with malicious users in 9 groups of 300: the mean beside centred clipping; write results/robust.json.

    .venv/bin/python -m experiments.robust.run

Softmax regression, 10 samples per user, one gradient per round and user, α = 0.2, words of 16 bits. Three malicious
users sit in three different groups, which is the worst that three can do, and know all honest updates of the round
(`sparsesecagg.lab.learning.malicious`). Rounding, clips and the rules over groups are those of the package. Masks are
left out: they change no sum.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from experiments.common.results import commit
from experiments.private.run import SAMPLES, Data, Network
from sparsesecagg import Parameters, RoundOptions, __version__
from sparsesecagg.lab.learning.data import load_dataset
from sparsesecagg.lab.learning.malicious import BEYOND, Malicious
from sparsesecagg.lab.learning.models import Layer
from sparsesecagg.lab.learning.secure import AdaptiveClip
from sparsesecagg.patterns.base import GroupSum
from sparsesecagg.protocol.combine import CentredClipping, Combine, Sum
from sparsesecagg.rounding import Quantizer

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT = ROOT / "results" / "robust.json", ROOT / "docs" / "malicious-users.md"
BEGIN, END = "<!-- table: results/robust.json -->\n", "<!-- end: robust -->\n"
USERS, GROUPS, BAD, ROUNDS, RATE, ALPHA, LAST = 300, 9, 3, 40, 0.1, 0.2, 5
SEEDS = (0, 1, 2)
RULES = ("mean", "centred clipping")
ATTACKS = ("none", "range", "reverse", "drift", "sign-flip", "ipm", "alie")


def accuracy(rule: str, attack: str, seed: int) -> float:
    """Train one run; return the accuracy in percent, the mean of the last rounds."""
    network, data = Network(0), Data(seed, USERS)
    options = RoundOptions(alpha=ALPHA, group_size=-(-USERS // GROUPS), same_slices=True, modulus_bits=16)
    params = Parameters.create(USERS, network.dim, options, session=bytes([seed] * 32))
    assert params.groups == GROUPS
    epoch_seed = params.epoch_seed(1, None)
    groups = [np.array(group.users) for group in params.draw(epoch_seed).groups]
    bad = Malicious(frozenset(int(group[0]) for group in groups[:BAD]), attack)
    combine: Combine = Sum if rule == "mean" else CentredClipping()
    model, rng = network.initial(seed), np.random.default_rng([seed, 8])
    layers = [Layer("1", 0, network.dim)]
    clip = AdaptiveClip(layers, 0.1, params.quantizer.limit)
    one, any_value = params.quantizer, Quantizer(params.word.largest, params.quantizer.scale)
    found = []
    for number in range(1, ROUNDS + 1):
        each = clip.per_coordinate()
        updates = dict(enumerate(network.updates(model, data.x, data.y)))
        if attack != "none":
            updates = bad.replace(updates, params.contributors, each)
        combiner = combine(params)
        for group, users in enumerate(groups):
            where = np.concatenate(
                [
                    np.arange(index.start, index.stop) if isinstance(index, slice) else np.asarray(index)
                    for index in params.shape.masked_sum(group, number, epoch_seed, bytes(32)).indices()
                ]
            )
            total = np.zeros(len(where), np.int64)
            for user in users.tolist():
                beyond = user in bad.users and attack in BEYOND
                quantizer = any_value if beyond else one
                total += quantizer.quantize(updates[user][where] / each[where], 1.0, rng)[0]
            combiner.add(GroupSum(group, tuple(users.tolist()), [where], total.astype(np.int32), None, None, 0))
        combined = combiner.total()
        mean, updated = combined.mean_of(params) * each, combined.contributors > 0
        clip.follow(mean, updated)
        model = model + np.float32(RATE / params.shape.coverage) * mean
        if number > ROUNDS - LAST:
            with np.errstate(all="ignore"):
                found.append(100 * network.accuracy(model, data.test_x, data.test_y))
    return fmean(found)


def main() -> None:
    """Measure what is missing, save after each run, publish."""
    configuration = {
        "users": USERS, "groups": GROUPS, "malicious": BAD, "rounds": ROUNDS, "rate": RATE, "alpha": ALPHA,
        "samples_per_user": SAMPLES,
    }  # fmt: skip
    result: dict[str, Any] = {
        "command": "python -m experiments.robust.run",
        "version": __version__,
        "commit": commit(),
        "seeds": list(SEEDS),
        "data": {"name": "mnist", "sha256": load_dataset("mnist").digest},
        "configuration": configuration,
        "complete": False,
        "runs": [],
    }
    if RESULTS.exists():
        before = json.loads(RESULTS.read_text(encoding="utf-8"))
        if all(before[name] == result[name] for name in ("configuration", "commit", "data")):
            result = before
    done = {(run["rule"], run["attack"], run["seed"]) for run in result["runs"]}
    wanted = [(rule, attack, seed) for attack in ATTACKS for rule in RULES for seed in SEEDS]
    for rule, attack, seed in wanted:
        if (rule, attack, seed) not in done:
            found = round(accuracy(rule, attack, seed), 2)
            result["runs"].append({"rule": rule, "attack": attack, "seed": seed, "accuracy": found})
            result["complete"] = len(result["runs"]) == len(wanted)
            RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(rule, attack, seed, found, flush=True)
    publish(result)


def mean_of(result: dict[str, Any], rule: str, attack: str) -> float | None:
    """Return the mean accuracy over the seeds; None if there is none yet."""
    found = [run["accuracy"] for run in result["runs"] if (run["rule"], run["attack"]) == (rule, attack)]
    return fmean(found) if found else None


def table(result: dict[str, Any]) -> str:
    """Return the table of the page."""
    lines = ["| attack | mean of all groups | centred clipping |", "| --- | ---: | ---: |"]
    for attack in ATTACKS:
        cells = [mean_of(result, rule, attack) for rule in RULES]
        lines.append(f"| {attack} | {' | '.join('–' if each is None else f'{each:.1f} %' for each in cells)} |")
    return "\n".join(lines) + "\n"


def publish(result: dict[str, Any]) -> None:
    """Put the table into the page."""
    head, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table(result) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
