"""What a round came to: for Flower's `Result`, for the log, and for a run folder that a report can be made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from sparsesecagg.flower.settings import STAGES, Settings
from sparsesecagg.files import write_atomically
from sparsesecagg.protocol import Parameters, Result, Stage

PREFIX = "secagg-"
_COARSE = 0.02
"""Rounding noise above this fraction of the clip is worth a warning; updates are about that size."""


@dataclass
class StageFigures:
    """One stage of one round, as the server saw it."""

    seconds: float = 0.0
    """From the first message out to the last reply in; 0 for what rode along in another stage's exchange."""
    server_seconds: float = 0.0
    codec: list[int] = field(default_factory=list)
    """By client: bytes of its message before Flower frames them."""
    wire: list[int] = field(default_factory=list)
    """By client: bytes of all Flower objects of its message."""
    received: list[int] = field(default_factory=list)
    """By client: bytes of the server's message, without the model."""
    client_seconds: list[float] = field(default_factory=list)


@dataclass
class RoundRecord:
    """Everything that is kept of a round."""

    number: int
    """Flower's number of the round."""
    protocol_round: int = 0
    """The protocol's; numbers of attempts that failed are not used again."""
    cohort: int = 0
    """Users of the run: the nodes that were chosen when it began, or those of the roster."""
    alpha: float = 1.0
    """The fraction of the model that each node sends."""
    stages: dict[str, StageFigures] = field(
        default_factory=lambda: {name: StageFigures() for name in ("SHARE_KEYS", "UPLOAD", "UNMASK")}
    )
    """Those of every round, and others that it had."""
    exchanges: int = 0
    model_bytes: list[int] = field(default_factory=list)
    """By node: bytes of the model, or of the steps that lead to it, in UPLOAD's message."""
    dropped: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    """Replies that fitted no request, or that the protocol rejected."""
    survivors: int = 0
    committees: int = 0
    committees_opened: int = 0
    coordinates_updated: float = 0.0
    contributors_min: int = 0
    contributors_mean: float = 0.0
    contributors_histogram: dict[str, float] = field(default_factory=dict)
    clipped: int | None = None
    clip: float = 0.0
    failure: str | None = None
    failed_at: str | None = None
    accuracy: float | None = None
    loss: float | None = None

    def at(self, stage: Stage) -> StageFigures:
        """Return the figures of a stage."""
        if stage.name not in self.stages:
            known = {**self.stages, stage.name: StageFigures()}
            self.stages = {each.name: known[each.name] for each in STAGES if each.name in known}
        return self.stages[stage.name]

    def complete(self, result: Result) -> None:
        """Take over what the protocol knows at the end."""
        self.survivors = len(result.survivors)
        self.committees, self.committees_opened = result.params.committees, result.committees_opened
        self.coordinates_updated = result.coordinates_updated
        slices, counts = result.params.slices, result.contributors_per_slice
        # Coordinates per slice; the last one is padded.
        sizes = np.clip(slices.dim - np.arange(slices.count) * slices.length, 0, slices.length)
        shares = np.bincount(counts, weights=sizes) / slices.dim
        present = np.flatnonzero(shares)
        self.contributors_min = int(present[present > 0][0])  # Where nothing was opened, nothing is shown.
        self.contributors_mean = float(present @ shares[present])
        self.contributors_histogram = {str(count): float(shares[count]) for count in present.tolist()}
        self.clipped = result.clipped

    def mean(self, what: str) -> dict[str, float]:
        """Return the mean per client of one list of figures, by stage, with the total."""
        means = {name: _mean(getattr(figures, what)) for name, figures in self.stages.items()}
        return {**means, "total": sum(means.values())}

    def total(self, what: str) -> dict[str, float]:
        """Return one number by stage, with the total."""
        values = {name: float(getattr(figures, what)) for name, figures in self.stages.items()}
        return {**values, "total": sum(values.values())}

    def metrics(self) -> MetricRecord:
        """Return the six figures that Flower's `Result` shows; all others are in the run folder and `history`."""
        figures: dict[str, int | float] = {
            "failed": int(self.failure is not None),
            "survivors": self.survivors,
            "anonymity": self.contributors_min,
            "coordinates-updated": self.coordinates_updated,
            "sent-bytes": self.mean("codec")["total"],
            "seconds": self.total("seconds")["total"],
        }
        return MetricRecord({PREFIX + name: value for name, value in figures.items()})

    def sentence(self) -> str:
        """Return the round in one line of the log."""
        missing = ", ".join(f"{count} at {stage}" for stage, count in self.dropped.items() if count) or "nobody"
        if self.failure is not None:
            return f"SecAgg round {self.number} failed at {self.failed_at}, the model is unchanged: {self.failure}"
        codec, wire = self.mean("codec"), self.mean("wire")["total"]
        return (
            f"SecAgg round {self.number}: the sum of {self.survivors} of {self.cohort} nodes (dropped: {missing}), "
            f"{self.coordinates_updated:.0%} of the model updated, each coordinate by {self.contributors_min} or more; "
            f"{codec[Stage.UPLOAD.name] / 1000:.1f} kB in UPLOAD and {wire / 1000:.1f} kB of Flower objects in all per "
            f"node; {self.exchanges} exchanges in {self.total('seconds')['total']:.1f} s"
        )

    def line(self) -> dict[str, Any]:
        """Return the round as a line of a run folder's metrics.jsonl."""
        codec = self.mean("codec")
        return {
            "round": self.number,
            "status": "ok" if self.failure is None else "failed",
            "reason": self.failure,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "cohort": self.cohort,
            "alpha": self.alpha,
            "survivors": self.survivors,
            "dropped": self.dropped,
            "rejected": self.rejected,
            "upload_bytes": codec[Stage.UPLOAD.name],
            "sent_bytes": codec,
            "wire_bytes": self.mean("wire"),
            "received_bytes": self.mean("received"),
            "model_bytes": _mean(self.model_bytes),
            "downlink_bytes": _mean(self.model_bytes),  # As runs of `train` call it.
            "client_seconds": self.mean("client_seconds"),
            "server_seconds": self.total("server_seconds"),
            "stage_seconds": self.total("seconds"),
            "exchanges": self.exchanges,
            "contributors": {"mean": self.contributors_mean, "min": self.contributors_min},
            "contributors_histogram": self.contributors_histogram,
            "clipped": self.clipped,
            "clip": self.clip,
            "committees": self.committees,
            "committees_opened": self.committees_opened,
            "coordinates_updated": self.coordinates_updated,
        }


