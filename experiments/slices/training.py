"""A small federated training of which every user sends the same slice of its update in a round.

Keys and masks are left out: they change no sum. A tenth of the users drops out of each round; who does, and every
user's local training, follow from the seed alone, so that runs with one seed differ in nothing but what is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.slices.servers import make_server
from sparsesecagg.downlink.gain import Gain
from sparsesecagg.lab.learning.data import Dataset, load_dataset, make_partition
from sparsesecagg.lab.learning.models import (
    DenseNetwork,
    LayeredNetwork,
    LocalTraining,
    StridedNetwork,
    Values,
    Views,
)
from sparsesecagg.lab.learning.secure import AdaptiveClip
from sparsesecagg.rounding import Quantizer

Vector = NDArray[np.float32]
DROPOUT = 0.1
PROXIMAL = 0.01
"""FedProx's μ."""


@dataclass(frozen=True)
class Task:
    """What is trained: up to `samples` samples per user, tested on the first `tested` samples of the test set."""

    dataset: str
    model: str
    samples: int
    tested: int
    batch: int
    lr: float
    hidden: int = 64
    """Units of an MLP's hidden layer."""


TASKS = {
    "digits": Task("digits", "mlp", 200, 360, 10, 0.1),
    "MNIST": Task("mnist", "mlp", 60, 5000, 20, 0.05),
    "MNIST, wide": Task("mnist", "mlp", 60, 5000, 20, 0.05, hidden=128),
    "MNIST, CNN": Task("mnist", "cnn", 300, 2000, 10, 0.05),
    "CIFAR-10, CNN": Task("cifar10", "cnn", 200, 2000, 20, 0.05),
}


@dataclass(frozen=True)
class Cell:
    """One run. `gain` is a number, "1/κ" or "adaptive"; `cut` is how slices are cut.

    Values are rounded to `levels` steps on either side of zero over the adaptive clip; None leaves them as they are.
    """

    task: str
    users: int
    alpha: float
    gain: float | str = "adaptive"
    epochs: int = 1
    partition: str = "iid"
    cut: str = "blocks"
    strategy: str = "FedAvg"
    rounds: int = 60
    levels: int | None = None
    shuffle: int = 0
    """Other than 0: users draw their samples in another order, which shows what chance alone does."""
    seed: int = 0


class Rule(Protocol):
    """What turns the mean of a round into a step: `sparsesecagg.downlink.gain.Gain`, or a rule that is tried."""

    def step(self, mean: Vector, covered: NDArray[np.bool_]) -> Vector:
        """Return what to add to the model."""

    @property
    def value(self) -> float:
        """The gain that is used next."""


@dataclass(frozen=True)
class Curve:
    """Accuracy in percent and gain, by round."""

    accuracy: list[float]
    gains: list[float]


def fraction(alpha: float) -> tuple[int, int]:
    """Return the a and the smallest L with a/L within 1 % of α."""
    for length in range(1, 1001):
        sent = max(1, round(alpha * length))
        if abs(sent / length - alpha) <= 0.01 * alpha:
            return sent, length
    raise ValueError(alpha)


class Slices:
    """Which coordinates all users send in a round: in blocks of L neighbours, a of L, turning by a in each round.

    `blocks` begins at a random place in each block, `strides` at the same place in all; `stretches` cuts the vector
    into L pieces of neighbours instead.
    """

    def __init__(self, dim: int, alpha: float, cut: str, seed: int) -> None:
        self._sent, self._length = fraction(alpha)
        at = np.arange(dim)
        blocks, inside = at // self._length, at % self._length
        if cut == "blocks":
            offsets = np.random.default_rng(seed).integers(self._length, size=int(blocks[-1]) + 1)
            self._place = (inside - offsets[blocks]) % self._length
        elif cut == "strides":
            self._place = inside
        elif cut == "stretches":
            self._place = at * self._length // dim
        else:
            raise ValueError(cut)

    @property
    def coverage(self) -> float:
        """The part of the coordinates that is sent in a round, κ with one group."""
        return self._sent / self._length

    def covered(self, number: int) -> NDArray[np.bool_]:
        """Return the coordinates that are sent in a round."""
        turned = (self._place - self._sent * number) % self._length
        sent: NDArray[np.bool_] = turned < self._sent
        return sent


class _Proximal(LayeredNetwork):
    """FedProx: local training is pulled back to the model that it began with."""

    def train_local(self, parameters: Vector, x: Values, y: NDArray[np.int64], how: LocalTraining, seed: int) -> Vector:
        self._anchor = self._views(parameters.copy())
        return super().train_local(parameters, x, y, how, seed)

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: NDArray[np.int64]) -> None:
        super()._gradient(views, gradients, samples, y)
        for now, gradient, anchor in zip(views, gradients, self._anchor, strict=True):
            for part in range(2):
                gradient[part][...] += np.float32(PROXIMAL) * (now[part] - anchor[part])


