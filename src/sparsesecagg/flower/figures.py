"""What the rounds came to: for Flower's `Result`, for the log, and for a run folder that a report can be made from."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.errors import RefusedByAll, remedy_of
from sparsesecagg.flower.settings import Settings, described
from sparsesecagg.protocol import STAGES, Parameters, Result, Stage

_LOG = logging.getLogger("flwr")
PREFIX, _METRICS = "secagg-", "metrics.jsonl"
_AS_THEY_ARE = (
    *("accuracy", "loss", "epsilon", "cohort", "alpha", "gain", "survivors", "dropped", "rejected", "exchanges"),
    *("contributors_histogram", "clipped", "clip", "groups", "groups_opened", "coordinates_updated"),
)
"""What a line of a run folder has of a record."""
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class StageFigures:
    """One stage of one round, as the server saw it."""

    seconds: float = 0.0
    """From the first message out to the last reply in; 0 for what rode along in another stage's exchange."""
    server_seconds: float = 0.0
    codec: Counter[int] = field(default_factory=Counter)
    """By node: bytes of its messages before Flower frames them."""
    wire: Counter[int] = field(default_factory=Counter)
    """By node: bytes of all Flower objects of its messages."""
    received: Counter[int] = field(default_factory=Counter)
    """By node: bytes of the server's messages, without the model."""


@dataclass
class RoundRecord:
    """Everything that is kept of a round."""

    number: int
    """Flower's number of the round."""
    stage: Stage = Stage.ADVERTISE_KEYS
    """Where it is, and where it failed if it did."""
    protocol_round: int = 0
    """The protocol's; numbers of attempts that failed are not used again."""
    cohort: int = 0
    """Users of the run: the nodes that were chosen when it began, or those of the roster."""
    alpha: float = 1.0
    """The fraction of the model that each node sends."""
    gain: float = 1.0
    stages: dict[str, StageFigures] = field(
        default_factory=lambda: {name: StageFigures() for name in ("SHARE_KEYS", "UPLOAD", "UNMASK")}
    )
    """Those of every round, and others that it had."""
    exchanges: int = 0
    model_bytes: Counter[int] = field(default_factory=Counter)
    """By node: bytes of the model, or of the steps that lead to it, in UPLOAD's message."""
    dropped: dict[str, int] = field(default_factory=dict)
    invited: int = 0
    refusals: dict[int, str] = field(default_factory=dict)
    """By node that would not go on: why, in its own words."""
    rejected: int = 0
    """Replies that fitted no request, or that the protocol rejected."""
    survivors: int = 0
    groups: int = 0
    groups_opened: int = 0
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
    epsilon: float | None = None
    """With noise: what all rounds up to this one have cost each node."""

    def at(self, stage: Stage) -> StageFigures:
        """Return the figures of a stage."""
        return self.stages.setdefault(stage.name, StageFigures())

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Count what the server computes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.at(stage).server_seconds += time.perf_counter() - start

    def fail(self, error: Exception) -> None:
        """Note where and why the round ends, with the nodes' own reasons."""
        parts = [str(error), remedy_of(error)]
        if self.refusals:
            parts.append(f"{len(self.refusals)} node(s) refused: {next(iter(self.refusals.values()))}")
        self.failure, self.failed_at = "; ".join(filter(None, parts)), self.stage.name

    def complete(self, result: Result) -> None:
        """Take over what the protocol knows at the end."""
        self.survivors = len(result.survivors)
        self.groups, self.groups_opened = result.params.groups, result.groups_opened
        self.coordinates_updated = result.coordinates_updated
        shares = np.bincount(result.contributors) / result.params.dim
        present = np.flatnonzero(shares)
        self.contributors_min = int(min(present[present > 0], default=0))  # Where nothing was opened, nothing is shown.
        self.contributors_mean = float(present @ shares[present])
        self.contributors_histogram = {str(count): float(shares[count]) for count in present.tolist()}
        self.clipped = result.clipped

    def by_stage(self, what: str) -> dict[str, float]:
        """Return a figure by stage, of bytes the mean per client, with the total."""
        stages = {stage.name: self.stages[stage.name] for stage in STAGES if stage.name in self.stages}
        numbers = {name: _mean(getattr(figures, what)) for name, figures in stages.items()}
        return {**numbers, "total": sum(numbers.values())}

    def metrics(self) -> MetricRecord:
        """Return the figures that Flower's `Result` shows; all others are in the run folder and `history`."""
        figures: dict[str, int | float] = {
            "failed": int(self.failure is not None),
            "survivors": self.survivors,
            "contributors": self.contributors_min,
            "coordinates-updated": self.coordinates_updated,
            "gain": self.gain,
            "sent-bytes": self.by_stage("codec")["total"],
            "seconds": self.by_stage("seconds")["total"],
        }
        if self.epsilon is not None:
            figures["epsilon"] = self.epsilon
        return MetricRecord({PREFIX + name: value for name, value in figures.items()})

    def sentence(self) -> str:
        """Return the round in one line of the log."""
        if self.failure is not None:
            return f"SecAgg round {self.number} failed at {self.failed_at}, the model is unchanged: {self.failure}"
        missing = ", ".join(f"{count} at {stage}" for stage, count in self.dropped.items() if count) or "nobody"
        codec, wire = self.by_stage("codec"), self.by_stage("wire")["total"]
        return (
            f"SecAgg round {self.number}: the sum of {self.survivors} of {self.cohort} nodes (dropped: {missing}), "
            f"{self.coordinates_updated:.0%} of the model updated with gain {self.gain:.2f}; "
            f"{codec[Stage.UPLOAD.name] / 1000:.1f} kB in UPLOAD and {wire / 1000:.1f} kB of Flower objects in all per "
            f"node; {self.exchanges} exchanges in {self.by_stage('seconds')['total']:.1f} s"
        )

    def line(self) -> dict[str, Any]:
        """Return the round as a line of a run folder's metrics.jsonl."""
        codec = self.by_stage("codec")
        return {
            "round": self.number,
            "status": "ok" if self.failure is None else "failed",
            "reason": self.failure,
            "upload_bytes": codec[Stage.UPLOAD.name],
            "sent_bytes": codec,
            "wire_bytes": self.by_stage("wire"),
            "received_bytes": self.by_stage("received"),
            "downlink_bytes": _mean(self.model_bytes),
            "server_seconds": self.by_stage("server_seconds"),
            "stage_seconds": self.by_stage("seconds"),
            "contributors": {"mean": self.contributors_mean, "min": self.contributors_min},
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
        }


