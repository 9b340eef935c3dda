"""Every option of a training run, checked, and the same as JSON: what decides the final model, bit for bit.

The command line makes its options from this class: their metadata is what it says about each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sparsesecagg.downlink import STEP_BITS
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.lab.learning.data.dataset import DEFAULT_CONCENTRATION, DEFAULT_SHARDS
from sparsesecagg.lab.learning.downlink import DOWNLINKS
from sparsesecagg.lab.learning.malicious import ATTACKS, Malicious
from sparsesecagg.lab.learning.models import DEFAULT_HIDDEN, OWN_DATA, PRESETS, LocalTraining
from sparsesecagg.protocol import STAGES, RoundOptions, Stage
from sparsesecagg.protocol.parameters import LARGEST_CLIP, SMALLEST_CLIP, check_kinds

WEIGHTS = ("uniform", "examples")
NORMALISATIONS = ("observed", "expected")
AUTO = "auto"
LARGEST_HIDDEN = 10**6
DEFAULT_OPTIONS = RoundOptions(alpha=DEFAULT_ALPHA)
_MODEL, _HOW = OWN_DATA


def _words(panel: str, text: str, shown: str | None = None, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what the help says about an option: `shown` of its default, where that is not the value itself."""
    return {"panel": panel, "help": text, "shown": shown, "names": names}


def _option(panel: str, text: str, default: Any, shown: str | None = None, names: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata=_words(panel, text, shown, names))


_TASK, _AGGREGATION, _PRIVACY, _LOCAL = "Task", "Aggregation", "Differential privacy", "Local training"
_SIMULATED = "Faults and network, simulated"
_MALICIOUS = "Malicious users, simulated"
COMBINE = ("mean", "centred-clipping", "median")

ROUND_OPTIONS = {
    "alpha": _words(_AGGREGATION, "Fraction of the model that each user sends (α), in (0, 1]."),
    "group_size": _words(_AGGREGATION, "Users of a group, at most.", "all, up to 128 users"),
    "threshold": _words(_AGGREGATION, "Users that must stay for a sum to open.", "the highest that dropouts allow"),
    "neighbours": _words(
        _AGGREGATION, "Degree of the graph of masks and shares.", "complete; secagg-plus: by the dropout"
    ),
    "dropout": _words(_SIMULATED, "Chance that a user drops out of a round (θ)."),
    "colluding": _words(_SIMULATED, "Fraction of the users that help the server (γ).", "0; with a roster 0.1"),
}
"""The choices of a round that `train` offers; the aggregator decides the others."""


