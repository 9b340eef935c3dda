"""Every option of a training run, checked, and the same as JSON.

What is in here decides the final model, bit for bit. What only decides how fast one gets there (worker processes, where
the data lies) is not.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields
from typing import Any

from sparsesecagg.downlink import STEP_BITS
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.partition import DEFAULT_CLASSES_PER_CLIENT, DEFAULT_CONCENTRATION, DEFAULT_SHARDS
from sparsesecagg.lab.learning.models.base import LocalTraining
from sparsesecagg.lab.learning.models.catalogue import DEFAULT_HIDDEN, OWN_DATA, PRESETS
from sparsesecagg.lab.learning.way_down import DOWNLINKS
from sparsesecagg.protocol import STAGES, Stage

WEIGHTINGS = ("uniform", "samples")
NORMALISATIONS = ("observed", "expected", "everybody")
LARGEST_HIDDEN = 10**6


@dataclass(frozen=True)
class TrainingConfig:
    """A run's options. Make one with `create`, which fills in what depends on the data set."""

    dataset: str
    model: str
    epochs: int
    batch: int
    lr: float
    momentum: float
    hidden: int = DEFAULT_HIDDEN
    samples: int | None = None
    partition: str = "iid"
    shards: int = DEFAULT_SHARDS
    concentration: float = DEFAULT_CONCENTRATION
    classes_per_client: int = DEFAULT_CLASSES_PER_CLIENT
    clients: int = 50
    rounds: int = 40
    seed: int = 0
    target_accuracy: float | None = None
    aggregator: str = "committee"
    alpha: float = 0.2
    modulus_bits: int | None = None
    neighbours: int | None = None
    threshold: int | None = None
    min_survivors: int | None = None
    committee_size: int | None = None
    pod_size: int | None = None
    normalisation: str = "observed"
    weighting: str = "uniform"
    first_clip: float | None = None
    authenticated: bool = False
    dropout: float = 0.3
    drop_at: str = "UPLOAD"
    colluding: float = 0.0
    bandwidth_mbit: float = 100.0
    latency_ms: float = 20.0
    downlink: str = "steps"
    downlink_bits: int = 4

    @classmethod
    def create(cls, dataset: str = "digits", **options: Any) -> TrainingConfig:
        """Return checked options; None stands for the default, which for some depends on the data set."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(options) - known):
            raise InvalidInput(unknown[0], f"is not an option; the options are {', '.join(sorted(known))}")
        given = {name: value for name, value in options.items() if value is not None}
        preset = PRESETS.get(dataset, OWN_DATA)
        defaults = {"model": preset.model, **dataclasses.asdict(preset.how)}
        config = cls(dataset=dataset, **(defaults | given))
        config.check()
        return config

    def check(self) -> None:
        """Raise `InvalidInput` for what no other part of the run checks by itself."""
        _ = self.how
        _at_least("clients", self.clients, 3)
        _at_least("rounds", self.rounds, 1)
        if not 1 <= self.hidden <= LARGEST_HIDDEN:
            raise InvalidInput("hidden", f"must be from 1 to {LARGEST_HIDDEN}, got {self.hidden}")
        _at_least("seed", self.seed, 0)
        _one_of("weighting", self.weighting, WEIGHTINGS)
        _one_of("downlink", self.downlink, DOWNLINKS)
        if self.downlink_bits not in STEP_BITS:
            allowed = ", ".join(map(str, sorted(STEP_BITS)))
            raise InvalidInput("downlink_bits", f"must be one of {allowed}, got {self.downlink_bits}")
        _one_of("normalisation", self.normalisation, NORMALISATIONS)
        if not isinstance(self.authenticated, bool):
            raise InvalidInput("authenticated", f"must be true or false, got {self.authenticated!r}")
        for stage in self.drop_stages:
            if stage == Stage.CONFIRM.name and not self.authenticated:
                raise InvalidInput(
                    "drop_at", "must not be CONFIRM without --authenticated: it is a stage of these rounds"
                )
            _one_of("drop_at", stage, (*(known.name for known in self.stages), "ANY"))
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise InvalidInput("target_accuracy", f"must be in (0, 1], such as 0.95, got {self.target_accuracy}")
        if not 0 < self.alpha <= 1:
            raise InvalidInput("alpha", f"must be in (0, 1], got {self.alpha}")
        for option, share in (("dropout", self.dropout), ("colluding", self.colluding)):
            if not 0 <= share < 1:
                raise InvalidInput(option, f"must be in [0, 1), got {share}")
        if not (math.isfinite(self.bandwidth_mbit) and self.bandwidth_mbit > 0):
            raise InvalidInput("bandwidth_mbit", f"must be above 0, got {self.bandwidth_mbit}")
        if not (math.isfinite(self.latency_ms) and self.latency_ms >= 0):
            raise InvalidInput("latency_ms", f"must be 0 or more, got {self.latency_ms}")
        if self.first_clip is not None and not (math.isfinite(self.first_clip) and self.first_clip > 0):
            raise InvalidInput("first_clip", f"must be above 0, got {self.first_clip}")

    @property
    def how(self) -> LocalTraining:
        """How each user trains."""
        return LocalTraining(self.epochs, self.batch, self.lr, self.momentum)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Where users may drop out: CONFIRM only in authenticated runs, ADVERTISE_KEYS only before the first round."""
        return tuple(stage for stage in STAGES if self.authenticated or stage is not Stage.CONFIRM)

    @property
    def drop_stages(self) -> tuple[str, ...]:
        """The stages at which users drop out: names separated by commas, or ANY for all of them."""
        names = tuple(part.strip().upper().replace("-", "_") for part in self.drop_at.split(","))
        return tuple(stage.name for stage in self.stages) if names == ("ANY",) else names

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON knows them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TrainingConfig:
        """Read what `to_json` gave; further keys are ignored."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in names})

    def replace(self, **changes: Any) -> TrainingConfig:
        """Return checked options with some changed."""
        changed = dataclasses.replace(self, **changes)
        changed.check()
        return changed


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidInput(option, f"must be at least {least}, got {value}")


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(option, f"must be one of {', '.join(known)}, got {value!r}")
