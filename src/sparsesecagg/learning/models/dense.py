"""Softmax regression and multi-layer perceptrons in NumPy: no extra package needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.learning.models.base import Evaluation, Layer, LocalTraining, Model, Vector, batches


class DenseNetwork(Model):
    """Fully connected layers with ReLU between them and a softmax at the end.

    Without hidden layers it is softmax regression. Samples of any shape are flattened.
    """

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (), name: str = "mlp") -> None:
        self.name = name
        self._widths = [inputs, *hidden, classes]
        if min(self._widths) < 1:
            raise InvalidInput("hidden", f"layers need at least one unit each, got {self._widths}")
        layers, at = [], 0
        for number, (fan_in, fan_out) in enumerate(zip(self._widths, self._widths[1:], strict=False), start=1):
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

    def train_local(
        self, parameters: Vector, x: NDArray[np.float32], y: NDArray[np.int64], how: LocalTraining, seed: int
    ) -> Vector:
        """Return the parameters after mini-batch descent with (PyTorch's) momentum on the cross entropy."""
        parameters = parameters.copy()
        gradient, velocity = np.zeros_like(parameters), np.zeros_like(parameters)
        views, gradients = self._views(parameters), self._views(gradient)
        samples = x.reshape(len(x), -1)
        # Divergence shows as values that are not finite; whoever called looks for them and says so.
        with np.errstate(all="ignore"):
            for chosen in batches(len(y), how, seed):
                self._gradient(views, gradients, samples[chosen], y[chosen])
                velocity *= np.float32(how.momentum)
                velocity += gradient
                parameters -= np.float32(how.lr) * velocity
        return parameters

    def evaluate(self, parameters: Vector, x: NDArray[np.float32], y: NDArray[np.int64]) -> Evaluation:
        """Return correct predictions and the summed cross entropy."""
        scores = self._forward(self._views(parameters), x.reshape(len(x), -1))[-1]
        log_probability = log_softmax(scores)[np.arange(len(y)), y]
        return Evaluation(int((scores.argmax(axis=1) == y).sum()), -float(log_probability.sum()), len(y))

    def _views(self, vector: Vector) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return (weight, bias) of each layer as views into the flat vector."""
        pairs = zip(self.layers[::2], self.layers[1::2], self._widths, self._widths[1:], strict=False)
        return [
            (vector[weight.start : weight.stop].reshape(fan_in, fan_out), vector[bias.start : bias.stop])
            for weight, bias, fan_in, fan_out in pairs
        ]

    def _forward(
        self, views: list[tuple[NDArray[np.float32], NDArray[np.float32]]], x: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """Return the input of every layer, then the scores."""
        values = [x]
        for number, (weight, bias) in enumerate(views, start=1):
            scores = values[-1] @ weight + bias
            values.append(scores if number == len(views) else np.maximum(scores, 0))
        return values

    def _gradient(
        self,
        views: list[tuple[NDArray[np.float32], NDArray[np.float32]]],
        gradients: list[tuple[NDArray[np.float32], NDArray[np.float32]]],
        x: NDArray[np.float32],
        y: NDArray[np.int64],
    ) -> None:
        """Write the gradient of the mean cross entropy of one batch into `gradients`."""
        values = self._forward(views, x)
        back = np.exp(log_softmax(values[-1]))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number in reversed(range(len(views))):
            weight_gradient, bias_gradient = gradients[number]
            np.matmul(values[number].T, back, out=weight_gradient)
            back.sum(axis=0, out=bias_gradient)
            if number:
                back = (back @ views[number][0].T) * (values[number] > 0)


def log_softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logarithms of the softmax of each row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs
