"""What the server carries from round to round, and what one that is started again finds in its run folder.

Ranges say how updates are scaled (`ranges.py`), the gain how far covered coordinates move (`downlink/gain.py`), the
downlink how the new model travels. All three follow from means that the server sees anyway, but for the first ranges:
nodes vote for those under the masks.

Two files, each replaced as a whole. `model.state` is written after every round: the model, the steps that led to it,
ranges and gain, what the wrapped strategy remembers, and how many rounds are done. `run.state` is written as a round
begins: the protocol's run. A round that was under way is lost, and its number with it. Nothing in either file is a
secret of a node. A run that is over leaves neither.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from sparsesecagg.downlink.gain import Gain
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.errors import PrivacyBudgetExhausted as NodeBudgetExhausted
from sparsesecagg.flower.arrays import SavedArrays, Template, saved_arrays, view, written_arrays
from sparsesecagg.flower.downlink import Downlink
from sparsesecagg.flower.figures import RunFiles
from sparsesecagg.flower.messages import Terms
from sparsesecagg.flower.packing import Opened, Packing
from sparsesecagg.flower.settings import Settings
from sparsesecagg.planning.noise import FAILURE_LOG2, DifferentialPrivacy
from sparsesecagg.privacy.accountant import Cost, usable_delta
from sparsesecagg.protocol import Parameters, Result
from sparsesecagg.ranges import NARROWEST, Ranges, counted

_LOG = logging.getLogger("flwr")
_HEADROOM, _WHOLE_HEADROOM = 2.0, 16.0
"""The least, of sliced arrays, and of those that have several digits and thus room to spare."""
_STEPS, _MOST_SPARE = 64, 32.0
"""Long words have more steps than rounding needs: beyond this many they widen ranges, up to so many times."""
_VERSION = 4
MODEL, RUN, _PRIVACY = "model.state", "run.state", "privacy.json"
_SPENT = f"{NodeBudgetExhausted.__name__}: "


class Movement:
    """Ranges, gain and downlink of a run."""

    def __init__(self, settings: Settings) -> None:
        self.downlink, self._settings = Downlink(), settings
        self._gain: Gain | None = None
        self._covered = 0.0
        """The part of the model that the gain is for."""
        self._ranges: Ranges | None = None
        self._sizes: list[int] = []
        """Of the arrays that the ranges are for."""

    def terms(self, template: Template) -> Terms:
        """Return the terms of the next round; those without scales say that ranges must be found first."""
        scales: tuple[float, ...] = ()
        if not self._settings.finds_ranges:
            scales = (float(self._settings.options.clip or 1.0),) * len(template.travelling)
        elif self._ranges is not None and self._sizes == template.sizes:
            scales = tuple(self._ranges.values.tolist())
        return Terms(scales, self._settings.metrics)

    def take_votes(self, packing: Packing, result: Result) -> None:
        """Begin with the ranges that nodes have voted for."""
        whole = {slot.name for slot, _ in packing.whole}
        spare = min(_MOST_SPARE, max(1.0, result.params.quantizer.limit / _STEPS))
        least = np.array([_WHOLE_HEADROOM if s.name in whole else _HEADROOM for s in packing.template.travelling])
        found = np.median([counted(packing.shares(mean, result.updated)) for mean in _means(result)], axis=0)
        moved = found > NARROWEST
        if moved.any():  # What stands still now, such as a frozen layer, may move later, about as far as others.
            found[~moved] = found[moved].max()
        # What was voted for holds this very update; later ones may have grown.
        self._ranges = Ranges(found * least / _HEADROOM, spare * least, measured=True)
        self._sizes = packing.template.sizes
        _LOG.info("SecAgg: nodes found the ranges of %d arrays, from %.3g to %.3g", len(found), min(found), max(found))

    def move(
        self, packing: Packing, terms: Terms, result: Result, model: ArrayRecord
    ) -> tuple[list[tuple[ArrayRecord, int]], dict[str, float], float]:
        """Return the model as the mean moves it, with its weight, or as each group's does; metrics; and the gain.

        With groups, ranges, gain and metrics follow the median of theirs, which a few bad ones can't move far.
        """
        combined, clipped = result.combined, result.clipped or 0
        weights = [len(result.survivors) if combined.weights is None else int(combined.weights.max())]
        counts: NDArray[Any] | None = combined.contributors if combined.weights is None else combined.weights
        if combined.groups and combined.robust is None:
            clipped = 0  # Nor can they widen the ranges by a count.
            weights = [users for users, _ in combined.groups]
        if combined.groups or combined.robust is not None:
            counts = None  # All groups have sent the same coordinates.
        opened = [packing.open(mean, result.updated, terms.scales, counts) for mean in _means(result)]
        middle = Opened.median(opened)
        if self._ranges is not None:
            sent = packing.params.shape.length * max(1, len(result.survivors))
            self._ranges.follow(*middle.largest(), clipped=clipped / sent)
            if not self._ranges.moved:
                self._ranges = None  # As in a round of warm-up with rate 0: nodes vote again.
        if result.clipped:
            _LOG.info("SecAgg: %d of the values that nodes sent were beyond their ranges and clipped", result.clipped)
        gain = self._gain_for(result.params)
        gain.step(*middle.sliced)  # For the gain: it adapts.
        moved = [packing.template.add(model, each.update(gain.value)) for each in opened]
        told = zip(terms.metrics.items(), middle.metrics.tolist(), strict=True) if result.updated.any() else ()
        metrics = {name: value * bound for (name, bound), value in told}
        return list(zip(moved, weights, strict=True)), metrics, gain.value

    def _gain_for(self, params: Parameters) -> Gain:
        """Return the gain of the run; another coverage, as after a new epoch among fewer nodes, begins anew."""
        coverage = params.shape.coverage
        if self._gain is None or self._covered != coverage:
            # Means with noise do not tell whether steps are too long, so what is unbiased has to do.
            told = self._settings.gain or (1 / coverage if self._settings.dp else None)
            self._gain, self._covered = Gain(coverage, told), coverage
        return self._gain

    def save(self) -> bytes:
        """Return what the next rounds depend on, beside the model."""
        ranges = self._ranges.save() if self._ranges else b""
        gain = self._gain.save() if self._gain else b""
        return msgspec.msgpack.encode((ranges, self._sizes, gain, self.downlink.save()))

    def restore(self, data: bytes, model: ArrayRecord, params: Parameters | None) -> None:
        """Go back to what `save` returned, with the model of that time; `params`: of the run that goes on, if any."""
        try:
            ranges, sizes, gain, downlink = msgspec.msgpack.decode(data, type=tuple[bytes, list[int], bytes, bytes])
        except ValueError:  # msgspec's errors are ValueErrors.
            raise MalformedMessage("the bytes are not a saved movement") from None
        if ranges and self._settings.finds_ranges:
            self._ranges, self._sizes = Ranges.restore(ranges), sizes
        if gain and params is not None:
            self._gain_for(params).restore(gain)
        self.downlink.restore(downlink, model)


def _means(result: Result) -> list[NDArray[np.floating]]:
    """Return the mean, or that of each group, in float64: digits of one number must not be rounded by themselves."""
    combined = result.combined
    if combined.robust is not None:
        return [combined.robust]
    if combined.groups:
        return [mean for _, mean in combined.groups]
    divisor = combined.contributors if combined.weights is None else combined.weights
    return [result.sum() / np.maximum(divisor, 1)]


# In a run folder


class ModelState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The model between two rounds."""

    version: int
    round_number: int
    """Flower's number of the last round that is done."""
    arrays: SavedArrays
    movement: bytes
    memory: dict[str, tuple[str, SavedArrays]]
    """Of the wrapped strategy, by attribute: what holds arrays there, and these."""

    @staticmethod
    def of(number: int, model: ArrayRecord, movement: Movement, strategy: Strategy) -> ModelState:
        """Return what the rounds up to this one have led to."""
        return ModelState(_VERSION, number, written_arrays(model), movement.save(), _memory(strategy))

    @staticmethod
    def read(data: bytes) -> ModelState:
        """Read the file; a damaged one is an error."""
        with suppress(ValueError):  # msgspec's errors are ValueErrors.
            state = msgspec.msgpack.decode(data, type=ModelState)
            if state.version == _VERSION:
                return state
        raise _damaged()

    def remind(self, strategy: Strategy) -> ArrayRecord:
        """Give a strategy back what it remembered; return the model."""
        for name, (kind, arrays) in self.memory.items():
            try:
                found = {key: np.array(view(each)) for key, each in saved_arrays(arrays).items()}
                setattr(strategy, name, _HELD[kind](found))
            except (InvalidInput, KeyError, ValueError):
                raise _damaged() from None
        return ArrayRecord(saved_arrays(self.arrays))


