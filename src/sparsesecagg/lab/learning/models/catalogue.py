"""The models we know by name, and what each data set uses unless told otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.dataset import Dataset
from sparsesecagg.lab.learning.models.base import LocalTraining, Model
from sparsesecagg.lab.learning.models.convolution import Convolution, StridedNetwork
from sparsesecagg.lab.learning.models.dense import DenseNetwork
from sparsesecagg.lab.learning.models.torch_model import TorchModel, require_torch

# Name → the shape of sample it takes; None takes any (strided-cnn any image that is large enough).
MODELS: dict[str, tuple[int, int, int] | None] = {
    "softmax": None,
    "mlp": None,
    "strided-cnn": None,
    "small-cnn": (1, 28, 28),
    "mnist-cnn": (1, 28, 28),
    "cifar-cnn": (3, 32, 32),
}
DEFAULT_HIDDEN = 128


@dataclass(frozen=True)
class Preset:
    """What a data set is trained with unless told otherwise."""

    model: str
    how: LocalTraining


PRESETS = {
    # 28 samples per user: small batches and a larger step, so that the demo is done in about 40 rounds.
    "digits": Preset("mlp", LocalTraining(epochs=5, batch=10, lr=0.1)),
    "mnist": Preset("small-cnn", LocalTraining()),
    "fashion-mnist": Preset("small-cnn", LocalTraining()),
    "cifar10": Preset("cifar-cnn", LocalTraining()),
}
OWN_DATA = Preset("mlp", LocalTraining())


def make_model(name: str, dataset: Dataset, hidden: int = DEFAULT_HIDDEN) -> Model:
    """Return the model called `name`, sized for the samples and classes of `dataset`."""
    if name not in MODELS:
        raise InvalidInput("model", f"must be one of {', '.join(MODELS)}, got {name!r}")
    wanted, classes = MODELS[name], len(dataset.classes)
    if name == "strided-cnn":  # On MNIST as many parameters as small-cnn.
        if len(dataset.sample_shape) != 3:
            raise InvalidInput("model", f"{name} takes images, {dataset.name} has samples of {dataset.sample_shape}")
        channels, height, width = dataset.sample_shape
        layers = Convolution(5, 10), Convolution(5, 20)
        return StridedNetwork((channels, height, width), classes, layers, 50, name)
    if wanted is None:
        inputs = math.prod(dataset.sample_shape)
        return DenseNetwork(inputs, classes, (hidden,) if name == "mlp" else (), name)
    if dataset.sample_shape != wanted:
        image = len(dataset.sample_shape) == 3
        fitting = [
            other
            for other, shape in MODELS.items()
            if shape in (None, dataset.sample_shape) and (image or other != "strided-cnn")
        ]
        raise InvalidInput(
            "model",
            f"{name} takes samples of shape {wanted}, {dataset.name} has {dataset.sample_shape}: "
            f"use one of {', '.join(fitting)}",
        )
    require_torch(f"the model {name}")
    from sparsesecagg.lab.learning.models import torch_zoo

    make = {"small-cnn": torch_zoo.small_cnn, "mnist-cnn": torch_zoo.mnist_cnn, "cifar-cnn": torch_zoo.cifar_cnn}[name]
    return TorchModel(partial(make, classes), name=name)
