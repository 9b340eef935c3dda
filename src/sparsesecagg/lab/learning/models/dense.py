"""Softmax regression and multi-layer perceptrons in NumPy: no extra package needed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.models.layered import LayeredNetwork, Values, Views


class DenseNetwork(LayeredNetwork):
    """Fully connected layers with ReLU between them and a softmax at the end.

    Without hidden layers it is softmax regression. Samples of any shape are flattened.
    """

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (), name: str = "mlp") -> None:
        widths = [inputs, *hidden, classes]
        if min(widths) < 1:
            raise InvalidInput("hidden", f"layers need at least one unit each, got {widths}")
        super().__init__(name, list(pairwise(widths)))

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
        back = self._error(values[-1], y)
        for number in reversed(range(len(views))):
            weight_gradient, bias_gradient = gradients[number]
            np.matmul(values[number].T, back, out=weight_gradient)
            back.sum(axis=0, out=bias_gradient)
            if number:
                back = (back @ views[number][0].T) * (values[number] > 0)