def _damaged() -> InvalidInput:
    return InvalidInput("run_dir", f"holds a damaged {MODEL}: remove it to begin anew, or name another folder")


_HELD: dict[str, Callable[[dict[str, NDArray[Any]]], Any]] = {
    "array": lambda found: found["0"],
    "list": lambda found: list(found.values()),
    "tuple": lambda found: tuple(found.values()),
    "by number": lambda found: {int(key): each for key, each in found.items()},
    "by name": dict,
}
"""What a strategy may keep arrays in, and how it is made of them."""


def _memory(strategy: Strategy) -> dict[str, tuple[str, SavedArrays]]:
    """Return what a strategy keeps from round to round: its attributes that hold arrays, such as moments."""
    memory: dict[str, tuple[str, SavedArrays]] = {}
    for name, value in vars(strategy).items():
        if isinstance(value, np.ndarray):
            kind, held = "array", {0: value}
        elif isinstance(value, list | tuple):
            kind, held = type(value).__name__, dict(enumerate(value))
        elif isinstance(value, dict):
            kind, held = "by number" if all(isinstance(key, int) for key in value) else "by name", value
        else:
            continue
        if held and kind in _HELD and all(isinstance(each, np.ndarray) for each in held.values()):
            memory[name] = kind, written_arrays({str(key): Array(each) for key, each in held.items()})
    return memory


