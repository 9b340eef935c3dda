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

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from sparsesecagg.downlink.gain import Gain
from sparsesecagg.errors import InvalidInput
from sparsesecagg.files import write_atomically
from sparsesecagg.flower.arrays import SavedArrays, Template, saved_arrays, written_arrays
from sparsesecagg.flower.context import Terms
from sparsesecagg.flower.downlink import Downlink
from sparsesecagg.flower.packing import Packing
from sparsesecagg.protocol import Parameters, Result, RoundOptions
from sparsesecagg.ranges import Ranges, counted

_LOG = logging.getLogger("flwr")
_HEADROOM, _WHOLE_HEADROOM = 2.0, 16.0
"""The least, of sliced arrays, and of those that have several digits and thus room to spare."""
_STEPS, _MOST_SPARE = 64, 32.0
"""Long words have more steps than rounding needs: beyond this many they widen ranges, up to so many times."""
_LIGHT = 16
_VERSION = 3
_MODEL, _RUN = "model.state", "run.state"


class Movement:
    """Ranges, gain and downlink of a run."""

    def __init__(
        self,
        options: RoundOptions,
        metrics: Mapping[str, float],
        gain: float | None,
        noise: bool = False,
    ) -> None:
        """`gain`: None adapts. A clip that `options` name holds for all arrays and rounds."""
        self.metrics, self.downlink = metrics, Downlink()
        # With noise the update is clipped by its norm, in its own units.
        self._fixed = 1.0 if noise else options.clip
        self._told_gain, self._noise = gain, noise
        self._gain: Gain | None = None
        self._covered = 0.0
        """The part of the model that the gain is for."""
        self._told_of_weights = False
        self._ranges: Ranges | None = None
        self._sizes: list[int] = []
        """Of the arrays that the ranges are for."""

    @property
    def finds_ranges(self) -> bool:
        """Whether nodes vote for the first ranges."""
        return self._fixed is None

    def terms(self, template: Template) -> Terms:
        """Return the terms of the next round; those without scales say that ranges must be found first."""
        if self._fixed is not None:
            return Terms((self._fixed,) * len(template.travelling), self.metrics)
        if self._ranges is None or self._sizes != template.sizes:
            return Terms((), self.metrics)
        return Terms(tuple(self._ranges.values.tolist()), self.metrics)

    def take_votes(self, packing: Packing, result: Result) -> None:
        """Begin with the ranges that nodes have voted for."""
        whole = {slot.name for slot, _ in packing.whole}
        spare = min(_MOST_SPARE, max(1.0, result.params.quantizer.limit / _STEPS))
        least = np.array([_WHOLE_HEADROOM if s.name in whole else _HEADROOM for s in packing.template.travelling])
        found = np.array(counted(packing.shares(_mean(result), result.updated)))
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
        if combined.groups and combined.robust is None:
            clipped = 0  # Nor can they widen the ranges by a count.
            weights = [users for users, _ in combined.groups]
            opened = [packing.open(mean, result.updated, terms.scales) for _, mean in combined.groups]
            middle = replace(
                opened[0],
                sliced=np.median([each.sliced for each in opened], axis=0).astype(np.float32),
                whole={name: np.median([each.whole[name] for each in opened], axis=0) for name in opened[0].whole},
                metrics=np.median([each.metrics for each in opened], axis=0).tolist(),
            )
        else:
            weights = [len(result.survivors) if combined.weights is None else int(combined.weights.max())]
            opened = [packing.open(_mean(result), result.updated, terms.scales)]
            middle = opened[0]
        if self._ranges is not None:
            sent = packing.params.shape.length * max(1, len(result.survivors))
            self._ranges.follow(*middle.largest(), clipped=clipped / sent)
        if result.clipped:
            _LOG.info("SecAgg: %d of the values that nodes sent were beyond their ranges and clipped", result.clipped)
        if not self._told_of_weights:
            self._told_of_weights = True
            _warn_of_light_weights(result)
        gain = self._gain_for(result.params)
        steps = [gain.step(middle.sliced, middle.covered)]
        if middle is not opened[0]:
            steps = [np.where(each.covered, np.float32(gain.value) * each.sliced, np.float32(0)) for each in opened]
        moved = [packing.template.add(model, each.update(step)) for each, step in zip(opened, steps, strict=True)]
        means = dict(zip(terms.metrics, middle.metrics, strict=True)) if middle.opened else {}
        metrics = {name: value * terms.metrics[name] for name, value in means.items()}
        return list(zip(moved, weights, strict=True)), metrics, gain.value

    def _gain_for(self, params: Parameters) -> Gain:
        """Return the gain of the run; another coverage, as after a new epoch among fewer nodes, begins anew."""
        coverage = params.shape.coverage
        if self._gain is None or self._covered != coverage:
            # Means with noise do not tell whether steps are too long, so what is unbiased has to do.
            fixed = 1 / coverage if self._noise and self._told_gain is None else self._told_gain
            self._gain, self._covered = Gain(coverage, fixed), coverage
        return self._gain

    def save(self) -> bytes:
        """Return what the next rounds depend on, beside the model."""
        ranges = self._ranges.save() if self._ranges else b""
        gain = self._gain.save() if self._gain else b""
        return msgspec.msgpack.encode((ranges, self._sizes, gain, self.downlink.save()))

    def restore(self, data: bytes, model: ArrayRecord, params: Parameters | None) -> None:
        """Go back to what `save` returned, with the model of that time; `params`: of the run that goes on, if any."""
        ranges, sizes, gain, downlink = msgspec.msgpack.decode(data, type=tuple[bytes, list[int], bytes, bytes])
        if ranges and self._fixed is None:
            self._ranges, self._sizes = Ranges.restore(ranges), sizes
        if gain and params is not None:
            self._gain_for(params).restore(gain)
        self.downlink.restore(downlink, model)


