"""Models: a flat float32 vector in, a flat float32 vector out. Those here need NumPy alone, others `torch_models`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.lab.learning.data import Dataset

Vector = NDArray[np.float32]
Values = NDArray[np.float32]
Labels = NDArray[np.int64]
Views = list[tuple[Values, Values]]  # (weight, bias) of each layer.
STRIDE = 2  # Pixels that a convolution moves at a time.
_CACHED = 1 << 15  # Parameters that are moved at a time: gradient, velocity and step then stay in the cache.


@dataclass(frozen=True)
class LocalTraining:
    """Stochastic gradient descent on a user's own samples; the defaults are the paper's."""

    epochs: int = 5
    batch: int = 28
    lr: float = 0.01
    momentum: float = 0.5

    def __post_init__(self) -> None:
        for option, value in (("epochs", self.epochs), ("batch", self.batch)):
            require(option, value >= 1, f"must be at least 1, got {value}")
        require("lr", 0 < self.lr < math.inf, f"must be above 0, got {self.lr}")
        require("momentum", 0 <= self.momentum < 1, f"must be at least 0 and below 1, got {self.momentum}")

    def batches(self, samples: int, seed: int) -> list[NDArray[np.int64]]:
        """Return the sample indices of every step, each epoch in a new order."""
        random = np.random.Generator(np.random.PCG64(seed))
        steps: list[NDArray[np.int64]] = []
        for _ in range(self.epochs):
            order = random.permutation(samples)
            starts = list(range(0, samples, self.batch))
            if len(starts) > 1 and samples - starts[-1] == 1 and self.batch > 1:
                starts.pop()  # Batch normalisation can't use a single sample: it joins the batch before.
            steps.extend(np.split(order, starts[1:]))
        return steps


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
    def train_local(self, parameters: Vector, x: Values, y: Labels, how: LocalTraining, seed: int) -> Vector:
        """Return the parameters after training on one user's samples; `parameters` is left as it was."""

    @abstractmethod
    def evaluate(self, parameters: Vector, x: Values, y: Labels) -> Evaluation:
        """Return how well `parameters` do on the samples."""


# Networks in NumPy


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


class LayeredNetwork(Model):
    """Convolutions, then fully connected layers: ReLU after each but the last, a softmax at the end.

    Layers are (fan-in, fan-out), numbered from 1, the weight before the bias; images (sample, row, column, channel).
    """

    evaluated_at_once: int | None = None  # Samples, all of them by default.

    def __init__(self, name: str, sizes: Sequence[tuple[int, int]], shapes: Sequence[_Shape] = ()) -> None:
        self.name = name
        self._sizes, self._shapes = tuple(sizes), tuple(shapes)
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

    def train_local(self, parameters: Vector, x: Values, y: Labels, how: LocalTraining, seed: int) -> Vector:
        """Return the parameters after mini-batch descent with (PyTorch's) momentum on the cross entropy."""
        parameters = parameters.copy()
        gradient, velocity = np.zeros_like(parameters), np.zeros_like(parameters)
        views, gradients = self._views(parameters), self._views(gradient)
        samples = self._read(x)
        # Divergence shows as values that are not finite; the caller looks for them and reports them.
        with np.errstate(all="ignore"):
            for chosen in how.batches(len(y), seed):
                self._gradient(views, gradients, samples[chosen], y[chosen])
                for at in range(0, len(parameters), _CACHED):
                    part = slice(at, at + _CACHED)
                    velocity[part] *= np.float32(how.momentum)
                    velocity[part] += gradient[part]
                    parameters[part] -= np.float32(how.lr) * velocity[part]
        return parameters

    def evaluate(self, parameters: Vector, x: Values, y: Labels) -> Evaluation:
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

    def _read(self, x: Values) -> Values:
        """Return samples as the first layer reads them, patches of an image; the same in every step, so done once."""
        if not self._shapes:
            return x.reshape(len(x), -1)
        shape = self._shapes[0]
        images = x.reshape(len(x), shape.channels, shape.height, shape.width).transpose(0, 2, 3, 1)
        return _patches(np.ascontiguousarray(images), shape).reshape(len(x), -1, shape.patch)

    def _forward(self, views: Views, read: Values) -> list[Values]:
        """Return what every layer reads, then the scores."""
        samples, values = len(read), [read.reshape(-1, self._sizes[0][0])]
        for number, (weight, bias) in enumerate(views, start=1):
            found = values[-1] @ weight
            found += bias
            if number < len(views):
                np.maximum(found, 0, out=found)
            if number < len(self._shapes):
                after = self._shapes[number]
                found = _patches(found.reshape(samples, after.height, after.width, after.channels), after)
                values.append(found.reshape(-1, after.patch))
            else:
                values.append(found.reshape(samples, -1))
        return values

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: Labels) -> None:
        """Write the gradient of the mean cross entropy of one batch into `gradients`."""
        values = self._forward(views, samples)
        back: Values = np.exp(log_softmax(values[-1]))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number in reversed(range(len(views))):
            weight_gradient, bias_gradient = gradients[number]
            back = back.reshape(-1, len(bias_gradient))
            np.matmul(values[number].T, back, out=weight_gradient)
            if self._shapes:  # Faster than a sum over long columns.
                np.matmul(np.ones(len(back), np.float32), back, out=bias_gradient)
            else:
                back.sum(axis=0, out=bias_gradient)
            if number:
                back = back @ views[number][0].T
                # A value that ReLU cut off has gradient 0, in each patch that it is part of.
                back *= values[number] > 0
                if number < len(self._shapes):
                    back = _image(back, self._shapes[number], len(y))