# What rounds with noise have cost
#
# The nodes add the noise, and each keeps a budget of its own (`secagg-max-epsilon`) that no server can change. The
# server counts too, so that a run ends with a sentence and not with nodes that refuse.


@dataclass(frozen=True)
class PrivacySpent:
    """What all rounds have cost each node that took part in all of them. The fields are those of Flower's own."""

    epsilon: float
    delta: float
    num_releases: int
    """Rounds whose UPLOAD messages left, failed ones too."""
    accounting_method: str
    optimal_order: float


class _Spent(msgspec.Struct):
    num_releases: Annotated[int, msgspec.Meta(ge=0)]
    rho: Annotated[float, msgspec.Meta(ge=0)]
    xi: Annotated[float, msgspec.Meta(ge=0)]


class Releases:
    """The rounds so far, and what they cost; in the run folder too, if there is one."""

    def __init__(self, dp: DifferentialPrivacy, folder: RunFiles) -> None:
        dp.require_numbers()
        self.dp, self._folder = dp, folder
        self._count, self._cost = 0, Cost()

    def resume(self) -> None:
        """Continue with what an earlier process of the run has written down."""
        try:
            written = msgspec.json.decode(self._folder.read(_PRIVACY) or b"", type=_Spent)
        except ValueError:  # msgspec's errors are ValueErrors.
            raise InvalidInput("run_dir", f"must hold the {_PRIVACY} of the run that it resumes, undamaged") from None
        self._count, self._cost = written.num_releases, Cost(written.rho, written.xi)

    def spent(self) -> PrivacySpent:
        """Return what the rounds have cost."""
        epsilon, order = self._cost.spent(self._delta)
        return PrivacySpent(epsilon if self._count else 0.0, self.dp.delta, self._count, "rdp", float(order))

    def require(self, params: Parameters) -> None:
        """Raise Flower's `PrivacyBudgetExhausted` if one more round would cost more than is allowed."""
        epsilon = self._after(params).epsilon(self._delta)
        if epsilon > self.dp.epsilon:
            raise PrivacyBudgetExhausted(
                f"SecAgg: {self._count} rounds have spent epsilon {self.spent().epsilon:.3g} at delta "
                f"{self.dp.delta:g} ({self.dp.meaning}), and the next one would make it {epsilon:.3g}, above "
                f"{self.dp.epsilon:g}: the noise was made for {self.dp.rounds} rounds"
            )

    def count(self, params: Parameters) -> float:
        """Count a round whose messages are about to leave; return what all of them have cost."""
        self._count, self._cost = self._count + 1, self._after(params)
        kept = {**vars(self.spent()), "rho": self._cost.rho, "xi": self._cost.xi, "meaning": self.dp.meaning}
        self._folder.write(_PRIVACY, json.dumps(kept, indent=1) + "\n")
        return self.spent().epsilon

    def _after(self, params: Parameters) -> Cost:
        return self._cost + (params.mechanism.cost if params.mechanism else Cost())

    @property
    def _delta(self) -> float:
        return usable_delta(self.dp.delta, self.dp.epsilon, FAILURE_LOG2)


def require_budgets(refusals: Collection[str], colluders: int) -> None:
    """Raise if a round failed because nodes have spent their own budgets: more of them than could make it up."""
    spent = [reason for reason in refusals if reason.startswith(_SPENT)]
    if len(spent) > colluders:
        raise PrivacyBudgetExhausted(
            f"SecAgg: {len(spent)} nodes have spent their own privacy budgets: {spent[0].removeprefix(_SPENT)}"
        )
