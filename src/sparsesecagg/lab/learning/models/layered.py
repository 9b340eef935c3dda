"""What all networks in NumPy have in common: weight matrices and biases in one flat vector, and how it descends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.models.base import Evaluation, Layer, LocalTraining, Model, Vector, batches

Values = NDArray[np.float32]
Views = list[tuple[Values, Values]]
"""(weight, bias) of each layer."""


class LayeredNetwork(Model):
    """Layers of (fan-in, fan-out) each, numbered from 1, the weight before the bias."""

    evaluated_at_once: int | None = None
    """Samples, all of them by default."""

    def __init__(self, name: str, sizes: Sequence[tuple[int, int]]) -> None:
        self.name = name
        self._sizes = tuple(sizes)
        layers, at = [], 0
        for number, (fan_in, fan_out) in enumerate(self._sizes, start=1):
            for part, size in (("weight", fan_in * fan_out), ("bias", fan_out)):
                layers.append(Layer(f"{number}.{part}", at, at + size))
                at += size
        self.layers = tuple(layers)

    def initial(self, seed: int) -> Vector:
        """Draw weights uniformly in ±√(6 / fan-in), which suits ReLU; biases begin at 0."""
        random = np.random.Generator(np.random.PCG64(seed))
        parameters = np.zeros(self.dim, dtype=np.float32)
        for weight, _ in self._views(parameters):
            bound = np.sqrt(6 / len(weight))
            weight[:] = random.uniform(-bound, bound, weight.shape)
        return parameters

    def train_local(self, parameters: Vector, x: Values, y: NDArray[np.int64], how: LocalTraining, seed: int) -> Vector:
        """Return the parameters after mini-batch descent with (PyTorch's) momentum on the cross entropy."""
        parameters = parameters.copy()
        gradient, velocity = np.zeros_like(parameters), np.zeros_like(parameters)
        views, gradients = self._views(parameters), self._views(gradient)
        samples = self._read(x)
        # Divergence shows as values that are not finite; the caller looks for them and reports them.
        with np.errstate(all="ignore"):
            for chosen in batches(len(y), how, seed):
                self._gradient(views, gradients, samples[chosen], y[chosen])
                velocity *= np.float32(how.momentum)
                velocity += gradient
                parameters -= np.float32(how.lr) * velocity
        return parameters

    def evaluate(self, parameters: Vector, x: Values, y: NDArray[np.int64]) -> Evaluation:
        """Return correct predictions and the summed cross entropy."""
        views, total, size = self._views(parameters), Evaluation(0, 0.0, 0), self.evaluated_at_once or len(y)
        for at in range(0, len(y), max(1, size)):
            labels = y[at : at + size]
            scores = self._forward(views, self._read(x[at : at + size]))[-1]
            loss = -float(log_softmax(scores)[np.arange(len(labels)), labels].sum())
            total += Evaluation(int((scores.argmax(axis=1) == labels).sum()), loss, len(labels))
        return total

    def _views(self, vector: Vector) -> Views:
        """Return (weight, bias) of each layer as views into the flat vector."""
        pairs = zip(self.layers[::2], self.layers[1::2], self._sizes, strict=True)
        return [
            (vector[weight.start : weight.stop].reshape(size), vector[bias.start : bias.stop])
            for weight, bias, size in pairs
        ]

    @abstractmethod
    def _read(self, x: Values) -> Values:
        """Return samples as the first layer reads them; it is the same in every step, so done once."""

    @abstractmethod
    def _forward(self, views: Views, samples: Values) -> list[Values]:
        """Return what every layer reads, then the scores."""

    @staticmethod
    def _error(scores: Values, y: NDArray[np.int64]) -> Values:
        """Return the gradient of the mean cross entropy of one batch by its scores."""
        back: Values = np.exp(log_softmax(scores))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        return back

    @abstractmethod
    def _gradient(self, views: Views, gradients: Views, samples: Values, y: NDArray[np.int64]) -> None:
        """Write the gradient of the mean cross entropy of one batch into `gradients`."""


def log_softmax(scores: Values) -> Values:
    """Return the logarithms of the softmax of each row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs: Values = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs
