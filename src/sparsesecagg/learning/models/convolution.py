"""Convolutional networks with strides in NumPy: no extra package needed.

Each convolution moves two pixels at a time, which replaces pooling. On small images one step of descent then takes a
sixth of the time that torch needs for a network of the same size with pooling, because it is a handful of matrix
products over patches. Arrays are (sample, row, column, channel).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput
from sparsesecagg.learning.models.base import Evaluation, Layer, LocalTraining, Model, Vector, batches
from sparsesecagg.learning.models.dense import log_softmax

STRIDE = 2
_EVALUATION_BATCH = 250
Values = NDArray[np.float32]
Views = list[tuple[Values, Values]]


@dataclass(frozen=True)
class Convolution:
    """One layer: every patch of `kernel` × `kernel` pixels, `STRIDE` apart, becomes one pixel of `channels`."""

    kernel: int
    channels: int


@dataclass(frozen=True)
class _Shape:
    """The image that a convolution reads, and the one that it makes."""

    kernel: int
    height: int
    width: int
    channels: int
    height_after: int
    width_after: int

    @property
    def patch(self) -> int:
        return self.kernel * self.kernel * self.channels


class StridedNetwork(Model):
    """Convolutions, one hidden layer, and a softmax at the end; ReLU after all but the last."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        convolutions: Sequence[Convolution],
        hidden: int,
        name: str = "strided-cnn",
    ) -> None:
        """Make a network for images of `shape` (channels, height, width)."""
        self.name = name
        channels, height, width = shape
        self._shapes: list[_Shape] = []
        sizes: list[tuple[int, int]] = []
        for one in convolutions:
            after = [(side - one.kernel) // STRIDE + 1 for side in (height, width)]
            if min(after) < 1:
                raise InvalidInput("model", f"{name} needs larger images than {shape[1]} × {shape[2]} pixels")
            self._shapes.append(_Shape(one.kernel, height, width, channels, *after))
            sizes.append((self._shapes[-1].patch, one.channels))
            (height, width), channels = after, one.channels
        self._sizes = [*sizes, (height * width * channels, hidden), (hidden, classes)]
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
        patches = self._first_patches(x)
        # Divergence shows as values that are not finite; whoever called looks for them and says so.
        with np.errstate(all="ignore"):
            for chosen in batches(len(y), how, seed):
                self._gradient(views, gradients, patches[chosen], y[chosen])
                velocity *= np.float32(how.momentum)
                velocity += gradient
                parameters -= np.float32(how.lr) * velocity
        return parameters

    def evaluate(self, parameters: Vector, x: Values, y: NDArray[np.int64]) -> Evaluation:
        """Return correct predictions and the summed cross entropy."""
        views, total = self._views(parameters), Evaluation(0, 0.0, 0)
        for at in range(0, len(y), _EVALUATION_BATCH):
            labels = y[at : at + _EVALUATION_BATCH]
            scores = self._forward(views, self._first_patches(x[at : at + _EVALUATION_BATCH]))[-1]
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

    def _first_patches(self, x: Values) -> Values:
        """Return the patches that the first convolution reads; they are the same in every step, so cut once."""
        shape = self._shapes[0]
        images = x.reshape(len(x), shape.channels, shape.height, shape.width).transpose(0, 2, 3, 1)
        return _patches(np.ascontiguousarray(images), shape).reshape(len(x), -1, shape.patch)

    def _forward(self, views: Views, patches: Values) -> list[Values]:
        """Return what every layer reads (patches, for convolutions), then the scores."""
        samples, count = len(patches), len(self._shapes)
        read = [patches.reshape(-1, self._shapes[0].patch)]
        for number, (weight, bias) in enumerate(views):
            values = read[-1] @ weight
            values += bias
            if number + 1 < len(views):
                np.maximum(values, 0, out=values)
            if number + 1 < count:
                after = self._shapes[number + 1]
                values = _patches(values.reshape(samples, after.height, after.width, after.channels), after)
                read.append(values.reshape(-1, after.patch))
            else:
                read.append(values.reshape(samples, -1))
        return read

    def _gradient(self, views: Views, gradients: Views, patches: Values, y: NDArray[np.int64]) -> None:
        """Write the gradient of the mean cross entropy of one batch into `gradients`."""
        read = self._forward(views, patches)
        back = np.exp(log_softmax(read[-1]))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number in reversed(range(len(views))):
            weight_gradient, bias_gradient = gradients[number]
            back = back.reshape(-1, len(bias_gradient))
            np.matmul(read[number].T, back, out=weight_gradient)
            np.matmul(np.ones(len(back), np.float32), back, out=bias_gradient)  # Faster than a sum over long columns.
            if number:
                back = back @ views[number][0].T
                # A value that ReLU cut off has gradient 0, in each patch that it is part of.
                back *= read[number] > 0
                if number < len(self._shapes):
                    back = _image(back, self._shapes[number], len(y))


def _patches(images: Values, shape: _Shape) -> Values:
    """Copy the patches of (sample, row, column, channel) into (sample, row, column, row, column, channel)."""
    sample, row, column, channel = images.strides
    view = np.lib.stride_tricks.as_strided(
        images,
        (len(images), shape.height_after, shape.width_after, shape.kernel, shape.kernel, shape.channels),
        (sample, STRIDE * row, STRIDE * column, row, column, channel),
        writeable=False,
    )
    return np.ascontiguousarray(view)


def _image(patches: Values, shape: _Shape, samples: int) -> Values:
    """Add patches up where they overlap: the transpose of `_patches`.

    Patches lie `STRIDE` apart, so image and patches are cut into tiles of that size, and tiles fall on tiles: far fewer
    additions of arrays than pixel by pixel.
    """
    kernel, channels = shape.kernel, shape.channels
    parts = patches.reshape(samples, shape.height_after, shape.width_after, kernel, kernel * channels)
    parts = parts.transpose(0, 1, 3, 2, 4)
    rows, columns = (-(-side // STRIDE) for side in (shape.height, shape.width))
    image = np.zeros((samples, rows, STRIDE, columns, STRIDE * channels), np.float32)
    for down in range(0, kernel, STRIDE):
        for right in range(0, kernel, STRIDE):
            high, wide = min(STRIDE, kernel - down), min(STRIDE, kernel - right) * channels
            row, column = down // STRIDE, right // STRIDE
            image[:, row : row + shape.height_after, :high, column : column + shape.width_after, :wide] += parts[
                :, :, down : down + high, :, right * channels : right * channels + wide
            ]
    whole = image.reshape(samples, rows * STRIDE, columns * STRIDE, channels)
    return whole[:, : shape.height, : shape.width]