@dataclass(frozen=True)
class TrainingConfig:
    """A run's options. Make one with `create`, which fills in what depends on the data set."""

    dataset: str = _option(_TASK, "One of digits, mnist, fashion-mnist, cifar10.", "digits")
    model: str = _option(_TASK, "The network, such as softmax, mlp or small-cnn.", _MODEL, "by data set")
    epochs: int = _option(_LOCAL, "Local epochs per round.", _HOW.epochs)
    batch: int = _option(_LOCAL, "Samples per local step.", _HOW.batch, "28; digits: 10")
    lr: float = _option(_LOCAL, "Local learning rate.", _HOW.lr, "0.01; digits: 0.1")
    momentum: float = _option(_LOCAL, "Local momentum.", _HOW.momentum)
    hidden: int = _option(_TASK, "Hidden units of the model mlp.", DEFAULT_HIDDEN)
    samples: int | None = _option(_TASK, "Use only this many training samples.", None, "all")
    partition: str = _option(_TASK, "How samples are dealt out: iid, shards, dirichlet.", "iid")
    shards: int = _option(_TASK, "Shards of the partition shards.", DEFAULT_SHARDS)
    concentration: float = _option(_TASK, "Evenness of the partition dirichlet.", DEFAULT_CONCENTRATION)
    clients: int = _option(_TASK, "Users (N), at least 3.", 50)
    sample: float = _option(
        _TASK, "Fraction of the users invited to each round, in (0, 1]; below 1 each round has its own set-up.", 1.0
    )
    rounds: int = _option(_TASK, "Rounds to train; with --resume it may grow.", 40)
    seed: int = _option(_TASK, "Seed of everything random in the simulation.", 0)
    target_accuracy: float | None = _option(_TASK, "Stop when the test accuracy reaches this, such as 0.95.", None)
    aggregator: str = _option(
        _AGGREGATION,
        "One of plain, secagg (also: full), secagg-plus, pairwise, sliced.",
        "sliced",
        names=("--aggregator", "--pattern"),
    )
    options: RoundOptions = DEFAULT_OPTIONS
    """The choices of a round: those of `ROUND_OPTIONS`. Aggregators set the others."""
    modulus_bits: int | None = _option(_AGGREGATION, "Bits of a word, 4 to 32.", None, "16 for sliced, else 32")
    gain: float | str = _option(
        _AGGREGATION, "Factor for the coordinates that sliced sent: from 1 to 1/(fraction sent), or auto.", AUTO
    )
    normalisation: str | None = _option(
        _AGGREGATION,
        "Divide by observed contributors, or by the expected number.",
        None,
        "observed; expected for pairwise with weights",
    )
    weights: str = _option(
        _AGGREGATION,
        "How users count in the mean: uniform, or by examples. Weights are masked, but over many rounds with dropouts "
        "the server can solve for them.",
        "uniform",
        names=("--weights", "--weighting"),
    )
    first_clip: float | None = _option(
        _AGGREGATION, "Clip of the first round; later ones follow the aggregate.", None, "largest first weight"
    )
    authenticated: bool = _option(_AGGREGATION, "Use a roster of identities.", False)
    dp_epsilon: float | None = _option(_PRIVACY, "ε over all rounds, kept by noise that users add.", None, "no noise")
    dp_delta: float = _option(_PRIVACY, "δ over all rounds.", 1e-5)
    dp_clip: float = _option(_PRIVACY, "The largest 2-norm of a user's update.", 1.0)
    malicious: float = _option(_MALICIOUS, "Fraction of the users that are malicious, in [0, 0.5).", 0.0)
    attack: str = _option(_MALICIOUS, f"What they send: {', '.join(ATTACKS)}.", "range")
    combine: str = _option(
        _MALICIOUS, f"What the server makes of the groups: {', '.join(COMBINE)}; all but the mean need three.", "mean"
    )
    drop_at: str = _option(
        _SIMULATED, "Stages before whose message users drop out, separated by commas, or ANY.", Stage.UPLOAD.name
    )
    keys_arrive: bool = _option(
        _SIMULATED, "Users that drop out still send keys for later rounds, as in the paper.", False
    )
    bandwidth_mbit: float = _option(_SIMULATED, "Each user's line in Mbit/s.", 100.0)
    latency_ms: float = _option(_SIMULATED, "Latency of that line.", 20.0)
    downlink: str = _option(_SIMULATED, "How the model goes down to users: steps or model (whole).", "steps")
    downlink_bits: int = _option(_SIMULATED, "Bits per coordinate of a step: 2, 4 or 8.", 4)

    @classmethod
    def create(cls, dataset: str = "digits", **options: Any) -> TrainingConfig:
        """Return checked options; None stands for the default, which for some depends on the data set."""
        model, how = PRESETS.get(dataset, OWN_DATA)
        return cls(dataset, model, **dataclasses.asdict(how)).replace(**as_stored(options))

    def check(self) -> None:
        """Raise `InvalidInput` for what no other part of the run checks by itself."""
        check_kinds(self, skip=("options", "gain"))
        _ = self.how
        for option, (fits, wanted) in _RANGES.items():
            require(option, (value := self.value(option)) is None or fits(value), f"must be {wanted}, got {value}")
        for option, known in _CHOICES.items():
            if (value := getattr(self, option)) is not None and value not in known:
                raise InvalidInput(option, f"must be one of {', '.join(map(str, known))}, got {value!r}")
        for stage in self.drop_stages:
            if stage not in (names := [*(known.name for known in STAGES), "ANY"]):
                raise InvalidInput("drop_at", f"must be one of {', '.join(names)}, got {stage!r}")
        for option in ("dp_delta", "dp_clip"):
            alone = self.dp_epsilon is None and getattr(self, option) != getattr(TrainingConfig, option)
            require(option, not alone, "must be given together with --dp-epsilon")
        samples = f"must be at least {self.clients}, one for each of the clients, got {self.samples}"
        require("samples", self.samples is None or self.samples >= self.clients, samples)
        least = f"{math.ceil(300 / self.clients) / 100:g} with {self.clients} clients"
        require("sample", self.cohort >= 3, f"must be at least {least}, so that 3 take part, got {self.sample:g}")
        fixed = "must be 1 with --authenticated: a roster names the users of all rounds"
        require("sample", not self.authenticated or self.sample == 1, fixed)
        if self.gain != AUTO and not (isinstance(self.gain, int | float) and self.gain >= 1):
            raise InvalidInput("gain", f"must be a number of at least 1, or {AUTO}, got {self.gain!r}")

    @property
    def cohort(self) -> int:
        """How many users take part in a round."""
        return round(self.sample * self.clients)

    @property
    def how(self) -> LocalTraining:
        """How each user trains."""
        return LocalTraining(self.epochs, self.batch, self.lr, self.momentum)

    @property
    def drop_stages(self) -> tuple[str, ...]:
        """The stages at which users drop out: names separated by commas, or ANY for all of them."""
        names = tuple(part.strip().upper().replace("-", "_") for part in self.drop_at.split(","))
        return tuple(stage.name for stage in STAGES) if names == ("ANY",) else names

    def malicious_users(self) -> Malicious:
        """Return who is malicious, and what they do."""
        return Malicious.draw(self.clients, self.malicious, self.attack, self.seed)

    def value(self, option: str) -> Any:
        """Return an option by its name."""
        return getattr(self.options if option in ROUND_OPTIONS else self, option)

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON knows them, all side by side."""
        return {name: self.value(name) for name in option_names()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TrainingConfig:
        """Read what `to_json` gave; further keys are ignored."""
        return cls().replace(**{name: value for name, value in stored.items() if name in option_names()})

    def replace(self, **changes: Any) -> TrainingConfig:
        """Return checked options with some changed."""
        rounds = {name: changes.pop(name) for name in tuple(changes) if name in ROUND_OPTIONS}
        changed = dataclasses.replace(self, options=dataclasses.replace(self.options, **rounds), **changes)
        changed.check()
        return changed


def as_stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not None as a configuration has them, whatever other words were used."""
    given = {_NAMES.get(name, name): value for name, value in options.items() if value is not None}
    known = option_names()
    if unknown := sorted(set(given) - set(known)):
        raise InvalidInput(unknown[0], f"is not an option; the options are {', '.join(sorted(known))}")
    for name, others in OTHER_WORDS.items():
        if isinstance(value := given.get(name), str):
            given[name] = others.get(value, value)
    if isinstance(gain := given.get("gain"), str) and gain != AUTO:
        with contextlib.suppress(ValueError):  # `check` says what a gain must be.
            given["gain"] = float(gain)
    return given


