"""Time one round of each system in each setting."""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from experiments.clock.config import Config, Setting
from experiments.common.experiment import Findings
from experiments.common.rounds import ANY_RUN, entropy_of_round, exactly_dropped
from experiments.common.work import Work
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import Task
from sparsesecagg.lab.audit.theory import selection_probability
from sparsesecagg.protocol import Parameters, Stage

SYSTEMS = ("SecAgg", "pairwise", "committee")
STEADY = (Stage.SHARE_KEYS.name, Stage.UPLOAD.name, Stage.UNMASK.name)
"""The stages of a round; keys are advertised once per run."""


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
            found = work.cell(
                f"{name}-{system}", partial(_round, config, setting, system, trained["numbers"]["dim"], seed)
            )
            about = {"figures": setting.figures, "model": setting.model, "clients": setting.clients, "system": system}
            numbers.append(about | trained["numbers"] | found["numbers"])
            timings.append(about | trained["timings"] | found["timings"])
    work.report("done", total, total)
    return Findings({"rounds": numbers}, {"rounds": timings})


def _training(config: Config, setting: Setting, seed: int, work: Work) -> dict[str, Any]:
    """Time the local training of some users, one after the other, each on one thread."""
    training = TrainingConfig.create(
        setting.dataset, model=setting.model, clients=setting.clients, aggregator="plain", dropout=0.0, seed=seed
    )
    task = Task.prepare(training, data_dir=work.data_dir)
    with task.pool(training, workers=1) as pool:
        seconds = [one.seconds for one in pool.train(task.initial, range(config.users), 1)]
    samples = len(task.partition.indices[0])
    return {
        "numbers": {"dim": task.model.dim, "samples_per_user": samples, "users_timed": config.users},
        "timings": {"training": fmean(seconds)},
    }


def parameters(config: Config, setting: Setting, system: str, dim: int) -> Parameters:
    """Return the parameters of a system's rounds."""
    systems: dict[str, dict[str, Any]] = {
        "SecAgg": {"pattern": "full"},
        "pairwise": {"pattern": "pairwise", "alpha": config.alpha},
        "committee": {
            "pattern": "committee",
            "alpha": config.committee / setting.clients,
            "committee_size": min(config.committee, setting.clients),
            "modulus_bits": 8,
        },
    }
    return Parameters.create(clients=setting.clients, dim=dim, dropout=config.dropout, **systems[system])


def _round(config: Config, setting: Setting, system: str, dim: int, seed: int) -> dict[str, Any]:
    """Run one round with dropouts at UPLOAD, where they cost the server most."""
    params = parameters(config, setting, system, dim)
    random = np.random.default_rng([seed, setting.clients])
    update = random.normal(0, 0.01, dim)
    whole = InProcessRun(params, policy=ANY_RUN, entropy_of=entropy_of_round(seed, 0))
    outcome = whole.round(lambda _: update, drops=exactly_dropped(setting.clients, config.dropout, random))
    result = outcome.result
    sent, received = (result.mean_bytes(which) for which in (result.sent_bytes, result.received_bytes))
    up, down = (sum(size for stage, size in one.items() if stage in STEADY) for one in (sent, received))
    share = selection_probability(config.alpha, setting.clients) if system == "pairwise" else 1.0
    return {
        "numbers": {
            "survivors": len(result.survivors),
            "sent_bytes": up,
            "received_bytes": down,
            "model_bytes": 4 * dim,
            "paper_upload_bytes": (4 * share + (1 / 8 if system == "pairwise" else 0)) * dim
            if system != "committee"
            else None,
            "exchanges": 2,
        },
        "timings": {
            "client": sum(outcome.client_seconds.get(stage, 0.0) for stage in STEADY),
            "server": sum(outcome.server_seconds.get(stage, 0.0) for stage in STEADY),
        },
    }
