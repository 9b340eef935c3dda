"""From the opened mean of a round to the next model: what the server carries from round to round.

Ranges say how updates are scaled (`ranges.py`), the gain how far covered coordinates move (`downlink/gain.py`), the
downlink how the new model travels. All three follow from means that the server sees anyway, but for the first ranges:
nodes vote for those under the masks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from sparsesecagg.downlink.gain import Gain
from sparsesecagg.flower.arrays import Template
from sparsesecagg.flower.context import Terms
from sparsesecagg.flower.downlink import Downlink
from sparsesecagg.flower.packing import Packing
from sparsesecagg.protocol import Parameters, Result, RoundOptions
from sparsesecagg.ranges import Ranges, counted

_LOG = logging.getLogger("flwr")
_HEADROOM, _WHOLE_HEADROOM = 2.0, 16.0
"""The least, of sliced arrays, and of those that have several digits and thus room to spare."""
_LIGHT = 16


class Movement:
    """Ranges, gain and downlink of a run."""

    def __init__(
        self,
        options: RoundOptions,
        metrics: Mapping[str, float],
        gain: float | None,
        downlink: Downlink,
        noise: bool = False,
    ) -> None:
        """`gain`: None adapts. A clip that `options` name holds for all arrays and rounds."""
        self.metrics, self.downlink = metrics, downlink
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
        headroom = [_WHOLE_HEADROOM if s.name in whole else _HEADROOM for s in packing.template.travelling]
        found = np.array(counted(packing.shares(_mean(result), result.updated)))
        self._ranges = Ranges(found * np.array(headroom) / _HEADROOM, headroom, measured=True)
        self._sizes = packing.template.sizes
        _LOG.info("SecAgg: nodes found the ranges of %d arrays, from %.3g to %.3g", len(found), min(found), max(found))

    def move(
        self, packing: Packing, terms: Terms, result: Result, model: ArrayRecord
    ) -> tuple[ArrayRecord, dict[str, float], float]:
        """Return the model moved by the mean of a round, the means of the metrics, and the gain."""
        opened = packing.open(_mean(result), result.updated, terms.scales)
        if self._ranges is not None:
            sent = packing.params.shape.length * max(1, len(result.survivors))
            self._ranges.follow(*opened.largest(), clipped=(result.clipped or 0) / sent)
        if result.clipped:
            _LOG.info("SecAgg: %d of the values that nodes sent were beyond their ranges and clipped", result.clipped)
        if not self._told_of_weights:
            self._told_of_weights = True
            _warn_of_light_weights(result)
        gain = self._gain_for(result.params)
        moved = packing.template.add(model, opened.update(gain.step(opened.sliced, opened.covered)))
        metrics = dict(zip(terms.metrics, opened.metrics, strict=True)) if opened.opened else {}
        return moved, {name: value * terms.metrics[name] for name, value in metrics.items()}, gain.value

    def move_by_group(
        self, packing: Packing, terms: Terms, result: Result, model: ArrayRecord
    ) -> tuple[list[tuple[ArrayRecord, int]], dict[str, float], float]:
        """Return the model as each group's mean moves it, with the group's users, the metrics, and the gain.

        Ranges, gain and metrics follow the median of the groups, which a few bad ones can't move far.
        """
        opened = [packing.open(mean, result.updated, terms.scales) for _, mean in result.combined.groups]
        middle = replace(
            opened[0],
            sliced=np.median([each.sliced for each in opened], axis=0).astype(np.float32),
            whole={name: np.median([each.whole[name] for each in opened], axis=0) for name in opened[0].whole},
            metrics=np.median([each.metrics for each in opened], axis=0).tolist(),
        )
        if self._ranges is not None:
            self._ranges.follow(*middle.largest(), clipped=0.0)
        gain = self._gain_for(result.params)
        gain.step(middle.sliced, middle.covered)
        moved = []
        for (users, _), each in zip(result.combined.groups, opened, strict=True):
            step = np.where(each.covered, np.float32(gain.value) * each.sliced, np.float32(0))
            moved.append((packing.template.add(model, each.update(step)), users))
        metrics = dict(zip(terms.metrics, middle.metrics, strict=True)) if middle.opened else {}
        return moved, {name: value * terms.metrics[name] for name, value in metrics.items()}, gain.value

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