def option_names() -> tuple[str, ...]:
    """Return the names of all options, those of a round in their place."""
    names = (ROUND_OPTIONS if field.name == "options" else (field.name,) for field in fields(TrainingConfig))
    return tuple(name for part in names for name in part)


OTHER_WORDS = {"aggregator": {"full": "secagg"}, "weights": {"samples": "examples"}}  # Other words for a value.
_NAMES = {
    other.removeprefix("--").replace("-", "_"): field.name
    for field in fields(TrainingConfig)
    if field.metadata
    for other in field.metadata["names"]
}
"""Other names of an option."""

_MINORITY = (lambda value: 0 <= value < 0.5), "in [0, 0.5)"
_CLIP = (lambda value: SMALLEST_CLIP <= value <= LARGEST_CLIP), "from 1e-30 to 1e30"
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "clients": ((lambda value: value >= 3), "at least 3"),
    "sample": ((lambda value: 0 < value <= 1), "in (0, 1]"),
    "rounds": ((lambda value: value >= 1), "at least 1"),
    "hidden": ((lambda value: 1 <= value <= LARGEST_HIDDEN), f"from 1 to {LARGEST_HIDDEN}"),
    "seed": ((lambda value: value >= 0), "at least 0"),
    "malicious": _MINORITY,
    "target_accuracy": ((lambda value: 0 < value <= 1), "in (0, 1], such as 0.95"),
    "alpha": ((lambda value: 0 < value <= 1), "in (0, 1]"),
    "dropout": _MINORITY,
    "colluding": _MINORITY,
    "dp_epsilon": ((lambda value: 0 < value < math.inf), "above 0"),
    "dp_delta": ((lambda value: 0 < value < 1), "above 0 and below 1"),
    "dp_clip": _CLIP,
    "bandwidth_mbit": ((lambda value: 1e-6 <= value < math.inf), "at least 1e-6"),  # So that seconds are finite.
    "latency_ms": ((lambda value: 0 <= value <= 1e9), "from 0 to 1e9"),
    "first_clip": _CLIP,
}
"""What a number must be, where it is given."""
_CHOICES: dict[str, Collection[Any]] = {
    "weights": WEIGHTS,
    "downlink": DOWNLINKS,
    "downlink_bits": sorted(STEP_BITS),
    "normalisation": NORMALISATIONS,
    "attack": ATTACKS,
    "combine": COMBINE,
}