@dataclass
class FigureFolder:
    """A folder with config.json and metrics.jsonl, from which `sparsesecagg` makes a report."""

    path: Path
    earlier: str = ""
    """Lines of rounds before this process."""

    def go_on(self, rounds: int) -> None:
        """Keep the lines of the rounds that an earlier process has done."""
        with suppress(OSError):
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
            self.earlier = "".join(line for line in lines if json.loads(line)["round"] <= rounds)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the options of the run."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.json", json.dumps(config, indent=1) + "\n")

    def write_rounds(self, rounds: list[RoundRecord]) -> None:
        """Write all rounds anew: the accuracy of a round becomes known after its aggregate."""
        self.path.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(record.line()) + "\n" for record in rounds)
        write_atomically(self.path / "metrics.jsonl", self.earlier + lines)


def shape_of(params: Parameters) -> str:
    """Return in one sentence what the settings come to for a cohort."""
    sizes = [size for pod in params.sizes for size in pod]
    return (
        f"alpha {params.alpha:.3g} was asked for, {params.selection_probability:.3g} is used: {params.clients} users "
        f"in {params.pods} pod(s) and {params.committees} committee(s) of {min(sizes)} to {max(sizes)}, each sending "
        f"{params.served} of {params.committees} slices of the model"
    )


def config_of(params: Parameters, settings: Settings, strategy: str) -> dict[str, Any]:
    """Return what a run folder says of the settings: those that were given, and what they come to for the cohort."""
    given = {name: value for name, value in vars(settings).items() if value is not None and name != "wish"}
    return {
        **given,
        "aggregator": params.pattern,
        "engine": "flower",
        "strategy": strategy,
        "clients": params.clients,
        "dim": params.dim,
        "alpha": params.alpha,
        "alpha_planned": settings.planned,
        "modulus_bits": params.modulus_bits,
        "max_weight": params.max_weight,
        "weights": "examples" if params.max_weight else "uniform",
        "authenticated": params.authenticated,
        **(vars(settings.wish) if settings.planned else {}),
        "effective": _effective(params),
    }


def _effective(params: Parameters) -> dict[str, Any]:
    return {
        "alpha": params.selection_probability,
        "committees": params.committees,
        "pods": params.pods,
        "committee_size": params.smallest_committee,
        "threshold": params.threshold,
        "min_survivors": params.min_survivors,
        "confirm": params.confirm,
    }


def total_weight(result: Result) -> int:
    """Return the total weight of those in the sum, or their number in a run without weights."""
    if result.weight_per_slice is None:
        return len(result.survivors)
    # Everybody in an opened committee serves equally many slices, so each weight was counted that many times.
    return int(result.weight_per_slice.sum()) // result.params.served


def noise_warning(result: Result) -> str | None:
    """Return a sentence if weights far below their limit make the rounding coarse."""
    if result.weight_per_slice is None:
        return None
    opened = result.contributors_per_slice > 0
    contributors = result.contributors_per_slice[opened]
    typical = float(np.mean(result.weight_per_slice[opened] / contributors)) or 1.0
    # Rounding by up to one level, averaged over the contributors; a weight below the limit magnifies it.
    magnified = result.params.max_weight / typical
    noise = magnified / result.params.quantizer.limit / np.sqrt(float(np.mean(contributors)))
    if magnified <= 2 or noise <= _COARSE:
        return None
    return (
        f"max_weight is {magnified:.0f} times the mean weight, which makes the rounding coarse: set max_weight to the "
        "largest number of examples of a node, or use longer words"
    )


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else 0.0
