"""What a wrapped strategy does with the step that a round gives: Flower's server rules, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
STRATEGIES = ("FedAvg", "FedProx", "FedAvgM", "FedAdam", "FedYogi")


class FedAvg:
    """Take the step. FedProx does the same at the server; it differs on the users."""

    def advance(self, model: Vector, step: Vector) -> Vector:
        """Return the next model."""
        return model + step


class FedAvgM(FedAvg):
    """Momentum at the server; Flower leaves the choice to the user, 0.5 is ours."""

    def __init__(self, dim: int, momentum: float = 0.5) -> None:
        self._velocity, self._momentum = np.zeros(dim, np.float32), np.float32(momentum)

    def advance(self, model: Vector, step: Vector) -> Vector:
        """Return the next model; what is not covered in this round still moves with its momentum."""
        self._velocity = self._momentum * self._velocity + step
        moved: Vector = model + (1 - self._momentum) * self._velocity
        return moved


class FedAdam(FedAvg):
    """Adam at the server (Reddi et al. 2021), with Flower's β1 = 0.9 and β2 = 0.99; η and τ are ours."""

    def __init__(self, dim: int, eta: float = 0.01, tau: float = 1e-3) -> None:
        self._first, self._second = np.zeros(dim, np.float32), np.zeros(dim, np.float32)
        self._eta, self._tau = np.float32(eta), np.float32(tau)

    def advance(self, model: Vector, step: Vector) -> Vector:
        """Return the next model."""
        self._first += np.float32(0.1) * (step - self._first)
        self._second = self._spread(step * step)
        root: Vector = np.sqrt(self._second, dtype=np.float32)
        moved: Vector = model + self._eta * self._first / (root + self._tau)
        return moved

    def _spread(self, square: Vector) -> Vector:
        moved: Vector = self._second + np.float32(0.01) * (square - self._second)
        return moved


class FedYogi(FedAdam):
    """Yogi: the second moment moves by the sign of its error."""

    def _spread(self, square: Vector) -> Vector:
        moved: Vector = self._second - np.float32(0.01) * square * np.sign(self._second - square)
        return moved


def make_server(strategy: str, dim: int) -> FedAvg:
    """Return the server's side of a strategy."""
    if strategy in ("FedAvg", "FedProx"):
        return FedAvg()
    made: dict[str, type[FedAvgM] | type[FedAdam]] = {"FedAvgM": FedAvgM, "FedAdam": FedAdam, "FedYogi": FedYogi}
    return made[strategy](dim)
