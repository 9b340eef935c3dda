"""Softmax regression and multi-layer perceptrons in NumPy: no extra package needed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.models.base import Evaluation, Vector
from sparsesecagg.lab.learning.models.layered import LayeredNetwork, Values, Views, log_softmax


class DenseNetwork(LayeredNetwork):
    """Fully connected layers with ReLU between them and a softmax at the end.

    Without hidden layers it is softmax regression. Samples of any shape are flattened.
    """

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (), name: str = "mlp") -> None:
        widths = [inputs, *hidden, classes]
        if min(widths) < 1:
            raise InvalidInput("hidden", f"layers need at least one unit each, got {widths}")
        super().__init__(name, list(pairwise(widths)))

    def evaluate(self, parameters: Vector, x: Values, y: NDArray[np.int64]) -> Evaluation:
        """Return correct predictions and the summed cross entropy."""
        scores = self._forward(self._views(parameters), self._read(x))[-1]
        log_probability = log_softmax(scores)[np.arange(len(y)), y]
        return Evaluation(int((scores.argmax(axis=1) == y).sum()), -float(log_probability.sum()), len(y))

    def _read(self, x: Values) -> Values:
        return x.reshape(len(x), -1)

    def _forward(self, views: Views, x: Values) -> list[Values]:
        """Return the input of every layer, then the scores."""
        values = [x]
        for number, (weight, bias) in enumerate(views, start=1):
            scores = values[-1] @ weight + bias
            values.append(scores if number == len(views) else np.maximum(scores, 0))
        return values

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: NDArray[np.int64]) -> None:
        values = self._forward(views, samples)
        back = np.exp(log_softmax(values[-1]))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number in reversed(range(len(views))):
            weight_gradient, bias_gradient = gradients[number]
            np.matmul(values[number].T, back, out=weight_gradient)
            back.sum(axis=0, out=bias_gradient)
            if number:
                back = (back @ views[number][0].T) * (values[number] > 0)
