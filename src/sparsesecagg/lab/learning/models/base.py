"""What federated training asks of a model, and how a user trains one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class LocalTraining:
    """Stochastic gradient descent on a user's own samples; the defaults are the paper's."""

    epochs: int = 5
    batch: int = 28
    lr: float = 0.01
    momentum: float = 0.5

    def __post_init__(self) -> None:
        for option, value in (("epochs", self.epochs), ("batch", self.batch)):
            if value < 1:
                raise InvalidInput(option, f"must be at least 1, got {value}")
        if not (np.isfinite(self.lr) and self.lr > 0):
            raise InvalidInput("lr", f"must be above 0, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise InvalidInput("momentum", f"must be at least 0 and below 1, got {self.momentum}")


@dataclass(frozen=True)
class Layer:
    """A named stretch of the flat vector whose values are of similar size."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Evaluation:
    """Sums over samples, so that parts of a test set can be evaluated apart and added."""

    correct: int
    loss: float
    samples: int

    def __add__(self, other: Evaluation) -> Evaluation:
        return Evaluation(self.correct + other.correct, self.loss + other.loss, self.samples + other.samples)


class Model(ABC):
    """A model whose parameters travel as one flat float32 vector."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def dim(self) -> int:
        """The length of the vector, d in the paper."""
        return self.layers[-1].stop

    @abstractmethod
    def initial(self, seed: int) -> Vector:
        """Return the parameters that training begins with."""

    @abstractmethod
    def train_local(
        self, parameters: Vector, x: NDArray[np.float32], y: NDArray[np.int64], how: LocalTraining, seed: int
    ) -> Vector:
        """Return the parameters after training on one user's samples; `parameters` is left as it was."""

    @abstractmethod
    def evaluate(self, parameters: Vector, x: NDArray[np.float32], y: NDArray[np.int64]) -> Evaluation:
        """Return how well `parameters` do on the samples."""


def batches(samples: int, how: LocalTraining, seed: int) -> list[NDArray[np.int64]]:
    """Return the sample indices of every step of a local training, each epoch in a new order.

    A single sample left over at the end of an epoch joins the batch before it: batch normalisation can't use one.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    steps: list[NDArray[np.int64]] = []
    for _ in range(how.epochs):
        order = random.permutation(samples)
        starts = list(range(0, samples, how.batch))
        if len(starts) > 1 and samples - starts[-1] == 1 and how.batch > 1:
            starts.pop()
        steps.extend(np.split(order, starts[1:]))
    return steps