class ProximalDense(_Proximal, DenseNetwork):
    """Dense layers with FedProx's term."""


class ProximalStrided(_Proximal, StridedNetwork):
    """Convolutions with FedProx's term."""


@cache
def load(name: str) -> Dataset:
    """Return a data set, read once."""
    return load_dataset(name)


def make_network(task: Task, strategy: str) -> LayeredNetwork:
    """Return the network of a task: one hidden layer, or two convolutions and 32 units."""
    data, proximal = load(task.dataset), strategy == "FedProx"
    if task.model == "mlp":
        inputs = int(np.prod(data.sample_shape))
        return (ProximalDense if proximal else DenseNetwork)(inputs, len(data.classes), (task.hidden,))
    channels, height, width = data.sample_shape
    made = ProximalStrided if proximal else StridedNetwork
    return made((channels, height, width), len(data.classes), ((5, 6), (5, 12)), 32)


def make_gain(coverage: float, gain: float | str) -> Gain:
    """Return the rule that a cell names."""
    if gain == "adaptive":
        return Gain(coverage)
    return Gain(coverage, 1 / coverage if gain == "1/κ" else float(gain))


def train(cell: Cell, rule: Rule | None = None) -> Curve:
    """Train one run; `rule` stands in for the gain rule that the cell names."""
    task = TASKS[cell.task]
    data, network = load(task.dataset), make_network(task, cell.strategy)
    x, y = data.train_x, data.train_y
    parts = partition(data, cell)
    own = [part[: task.samples] for part in parts]
    how = LocalTraining(cell.epochs, task.batch, task.lr)
    model = network.initial(cell.seed)
    slices = Slices(network.dim, cell.alpha, cell.cut, cell.seed)
    rule = rule or make_gain(slices.coverage, cell.gain)
    server = make_server(cell.strategy, network.dim)
    drops = np.random.default_rng([cell.seed, cell.users])
    rounding = np.random.Generator(np.random.SFC64(cell.seed))
    clip = AdaptiveClip(network.layers, model, cell.levels or 1)
    found, gains = list[float](), list[float]()
    for number in range(cell.rounds):
        survivors = np.flatnonzero(drops.random(cell.users) >= DROPOUT)
        covered, scale = slices.covered(number), clip.per_coordinate()
        total, clipped = np.zeros(network.dim, np.float64), 0
        for user in survivors:
            mine = own[user]
            order = (cell.shuffle << 32) + cell.users * number + int(user)
            after = network.train_local(model, x[mine], y[mine], how, order)
            with np.errstate(all="ignore"):
                update: Vector = np.where(covered, after - model, np.float32(0))
            if cell.levels:
                update, beyond = rounded(update, scale, cell.levels, rounding)
                clipped += beyond
            total += update
        mean = (total / max(1, len(survivors))).astype(np.float32)
        if not np.isfinite(mean).all():  # It diverged, and nothing better follows.
            found += [100 / len(data.classes)] * (cell.rounds - number)
            gains += [rule.value] * (cell.rounds - number)
            break
        clip.follow(mean, covered, clipped / max(1, len(survivors) * int(np.count_nonzero(covered))))
        gains.append(rule.value)
        model = server.advance(model, rule.step(mean, covered))
        with np.errstate(all="ignore"):
            result = network.evaluate(model, data.test_x[: task.tested], data.test_y[: task.tested])
        found.append(100 * result.correct / result.samples)
    return Curve([round(one, 3) for one in found], [round(one, 4) for one in gains])


def partition(data: Dataset, cell: Cell) -> list[NDArray[np.int64]]:
    """Deal the samples out; shards are two per user, as McMahan et al. have them, in random order within a user."""
    dealt = make_partition(data, cell.partition, cell.users, cell.seed, shards=2 * cell.users).indices
    random = np.random.default_rng(cell.seed)
    return [random.permutation(part) for part in dealt]


def rounded(update: Vector, clip: Vector, levels: int, rng: np.random.Generator) -> tuple[Vector, int]:
    """Return an update as a sum holds it, rounded at random to levels on either side of zero; and values clipped."""
    quantizer = Quantizer(levels, float(levels))
    integers, clipped = quantizer.quantize(update / clip, 1.0, rng)
    return (quantizer.dequantize(integers.astype(np.int64)) * clip).astype(np.float32), clipped