class RunFiles:
    """The files of a run; without a folder nothing is kept."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        free = self.path is None or self.path.is_dir() or not self.path.exists()
        require("run_dir", free, f"must name a folder, got the file {path}")

    def write(self, name: str, content: bytes | str, *, private: bool = False) -> None:
        """Write a file as a whole or not at all, on disk when this returns."""
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / name, content, private=private)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        try:
            return None if self.path is None else (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InvalidInput("run_dir", f"holds a {name} that can't be read: {problem.strerror}") from None

    def remove(self, *names: str) -> None:
        """Forget files."""
        if self.path is not None:
            for name in names:
                (self.path / name).unlink(missing_ok=True)


class History:
    """The rounds of a run, in its folder too: `sparsesecagg report` reads that."""

    def __init__(self, folder: RunFiles) -> None:
        self.rounds: list[RoundRecord] = []
        self._folder, self._earlier = folder, ""
        """Lines of rounds before this process."""
        self._cohort: tuple[int, ...] = ()

    def begin(self, number: int) -> RoundRecord:
        """Return the record of a new round."""
        self.rounds.append(RoundRecord(number))
        return self.rounds[-1]

    def require_hope(self) -> None:
        """Raise `RefusedByAll` if no round has succeeded, and nobody will say anything else in the next one."""
        refusals, invited = self.rounds[-1].refusals, self.rounds[-1].invited
        reasons = set(refusals.values())
        by_all = 0 < invited <= len(refusals) and len(reasons) == 1
        if by_all and all(record.failure for record in self.rounds) and not self._earlier:
            raise RefusedByAll(reasons.pop())

    def current(self, number: int) -> RoundRecord:
        """Return the record of the round under way."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].number == number else self.begin(number)

    def note_evaluation(self, number: int, metrics: Mapping[str, Any] | None) -> None:
        """Take accuracy and loss of the model after a round from what somebody has evaluated."""
        record = next((each for each in reversed(self.rounds) if each.number == number), None)
        if not metrics or record is None:
            return
        for name, value in metrics.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                if "acc" in name.lower():
                    record.accuracy = float(value)
                elif "loss" in name.lower():
                    record.loss = float(value)
        self.write()

    def watching(self, evaluate_fn: Evaluate, before: int) -> Evaluate:
        """Return an evaluation function whose figures are noted; `before` rounds were another process's."""

        def watched(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(number + before, arrays)
            self.note_evaluation(number + before, metrics)
            return metrics

        return watched

    def resume(self, rounds: int) -> None:
        """Keep the lines of the rounds that an earlier process has done."""
        with suppress(ValueError, KeyError, TypeError):
            lines = (self._folder.read(_METRICS) or b"").decode().splitlines(keepends=True)
            self._earlier = "".join(line for line in lines if json.loads(line)["round"] <= rounds)

    def introduce(self, params: Parameters, settings: Settings, strategy: str, model: int) -> None:
        """Log what the settings come to for a cohort and a model of so many bytes, once for each cohort; write it."""
        cohort = params.clients, params.dim, params.groups, params.threshold
        if cohort == self._cohort:
            return
        self._cohort = cohort
        for sentence in described(params, model, settings.finds_ranges, settings.roster):
            _LOG.info("SecAgg: %s", sentence)
        config = {
            **asdict(settings.options),
            "aggregator": params.pattern,
            "engine": "flower",
            "strategy": strategy,
            "clients": params.clients,
            "dim": params.dim,
            "weights": "examples" if params.max_weight else "uniform",
            "authenticated": params.authenticated,
            "effective": {
                "alpha": params.shape.fraction(),
                "groups": params.groups,
                "group_size": min(params.sizes),
                "threshold": params.threshold,
            },
        }
        self._folder.write("config.json", json.dumps(config, indent=1) + "\n")

    def write(self) -> None:
        """Write all rounds anew: the accuracy of a round becomes known after its aggregate."""
        lines = "".join(json.dumps(record.line()) + "\n" for record in self.rounds)
        self._folder.write(_METRICS, self._earlier + lines)


def _mean(values: Counter[int] | float) -> float:
    return values if isinstance(values, float) else values.total() / max(1, len(values))
