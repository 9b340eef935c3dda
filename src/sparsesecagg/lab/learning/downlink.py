"""How users get the model: whole in every round, or as steps from the model that they hold.

With steps the rounded model is the model: server and users continue from the same bits, and rounding errors are kept
for the next step (`sparsesecagg.downlink`). Every layer begins with a new block. A user that missed rounds gets the
steps it lacks or the whole model, whichever is smaller. Bytes are those of the messages that a server would send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.downlink import Spread, StepLog
from sparsesecagg.lab.learning.models import Layer, Vector

DOWNLINKS = ("steps", "model")
_NOTHING = -1  # The number of the model of a user that has none.


class WholeModels:
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


class ModelSteps(WholeModels):
    """Steps of a few bits per coordinate. `turns` says which coordinates change together."""

    def __init__(
        self, model: Vector, layers: Sequence[Layer], bits: int, clients: int, turns: NDArray[Any] | None = None
    ) -> None:
        self._cuts = [layer.stop for layer in layers[:-1]]
        self._spread = Spread([layer.stop - layer.start for layer in layers], turns)
        self._log = StepLog(self._join(model), bits)
        self._held = np.full(clients, _NOTHING, np.int64)
        super().__init__(self._rounded())

    def _join(self, model: Vector) -> Vector:
        return self._spread.join(np.split(model, self._cuts))

    def _rounded(self) -> Vector:
        return np.concatenate(self._spread.split(self._log.model))

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
        self._log.advance(self._join(target))
        self.model = self._rounded()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the log, its kept rounding error included, and which model each user holds."""
        return {"log": np.frombuffer(self._log.save(), np.uint8), "held": self._held}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._log, self._held = StepLog.restore(state["log"].tobytes()), np.array(state["held"], np.int64)
        self.model = self._rounded()
