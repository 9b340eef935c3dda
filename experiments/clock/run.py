"""Time one round of each system in each setting."""

from __future__ import annotations

import time
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from experiments.clock.config import Config, Setting
from experiments.common.experiment import Findings
from experiments.common.rounds import cohort, exactly_dropped, majority, parameters
from experiments.common.training import sliced_short
from experiments.common.work import Work
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import Task
from sparsesecagg.protocol import RoundOptions, Stage
from sparsesecagg.simulate import InProcessRun

LITERAL = "pairwise, d words per pair"
SYSTEMS: dict[str, tuple[str, int | None]] = {
    "SecAgg": ("full", 32),
    "pairwise": ("pairwise", 32),
    "sliced": ("sliced", 32),
    "sliced, short words": ("sliced", None),
}
"""Pattern and bits of a word; None: as few as ours has in the figures that train."""
STEADY = (Stage.SHARE_KEYS.name, Stage.UPLOAD.name, Stage.UNMASK.name)
"""The stages of a round; keys are advertised once per run."""
PAIRS = 3
"""Pairs whose b_ij are drawn word by word."""


def run(config: Config, seed: int, work: Work) -> Findings:
    """Measure all settings."""
    numbers: list[dict[str, Any]] = []
    timings: list[dict[str, Any]] = []
    total = len(config.settings) * (1 + len(SYSTEMS))
    for place, setting in enumerate(config.settings):
        done = place * (1 + len(SYSTEMS))
        name = f"{setting.model}-{setting.clients}"
        work.report(f"{name}: training", done, total)
        trained = work.cell(f"{name}-training", partial(_training, config, setting, seed, work))
        for number, system in enumerate(SYSTEMS, start=1):
            work.report(f"{name}: {system}", done + number, total)
            key = f"{name}-{system.replace(', ', '-').replace(' ', '-')}"
            found = work.cell(key, partial(_rounds, config, setting, system, trained["numbers"]["dim"], seed))
            entries = [(system, found)] + ([(LITERAL, literal(found))] if system == "pairwise" else [])
            for label, entry in entries:
                about = {"figures": setting.figures, "model": setting.model, "clients": setting.clients}
                numbers.append({**about, "system": label, **trained["numbers"], **entry["numbers"]})
                timings.append({**about, "system": label, **trained["timings"], **entry["timings"]})
    work.report("done", total, total)
    return Findings({"rounds": numbers}, {"rounds": timings})


def _training(config: Config, setting: Setting, seed: int, work: Work) -> dict[str, Any]:
    """Time the local training of some users, one after the other, each on one thread; of repeats the least counts."""
    training = TrainingConfig.create(
        setting.dataset, model=setting.model, clients=setting.clients, aggregator="plain", dropout=0.0, seed=seed
    )
    task = Task.prepare(training, data_dir=work.data_dir)
    with task.pool(training, workers=1) as pool:
        repeats = [
            [one.seconds for one in pool.train(task.initial, range(config.users), 1)] for _ in range(config.repeats)
        ]
        seconds = [min(of_user) for of_user in zip(*repeats, strict=True)]
    samples = len(task.partition.indices[0])
    return {
        "numbers": {"dim": task.model.dim, "samples_per_user": samples, "users_timed": config.users},
        "timings": {"training": fmean(seconds)},
    }


def _rounds(config: Config, setting: Setting, system: str, dim: int, seed: int) -> dict[str, Any]:
    """Run rounds with dropouts at UPLOAD, where they cost the server most."""
    pattern, asked = SYSTEMS[system]
    bits = asked or sliced_short(setting.clients).modulus_bits
    options = RoundOptions(
        pattern=pattern,
        alpha=1.0 if system == "SecAgg" else config.alpha,
        threshold=majority(setting.clients),
        dropout=config.dropout,
        modulus_bits=bits,
    )
    params = parameters(setting.clients, dim, options, seed)
    random = np.random.default_rng([seed, setting.clients])
    update = random.normal(0, 0.01, dim)
    clients, servers = [], []
    for number in range(config.repeats):
        whole = InProcessRun(params, cohort(seed, number))
        outcome = whole.round(lambda _: update, drops=exactly_dropped(setting.clients, config.dropout, random))
        clients.append(sum(outcome.client_seconds.get(stage, 0.0) for stage in STEADY))
        servers.append(sum(outcome.server_seconds.get(stage, 0.0) for stage in STEADY))
    result = outcome.result
    sent, received = (result.mean_bytes(which) for which in (result.sent_bytes, result.received_bytes))
    up, down = (sum(size for stage, size in one.items() if stage in STEADY) for one in (sent, received))
    share = params.shape.fraction()
    bitmap = 0.0 if params.shape.protects else 1 / 8
    left = len(result.survivors)
    numbers = {
        "survivors": left,
        "sent_bytes": up,
        "received_bytes": down,
        "model_bytes": 4 * dim,
        "paper_upload_bytes": (bits / 8 * share + bitmap) * dim,
        "exchanges": 2,
        "pairs_of_a_user": setting.clients - 1,
        "pairs_of_the_server": left * (setting.clients - left),
    }
    timings = {"client": min(clients), "server": min(servers), "words_of_a_pair": seconds_of_words(dim)}
    return {"numbers": numbers, "timings": timings}


def seconds_of_words(dim: int) -> float:
    """Return the least time to draw one pair's b_ij as the paper does: a word for every coordinate, and a threshold."""
    seconds = []
    for number in range(PAIRS):
        began = time.perf_counter()
        words = KeyStream(PatternSeed(number.to_bytes(32, "little"))).read(4 * dim).view("<u4")
        np.flatnonzero(words < np.uint32(1 << 22))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def literal(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same round with b_ij drawn word by word, for every pair of a user and for those that the server opens.

    A lower bound: the gaps that it replaces stay in the sum, and take little.
    """
    numbers, timings = found["numbers"], found["timings"]
    word = timings["words_of_a_pair"]
    more = {
        "client": timings["client"] + word * numbers["pairs_of_a_user"],
        "server": timings["server"] + word * numbers["pairs_of_the_server"],
    }
    return {"numbers": numbers, "timings": timings | more}