class DenseNetwork(LayeredNetwork):
    """A multi-layer perceptron; without hidden layers it is softmax regression. Samples of any shape are flattened."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (), name: str = "mlp") -> None:
        widths = [inputs, *hidden, classes]
        require("hidden", min(widths) >= 1, f"layers need at least one unit each, got {widths}")
        super().__init__(name, list(pairwise(widths)))


class StridedNetwork(LayeredNetwork):
    """Convolutions with strides, which replace pooling, and a hidden layer: a sixth of torch's time on small images."""

    evaluated_at_once = 250

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        convolutions: Sequence[tuple[int, int]],
        hidden: int,
        name: str = "strided-cnn",
    ) -> None:
        """Make a network for images of `shape` (channels, height, width).

        A convolution (kernel, channels) makes of every patch of `kernel` × `kernel` pixels, `STRIDE` apart, one pixel.
        """
        channels, height, width = shape
        shapes: list[_Shape] = []
        sizes: list[tuple[int, int]] = []
        for kernel, made in convolutions:
            after = [(side - kernel) // STRIDE + 1 for side in (height, width)]
            require("model", min(after) >= 1, f"{name} needs larger images than {shape[1]} × {shape[2]} pixels")
            shapes.append(_Shape(kernel, height, width, channels, *after))
            sizes.append((shapes[-1].patch, made))
            (height, width), channels = after, made
        super().__init__(name, [*sizes, (height * width * channels, hidden), (hidden, classes)], shapes)


def log_softmax(scores: Values) -> Values:
    """Return the logarithms of the softmax of each row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs: Values = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


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


# By name

MODELS: dict[str, tuple[int, int, int] | None] = {
    "softmax": None,
    "mlp": None,
    "strided-cnn": None,
    "small-cnn": (1, 28, 28),
    "mnist-cnn": (1, 28, 28),
    "cifar-cnn": (3, 32, 32),
}
"""The shape of sample that each takes; None takes any (strided-cnn any image that is large enough)."""
_STRIDED = {
    "strided-cnn": (((5, 10), (5, 20)), 50),  # On MNIST as many parameters as small-cnn.
    "cifar-cnn": (((5, 21), (5, 46)), 120),  # As many as in the paper's Table 1.
}
"""Convolutions and hidden units."""
DEFAULT_HIDDEN = 128
PRESETS = {
    # 28 samples per user: small batches and a larger step, so that the demo is done in about 40 rounds.
    "digits": ("mlp", LocalTraining(epochs=5, batch=10, lr=0.1)),
    "mnist": ("small-cnn", LocalTraining()),
    "fashion-mnist": ("small-cnn", LocalTraining()),
    "cifar10": ("cifar-cnn", LocalTraining()),
}
"""What a data set is trained with unless told otherwise; data of one's own with `OWN_DATA`."""
OWN_DATA = ("mlp", LocalTraining())


def make_model(name: str, dataset: Dataset, hidden: int = DEFAULT_HIDDEN) -> Model:
    """Return the model called `name`, sized for the samples and classes of `dataset`."""
    require("model", name in MODELS, f"must be one of {', '.join(MODELS)}, got {name!r}")
    shape, classes = dataset.sample_shape, len(dataset.classes)
    fitting = [
        other
        for other, wanted in MODELS.items()
        if wanted == shape or (wanted is None and (len(shape) == 3 or other != "strided-cnn"))
    ]
    if name not in fitting:
        wanted = f"samples of shape {MODELS[name]}" if MODELS[name] else "images"
        has = f"{dataset.name} has {shape}: use one of {', '.join(fitting)}"
        raise InvalidInput("model", f"{name} takes {wanted}, {has}")
    if name in ("softmax", "mlp"):
        return DenseNetwork(math.prod(shape), classes, (hidden,) if name == "mlp" else (), name)
    if name in _STRIDED:
        channels, height, width = shape
        return StridedNetwork((channels, height, width), classes, *_STRIDED[name], name)
    if name == "mnist-cnn":
        from sparsesecagg.lab.learning.pooled import PooledNetwork

        return PooledNetwork(28, (32, 64), 512, classes, name)
    from sparsesecagg.lab.learning.torch_models import TorchModel, small_cnn

    return TorchModel(partial(small_cnn, classes), name=name)
