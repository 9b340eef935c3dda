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
from sparsesecagg.lab.learning.models.layered import LayeredNetwork, Values, Views

STRIDE = 2


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


class StridedNetwork(LayeredNetwork):
    """Convolutions, one hidden layer, and a softmax at the end; ReLU after all but the last."""

    evaluated_at_once = 250

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        convolutions: Sequence[Convolution],
        hidden: int,
        name: str = "strided-cnn",
    ) -> None:
        """Make a network for images of `shape` (channels, height, width)."""
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
        super().__init__(name, [*sizes, (height * width * channels, hidden), (hidden, classes)])

    def _read(self, x: Values) -> Values:
        """Return the patches that the first convolution reads."""
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

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: NDArray[np.int64]) -> None:
        read = self._forward(views, samples)
        back = self._error(read[-1], y)
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
    """Add patches up where they overlap: the transpose of `_patches`."""
    kernel, channels = shape.kernel, shape.channels
    parts = patches.reshape(samples, shape.height_after, shape.width_after, kernel, kernel * channels)
    image = np.zeros((samples, shape.height, shape.width * channels), np.float32)
    for down in range(shape.height_after):
        for right in range(shape.width_after):
            row, column = STRIDE * down, STRIDE * right * channels
            image[:, row : row + kernel, column : column + kernel * channels] += parts[:, down, right]
    return image.reshape(samples, shape.height, shape.width, channels)
