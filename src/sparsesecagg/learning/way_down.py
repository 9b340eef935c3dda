"""How users get the model: whole in every round, or as steps from the model that they hold.

With steps the rounded model is the model: server and users go on from the same bits, and rounding errors are kept for
the next step (`sparsesecagg.downlink`). Steps have one scale per block of 512 coordinates. Every layer begins with a
block of its own here: layers differ in size by orders of magnitude (weights, and the variances of batch normalisation),
and a common scale would round the small ones away. A user that missed rounds gets the steps it lacks or the whole
model, whichever is smaller. Bytes are those of the messages that a server would send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink import BLOCK, StepLog
from sparsesecagg.learning.models.base import Layer, Vector

DOWNLINKS = ("steps", "model")
_NOTHING = -1
"""The number of the model of a user that has none."""


class WayDown:
    """Whole models; keeps nothing, since every user gets everything in every round."""

    def __init__(self, model: Vector) -> None:
        self.model = model

    def deliver(self, users: Sequence[int]) -> float:
        """Bring the model to these users; return the mean bytes that each of them receives for it."""
        return float(self.model.nbytes) if users else 0.0

    def advance(self, target: Vector) -> None:
        """Go on to the next model, which is `target` or close to it."""
        self.model = target

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next round depends on, beside the model."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go back to a state that `state` gave."""


class StepsDown(WayDown):
    """Steps of a few bits per coordinate."""

    def __init__(self, model: Vector, layers: Sequence[Layer], bits: int, clients: int) -> None:
        blocks = [-(-(layer.stop - layer.start) // BLOCK) for layer in layers]
        starts = BLOCK * np.cumsum([0, *blocks])
        self._size = int(starts[-1])
        self._places = np.concatenate(
            [start + np.arange(layer.stop - layer.start) for start, layer in zip(starts[:-1], layers, strict=True)]
        )
        """Where each coordinate of the model lies in the vector that steps are made of."""
        self._log = StepLog(self._spread(model), bits)
        self._held = np.full(clients, _NOTHING, np.int64)
        super().__init__(self._log.model[self._places])

    def _spread(self, model: Vector) -> Vector:
        spread = np.zeros(self._size, np.float32)
        spread[self._places] = model
        return spread

    def deliver(self, users: Sequence[int]) -> float:
        """Bring each of these users from the model that it holds to the current one."""
        behind = Counter(self._held[list(users)].tolist())
        total = sum(
            count * len(self._log.for_node(None if held == _NOTHING else held)) for held, count in behind.items()
        )
        self._held[list(users)] = self._log.sequence
        return total / max(1, len(users))

    def advance(self, target: Vector) -> None:
        """Round the step towards `target`; the model that this gives is the next one."""
        self.model = self._log.advance(self._spread(target))[self._places]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the log, its kept rounding error included, and which model each user holds."""
        return {"log": np.frombuffer(self._log.save(), np.uint8), "held": self._held}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go back to a state that `state` gave."""
        self._log, self._held = StepLog.restore(state["log"].tobytes()), np.array(state["held"], np.int64)
        self.model = self._log.model[self._places]


def make_way_down(kind: str, bits: int, model: Vector, layers: Sequence[Layer], clients: int) -> WayDown:
    """Return the way down that the options name; it begins with `model`."""
    return StepsDown(model, layers, bits, clients) if kind == "steps" else WayDown(model)
