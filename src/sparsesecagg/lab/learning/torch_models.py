"""Any `torch.nn.Module` as a flat vector, and a small convolutional network.

What travels: the parameters that are trained (`requires_grad`), then the floating-point buffers, such as the running
statistics of batch normalisation. A noisy average may bring a running variance near zero or below, where a unit blows
up: each is held at `SMALLEST_SHARE` of its layer's mean variance at least.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsesecagg.errors import InvalidInput, MissingExtra, require
from sparsesecagg.lab.learning.models import Evaluation, Labels, Layer, LocalTraining, Model, Values, Vector

if TYPE_CHECKING:
    import torch

SMALLEST_VARIANCE = 1e-5
SMALLEST_SHARE = 0.05
_EVALUATION_BATCH = 500


def require_torch(purpose: str) -> Any:
    """Return the torch module, or raise `MissingExtra`."""
    try:
        import torch
    except ImportError as problem:
        raise MissingExtra("torch", purpose) from problem
    return torch


class TorchModel(Model):
    """A model made of a `torch.nn.Module` whose output are class scores (or whatever `loss` takes).

    `module` is a module, whose present weights are the first global model, or a function that makes one, called once
    with torch seeded from the run's seed.
    """

    def __init__(
        self,
        module: torch.nn.Module | Callable[[], torch.nn.Module],
        *,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        name: str = "own torch model",
    ) -> None:
        self.name = name
        self._loss = loss or self._torch.nn.functional.cross_entropy
        given: Any = module
        made = isinstance(given, self._torch.nn.Module)
        self._factory: Callable[[], torch.nn.Module] | None = None if made else given
        try:
            self._module: torch.nn.Module = copy.deepcopy(given) if made else given()
        except TypeError as problem:
            raise InvalidInput("model", f"must be made by a function without arguments: {problem}") from None
        got = f"must be a torch.nn.Module or a function that makes one, got {type(self._module).__name__}"
        require("model", isinstance(self._module, self._torch.nn.Module), got)
        self._set_up()

    @property
    def _torch(self) -> Any:
        """The torch package: not an attribute, because packages can't be pickled and worker processes need to be."""
        return require_torch("a torch model")

    def initial(self, seed: int) -> Vector:
        """Return the module's own weights, or those of a newly made module."""
        if self._factory is not None:
            self._torch.manual_seed(seed)
            self._module = self._factory()
            self._set_up()
        return self._read()

    def train_local(self, parameters: Vector, x: Values, y: Labels, how: LocalTraining, seed: int) -> Vector:
        """Return the vector after descent with momentum in training mode (dropout and batch statistics active)."""
        self._torch.manual_seed(seed)
        self._write(parameters)
        module = self._module.train()
        samples, labels = self._torch.from_numpy(x), self._torch.from_numpy(y)
        trained = [p for p in module.parameters() if p.requires_grad]
        # Fused: small networks spend a sixth of a step in the optimiser's own dispatch otherwise.
        descent = self._torch.optim.SGD(trained, lr=how.lr, momentum=how.momentum, fused=True)
        for chosen in how.batches(len(y), seed):
            descent.zero_grad()
            self._loss(module(samples[chosen]), labels[chosen]).backward()
            descent.step()
        return self._read()

    def evaluate(self, parameters: Vector, x: Values, y: Labels) -> Evaluation:
        self._write(parameters)
        module, total = self._module.eval(), Evaluation(0, 0.0, 0)
        with self._torch.no_grad():
            for at in range(0, len(y), _EVALUATION_BATCH):
                labels = self._torch.from_numpy(y[at : at + _EVALUATION_BATCH])
                scores = module(self._torch.from_numpy(x[at : at + _EVALUATION_BATCH]))
                loss = float(self._loss(scores, labels)) * len(labels)
                total += Evaluation(int((scores.argmax(dim=1) == labels).sum()), loss, len(labels))
        return total

    def module(self, parameters: Vector) -> torch.nn.Module:
        """Return a copy of the module with `parameters` loaded, for use outside of federated training."""
        self._write(parameters)
        return copy.deepcopy(self._module).eval()

    def _set_up(self) -> None:
        """List the tensors that travel, and remember the integer buffers that don't."""
        persistent = set(self._module.state_dict())  # Buffers outside of it are scratch space.
        buffers = [(name, b) for name, b in self._module.named_buffers() if name in persistent]
        self._travelling: list[tuple[str, torch.Tensor]] = [
            *((name, p) for name, p in self._module.named_parameters() if p.requires_grad),
            *((name, b) for name, b in buffers if b.is_floating_point()),
        ]
        require("model", bool(self._travelling), "has no parameter that requires a gradient: there is nothing to train")
        self._staying = [(b, b.clone()) for _, b in buffers if not b.is_floating_point()]
        layers, at = [], 0
        for name, tensor in self._travelling:
            if tensor.is_complex():
                raise InvalidInput("model", f"has the complex tensor {name}; only real numbers can be aggregated")
            layers.append(Layer(name, at, at + tensor.numel()))
            at += tensor.numel()
        self.layers = tuple(layers)

    def _read(self) -> Vector:
        with self._torch.no_grad():
            parts = [tensor.detach().reshape(-1).float().numpy() for _, tensor in self._travelling]
            return np.concatenate(parts).astype(np.float32, copy=False)

    def _write(self, parameters: Vector) -> None:
        with self._torch.no_grad():
            for (name, tensor), layer in zip(self._travelling, self.layers, strict=True):
                values = self._torch.from_numpy(parameters[layer.start : layer.stop].copy()).reshape(tensor.shape)
                if name.endswith("running_var"):
                    values.clamp_(min=max(SMALLEST_VARIANCE, SMALLEST_SHARE * float(values.clamp(min=0).mean())))
                tensor.copy_(values)
            for buffer, at_first in self._staying:
                buffer.copy_(at_first)


def small_cnn(classes: int = 10) -> torch.nn.Module:
    """Make a small MNIST network: 21,840 parameters for ten classes."""
    package = require_torch("the model small-cnn")
    nn = package.nn
    first, second = (
        (nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        (nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU()),
    )
    dense = nn.Flatten(), nn.Linear(20 * 4 * 4, 50), nn.ReLU(), nn.Linear(50, classes)
    # Channels come last in memory: on a CPU, small batches then train about 1.7 times as fast.
    module: torch.nn.Module = nn.Sequential(*first, *second, *dense).to(memory_format=package.channels_last)
    return module