def _mean(result: Result) -> NDArray[np.floating]:
    """Return the mean in float64: digits of one number must not be rounded by themselves."""
    combined = result.combined
    if combined.robust is not None:
        return combined.robust
    if combined.groups:  # Votes for ranges, of which a bad group must not decide.
        middle: NDArray[np.float64] = np.median([mean for _, mean in combined.groups], axis=0)
        return middle
    divisor = combined.contributors if combined.weights is None else combined.weights
    mean: NDArray[np.float64] = result.sum() / np.maximum(divisor, 1)
    return mean


def _warn_of_light_weights(result: Result) -> None:
    weights, limit = result.combined.weights, result.params.max_weight
    if weights is None or not limit:
        return
    mean = float(weights.max()) / max(1, int(result.combined.contributors.max()))
    if mean * _LIGHT < limit:
        _LOG.warning("SecAgg: weights are %.0f on average, far below max_weight=%d: a lower one is finer", mean, limit)


# In a run folder


class ModelState(msgspec.Struct, frozen=True, array_like=True):
    """The model between two rounds."""

    version: int
    round_number: int
    """Flower's number of the last round that is done."""
    arrays: SavedArrays
    movement: bytes
    memory: dict[str, tuple[bool, SavedArrays]]
    """Of the wrapped strategy, by attribute: whether it is a list, and its arrays."""

    @property
    def record(self) -> ArrayRecord:
        """The model."""
        return ArrayRecord(saved_arrays(self.arrays))

    def remind(self, strategy: Strategy) -> None:
        """Give a strategy back what it remembered."""
        for name, (is_list, arrays) in self.memory.items():
            found = {key: each.numpy() for key, each in saved_arrays(arrays).items()}
            setattr(strategy, name, list(found.values()) if is_list else found)


def _memory(strategy: Strategy) -> dict[str, tuple[bool, SavedArrays]]:
    """Return what a strategy keeps from round to round: its attributes that hold arrays, such as moments."""
    memory: dict[str, tuple[bool, SavedArrays]] = {}
    for name, value in vars(strategy).items():
        named: Mapping[Any, Any] = value if isinstance(value, dict) else {}
        if isinstance(value, list):
            named = dict(enumerate(value))
        if named and all(isinstance(each, np.ndarray) for each in named.values()):
            arrays = written_arrays({str(key): Array(each) for key, each in named.items()})
            memory[name] = isinstance(value, list), arrays
    return memory


class SavedRun:
    """A run in a folder; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def write_model(self, number: int, model: ArrayRecord, movement: Movement, strategy: Strategy) -> None:
        """Write down what the rounds up to this one have led to."""
        if self.folder is not None:
            state = ModelState(_VERSION, number, written_arrays(model), movement.save(), _memory(strategy))
            self._write(_MODEL, msgspec.msgpack.encode(state))

    def write_run(self, data: bytes) -> None:
        """Write the protocol's run down."""
        self._write(_RUN, data)

    def model(self) -> ModelState | None:
        """Return the model of a run that is not over; None if there is none. A damaged file is an error."""
        if self.folder is None:
            return None
        try:
            state = msgspec.msgpack.decode((self.folder / _MODEL).read_bytes(), type=ModelState)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InvalidInput("run_dir", f"holds a run that can't be read: {problem.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            state = None
        if state is None or state.version != _VERSION:
            raise InvalidInput("run_dir", f"holds a damaged {_MODEL}: remove it to begin anew, or name another folder")
        return state

    def run(self) -> bytes | None:
        """Return the protocol's run; None if there is none."""
        if self.folder is None:
            return None
        try:
            return (self.folder / _RUN).read_bytes()
        except OSError:
            return None

    def remove(self) -> None:
        """Forget the run: it is over."""
        if self.folder is not None:
            for name in (_MODEL, _RUN):
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file as a whole or not at all, on disk when this returns."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, data, private=True)
