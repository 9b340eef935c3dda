"""Run real rounds and weigh the UPLOAD messages that went over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.common.experiment import Findings
from experiments.common.rounds import cohort, exactly_dropped, majority, parameters
from experiments.common.work import Work
from experiments.table1.config import Config
from sparsesecagg.lab.audit.theory import selection_probability
from sparsesecagg.lab.learning.data import Dataset
from sparsesecagg.lab.learning.models import make_model
from sparsesecagg.protocol import RoundOptions, Stage
from sparsesecagg.protocol.messages import Upload, decode_client_message
from sparsesecagg.simulate import Transcript, run_round


@dataclass(frozen=True)
class System:
    """One column of the table."""

    key: str
    label: str
    pattern: str
    alpha: float
    modulus_bits: int


def systems(config: Config) -> list[System]:
    """Return our systems; `pairwise` gives two columns, one per way of coding the locations."""
    return [
        System("secagg", "SecAgg", "full", 1.0, 32),
        System("pairwise", "pairwise, our coding", "pairwise", config.alpha, 32),
        *(
            System(f"sliced-{bits}", f"sliced, α={config.alpha:g}, {bits} bits", "sliced", config.alpha, bits)
            for bits in config.sliced_bits
        ),
    ]


def run(config: Config, seed: int, work: Work) -> Findings:
    """Weigh every system at every N."""
    dim = config.dim or cifar_parameters()
    todo = [(clients, system) for clients in config.cohorts for system in systems(config)]
    rows: list[dict[str, Any]] = []
    for number, (clients, system) in enumerate(todo):
        work.report(f"N={clients}, {system.label}", number, len(todo))
        rows += work.cell(f"{clients}-{system.key}", partial(weigh, config, clients, system, dim, seed))
    work.report("done", len(todo), len(todo))
    numbers = {"dim": dim, "rows": rows, "formula": [formula(config, clients, dim) for clients in config.cohorts]}
    return Findings(numbers, {})


def cifar_parameters() -> int:
    """Count the parameters of the network that is trained on CIFAR-10."""
    return make_model("cifar-cnn", Dataset.from_arrays(np.zeros((20, 3, 32, 32)), np.arange(20) % 10)).dim


def weigh(config: Config, clients: int, system: System, dim: int, seed: int) -> list[dict[str, Any]]:
    """Run the rounds of one system and return its row, or two of them for `pairwise`."""
    noise = np.random.default_rng(seed).normal(0, 0.1, dim + clients)
    sizes: list[int] = []
    with_bitmap: list[int] = []
    all_stages: list[float] = []
    exact = True
    for number in range(config.rounds):
        options = RoundOptions(
            pattern=system.pattern,
            alpha=system.alpha,
            threshold=majority(clients),
            dropout=config.dropout,
            modulus_bits=system.modulus_bits,
        )
        params = parameters(clients, dim, options, seed, number)
        transcript = Transcript()
        outcome = run_round(
            params,
            lambda user: noise[user : user + dim],
            cohort(seed, number),
            drops=exactly_dropped(clients, config.dropout, np.random.default_rng([seed, number])),
            observer=transcript,
        )
        exact &= outcome.exact
        all_stages.append(outcome.result.mean_bytes(outcome.result.sent_bytes)["total"])
        for stage, _, data in transcript.sent:
            if stage is Stage.UPLOAD:
                sizes.append(len(data))
                if system.pattern == "pairwise":
                    with_bitmap.append(_in_the_papers_format(data, dim))
    common = {"clients": clients, "modulus_bits": system.modulus_bits, "alpha": params.shape.fraction()}
    found = [_row(system.key, system.label, sizes, float(np.mean(all_stages)), exact, common)]
    if system.pattern == "pairwise":
        longer = float(np.mean(with_bitmap)) - float(np.mean(sizes))
        # The same real values, as the paper counts them.
        found.append(
            _row(
                "bitmap",
                "pairwise, the paper's format (bitmap, 32 bits)",
                with_bitmap,
                float(np.mean(all_stages)) + longer,
                exact,
                common,
            )
        )
    return found


def _in_the_papers_format(data: bytes, dim: int) -> int:
    """Return the bytes of a message's values and of one bit per coordinate; no head, no tags."""
    message = decode_client_message(data)
    assert isinstance(message, Upload)
    return len(message.words) + -(-dim // 8)


def _row(
    key: str, label: str, sizes: Sequence[int], all_stages: float, exact: bool, common: dict[str, Any]
) -> dict[str, Any]:
    upload = {"max": max(sizes), "mean": float(np.mean(sizes)), "min": min(sizes), "messages": len(sizes)}
    return {"system": key, "label": label, **common, "upload_bytes": upload, "sent_bytes": all_stages, "exact": exact}


def formula(config: Config, clients: int, dim: int) -> dict[str, float]:
    """Return what the paper's own formula gives on average: d·(32p + 1) bits, without any header.

    The printed column grows with N, while p falls. It is what α/N in place of α/(N−1) gives: that is computed too.
    """
    probabilities = {
        "bitmap_mean": selection_probability(config.alpha, clients),
        "bitmap_mean_if_alpha_over_n": 1 - (1 - config.alpha / clients) ** (clients - 1),
    }
    return {"clients": clients, **{name: dim * (32 * p + 1) / 8 for name, p in probabilities.items()}}
