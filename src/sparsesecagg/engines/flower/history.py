"""What a round came to: for Flower's `Result`, for the log, and for a run folder that a report can be made from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from sparsesecagg.protocol import STAGES, Result, Stage

PREFIX = "secagg-"


@dataclass
class StageFigures:
    """One stage of one round, as the server saw it."""

    seconds: float = 0.0
    """From the first message out to the last reply in; 0 for keys that were announced early."""
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
    cohort: int = 0
    """Invited nodes; with a roster, its users."""
    stages: dict[str, StageFigures] = field(default_factory=lambda: {stage.name: StageFigures() for stage in STAGES})
    exchanges: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    """Replies that fitted no request, or that the protocol turned down."""
    survivors: int = 0
    contributors_min: int = 0
    contributors_mean: float = 0.0
    contributors_histogram: dict[str, float] = field(default_factory=dict)
    clipped: int | None = None
    clip: float = 0.0
    failure: str | None = None
    failed_at: str | None = None
    accuracy: float | None = None
    loss: float | None = None

    @staticmethod
    def begin(number: int, stages: Iterable[Stage]) -> RoundRecord:
        """Return the record of a round with these stages, of which nothing has happened yet."""
        return RoundRecord(number, stages={stage.name: StageFigures() for stage in stages})

    def complete(self, result: Result) -> None:
        """Take over what the protocol knows at the end."""
        self.survivors = len(result.survivors)
        layout, counts = result.params.layout, result.contributors_per_block
        # Coordinates per block; the last blocks are padded.
        sizes = np.clip(layout.dim - np.arange(layout.blocks) * layout.length, 0, layout.length)
        shares = np.bincount(counts, weights=sizes) / layout.dim
        present = np.flatnonzero(shares)
        self.contributors_min = int(present[0])
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
        """Return the figures for Flower's `Result`; names begin with "secagg-"."""
        figures: dict[str, int | float] = {
            "failed": int(self.failure is not None),
            "cohort": self.cohort,
            "survivors": self.survivors,
            "dropped": sum(self.dropped.values()),
            "rejected": self.rejected,
            "anonymity": self.contributors_min,
            "clip": self.clip,
            "exchanges": self.exchanges,
            "upload-bytes": self.mean("codec")[Stage.UPLOAD.name],
            "sent-bytes": self.mean("codec")["total"],
            "upload-wire-bytes": self.mean("wire")[Stage.UPLOAD.name],
            "sent-wire-bytes": self.mean("wire")["total"],
            "received-bytes": self.mean("received")["total"],
            "seconds": self.total("seconds")["total"],
            "server-seconds": self.total("server_seconds")["total"],
            "client-seconds": self.mean("client_seconds")["total"],
        }
        for name, seconds in self.total("seconds").items():
            if name != "total":
                figures[f"seconds-{name.lower().replace('_', '-')}"] = seconds
        if self.clipped is not None:
            figures["clipped"] = self.clipped
        return MetricRecord({PREFIX + name: value for name, value in figures.items()})

    def sentence(self) -> str:
        """Return the round in one line of the log."""
        silent = ", ".join(f"{count} at {stage}" for stage, count in self.dropped.items() if count) or "nobody"
        if self.failure is not None:
            return f"SecAgg round {self.number} failed at {self.failed_at}, the model is unchanged: {self.failure}"
        upload, sent = self.mean("codec")[Stage.UPLOAD.name], self.mean("wire")["total"]
        return (
            f"SecAgg round {self.number}: the sum of {self.survivors} of {self.cohort} nodes (dropped: {silent}), "
            f"every coordinate of at least {self.contributors_min}; {upload / 1000:.1f} kB in UPLOAD and "
            f"{sent / 1000:.1f} kB of Flower objects in all per node; {self.exchanges} exchanges in "
            f"{self.total('seconds')['total']:.1f} s"
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
            "survivors": self.survivors,
            "dropped": self.dropped,
            "rejected": self.rejected,
            "upload_bytes": codec[Stage.UPLOAD.name],
            "sent_bytes": codec,
            "wire_bytes": self.mean("wire"),
            "received_bytes": self.mean("received"),
            "client_seconds": self.mean("client_seconds"),
            "server_seconds": self.total("server_seconds"),
            "stage_seconds": self.total("seconds"),
            "exchanges": self.exchanges,
            "contributors": {"mean": self.contributors_mean, "min": self.contributors_min},
            "contributors_histogram": self.contributors_histogram,
            "clipped": self.clipped,
            "clip": self.clip,
        }


@dataclass
class RunFolder:
    """A folder with config.json and metrics.jsonl, from which `sparsesecagg` makes a report."""

    path: Path

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the options of the run."""
        self.path.mkdir(parents=True, exist_ok=True)
        _replace(self.path / "config.json", json.dumps(config, indent=1) + "\n")

    def write_rounds(self, rounds: list[RoundRecord]) -> None:
        """Write all rounds anew: the accuracy of a round becomes known after its aggregate."""
        self.path.mkdir(parents=True, exist_ok=True)
        _replace(self.path / "metrics.jsonl", "".join(json.dumps(record.line()) + "\n" for record in rounds))


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else 0.0
