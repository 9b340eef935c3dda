"""McMahan's MNIST network in NumPy: two 5 × 5 convolutions with padding, each pooled 2 × 2, and a hidden layer.

A step takes half of torch's time on processors without short floats. The second convolution does nearly all of the
work; it is computed with Winograd's minimal filtering: an output tile of 4 × 4 pixels is a linear map of the products
of 64 numbers that depend on the input tile and 64 that depend on the kernel, in place of 400 products. All three maps
are small fixed matrices, so forward and backward are matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.lab.learning.models import Labels, LayeredNetwork, Values, Vector, Views, log_softmax

KERNEL, TILE, POOL = 5, 4, 2
_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)  # And infinity: as many as a tile of the input has rows.
_AROUND = KERNEL // 2
_READ = TILE + KERNEL - 1


class PooledNetwork(LayeredNetwork):
    """Convolutions to `channels`, ReLU and pooling after each; then a hidden layer. Images have one channel."""

    evaluated_at_once = 250

    def __init__(
        self, side: int, channels: tuple[int, int], hidden: int, classes: int, name: str = "mnist-cnn"
    ) -> None:
        require("model", side % POOL**2 == 0, f"{name} needs images whose side is a multiple of 4, got {side}")
        self._side, (first, second) = side, channels
        self._tiles = _Tiles(side // POOL, first, second)
        flat = (side // POOL**2) ** 2 * second
        area = KERNEL**2
        super().__init__(name, [(area, first), (area * first, second), (flat, hidden), (hidden, classes)])

    def initial(self, seed: int) -> Vector:
        """Draw weights and biases uniformly in ±1/√fan-in, PyTorch's default: with ±√(6 / fan-in) 0.05 diverges."""
        random = np.random.Generator(np.random.PCG64(seed))
        parameters = np.empty(self.dim, np.float32)
        for weight, bias in self._views(parameters):
            bound = 1 / np.sqrt(len(weight))
            weight[:], bias[:] = random.uniform(-bound, bound, weight.shape), random.uniform(-bound, bound, bias.shape)
        return parameters

    def _read(self, x: Values) -> Values:
        """Return the patches of the first convolution, (sample, place in a pool, pool, pixel of a patch)."""
        half = self._side // POOL
        images = np.pad(x.reshape(-1, self._side, self._side), ((0, 0), (_AROUND, _AROUND), (_AROUND, _AROUND)))
        sample, row, column = images.strides
        view = as_strided(
            images,
            (len(x), POOL, POOL, half, half, KERNEL, KERNEL),
            (sample, row, column, POOL * row, POOL * column, row, column),
            writeable=False,
        )
        return np.ascontiguousarray(view).reshape(len(x), POOL**2, half**2, KERNEL**2)

    def _forward(self, views: Views, read: Values) -> list[Values]:
        return [self._passed(views, read).scores]

    def _passed(self, views: Views, read: Values) -> _Passed:
        """Return all that the way back needs."""
        (weight, bias), (kernels, second_bias), (dense, hidden_bias), (last, last_bias) = views
        one = (read.reshape(-1, KERNEL**2) @ weight).reshape(*read.shape[:3], -1)
        pooled = _highest(one, 1)
        image = np.maximum(pooled + bias, 0).reshape(len(read), self._side // POOL, self._side // POOL, -1)
        tiles = self._tiles.read(image)
        mapped = self._tiles.kernels(kernels)
        two = self._tiles.filtered(tiles, mapped)
        second = _highest(two, 0)
        flat = np.maximum(self._tiles.image(second) + second_bias, 0).reshape(len(read), -1)
        hidden = np.maximum(flat @ dense + hidden_bias, 0)
        return _Passed(one, pooled, image, tiles, mapped, two, second, flat, hidden, hidden @ last + last_bias)

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: Labels) -> None:
        found = self._passed(views, samples)
        back: Values = np.exp(log_softmax(found.scores))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number, reads in ((3, found.hidden), (2, found.flat)):
            np.matmul(reads.T, back, out=gradients[number][0])
            back.sum(axis=0, out=gradients[number][1])
            back = back @ views[number][0].T
            back *= reads > 0
        channels = len(gradients[1][1])
        np.matmul(np.ones(back.size // channels, np.float32), back.reshape(-1, channels), out=gradients[1][1])
        products = self._tiles.back(_to_highest(found.two, found.second, self._tiles.tiled(back), 0))
        gradients[1][0][:] = self._tiles.kernel_gradient(found.tiles, products).reshape(gradients[1][0].shape)
        image = self._tiles.image_gradient(products, found.mapped)
        image *= found.image > 0
        channels = image.shape[-1]
        np.matmul(np.ones(image.size // channels, np.float32), image.reshape(-1, channels), out=gradients[0][1])
        first = _to_highest(found.one, found.pooled, image.reshape(found.pooled.shape), 1)
        np.matmul(samples.reshape(-1, KERNEL**2).T, first.reshape(-1, channels), out=gradients[0][0])


@dataclass(frozen=True)
class _Passed:
    """One batch on its way forward."""

    one: Values
    pooled: Values
    image: Values
    tiles: Values
    mapped: Values
    two: Values
    second: Values
    flat: Values
    hidden: Values
    scores: Values


def _highest(values: Values, axis: int) -> Values:
    """Return the maximum of the four along `axis`."""
    a, b, c, d = np.moveaxis(values, axis, 0)
    found: Values = np.maximum(np.maximum(a, b), np.maximum(c, d))
    return found


def _to_highest(values: Values, highest: Values, back: Values, axis: int) -> Values:
    """Return the gradient before pooling: all of it goes to the first value that is the maximum."""
    found, left = np.empty_like(values), back.copy()
    for value, gradient in zip(np.moveaxis(values, axis, 0), np.moveaxis(found, axis, 0), strict=True):
        np.multiply(left, value == highest, out=gradient)
        left -= gradient
    return found


class _Tiles:
    """A convolution of square images with padding, by tiles: which pixels a tile reads, and the maps of tiles.

    Tiles are (pixel of a tile, sample × row of tiles × column of tiles, channel). Outputs are ordered for pooling:
    (place in a pool, pool of a tile, sample × tiles, channel).
    """

    def __init__(self, side: int, channels: int, made: int) -> None:
        self._side, self._channels, self._made = side, channels, made
        self._across = -(-side // TILE)  # The last ones may reach beyond the image.
        read, kernel, out = minimal_filter()
        self._read, self._kernel = (np.kron(one, one).astype(np.float32) for one in (read, kernel))
        pools = TILE // POOL
        both = np.kron(out, out).reshape(pools, POOL, pools, POOL, -1).transpose(1, 3, 0, 2, 4)
        self._out = np.ascontiguousarray(both.reshape(TILE**2, -1), np.float32)

    def read(self, images: Values) -> Values:
        """Map what every tile reads of (sample, row, column, channel)."""
        across, samples = self._across, len(images)
        padded = np.zeros((samples, TILE * across + KERNEL - 1, TILE * across + KERNEL - 1, self._channels), np.float32)
        padded[:, _AROUND : _AROUND + self._side, _AROUND : _AROUND + self._side] = images
        sample, row, column, channel = padded.strides
        view = as_strided(
            padded,
            (_READ, _READ, samples, across, across, self._channels),
            (row, column, sample, TILE * row, TILE * column, channel),
            writeable=False,
        )
        tiles = np.ascontiguousarray(view).reshape(_READ**2, -1)
        return (self._read @ tiles).reshape(_READ**2, -1, self._channels)

    def kernels(self, weight: Values) -> Values:
        """Map the kernels, (row × column × channel, channel made)."""
        return (self._kernel @ weight.reshape(KERNEL**2, -1)).reshape(-1, self._channels, self._made)

    def filtered(self, tiles: Values, kernels: Values) -> Values:
        """Return the output."""
        products = (tiles @ kernels).reshape(_READ**2, -1)
        return (self._out @ products).reshape(POOL**2, TILE**2 // POOL**2, -1, self._made)

    def image(self, pooled: Values) -> Values:
        """Return pooled tiles as (sample, row, column, channel)."""
        pools, across, after = TILE // POOL, self._across, self._side // POOL
        tiles = pooled.reshape(pools, pools, -1, across, across, self._made)
        image = tiles.transpose(2, 3, 0, 4, 1, 5).reshape(-1, across * pools, across * pools, self._made)
        return image[:, :after, :after]

    def tiled(self, back: Values) -> Values:
        """Return the gradient of `image` as pooled tiles; beyond the image it is 0."""
        pools, across, after = TILE // POOL, self._across, self._side // POOL
        image = np.zeros((len(back), across * pools, across * pools, self._made), np.float32)
        image[:, :after, :after] = back.reshape(-1, after, after, self._made)
        tiles = image.reshape(-1, across, pools, across, pools, self._made).transpose(2, 4, 0, 1, 3, 5)
        return np.ascontiguousarray(tiles).reshape(pools**2, -1, self._made)

    def back(self, output: Values) -> Values:
        """Return the gradient of the products."""
        return (self._out.T @ output.reshape(TILE**2, -1)).reshape(_READ**2, -1, self._made)

    def kernel_gradient(self, tiles: Values, products: Values) -> Values:
        """Return the gradient of the kernels."""
        return self._kernel.T @ (tiles.transpose(0, 2, 1) @ products).reshape(_READ**2, -1)

    def image_gradient(self, products: Values, kernels: Values) -> Values:
        """Return the gradient of the images: tiles are added up where they overlap."""
        mapped = (products @ kernels.transpose(0, 2, 1)).reshape(_READ**2, -1)
        across, blocks = self._across, _READ // TILE
        tiles = (self._read.T @ mapped).reshape(blocks, TILE, blocks, TILE, -1, across, across, self._channels)
        tiles = tiles.transpose(0, 2, 4, 5, 1, 6, 3, 7)
        rows = across + blocks - 1
        padded = np.zeros((tiles.shape[2], rows, TILE, rows, TILE, self._channels), np.float32)
        for down in range(blocks):
            for right in range(blocks):
                padded[:, down : down + across, :, right : right + across] += tiles[down, right]
        image = padded.reshape(-1, rows * TILE, rows * TILE, self._channels)
        return image[:, _AROUND : _AROUND + self._side, _AROUND : _AROUND + self._side]


def minimal_filter() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the maps of input, kernel and products, so that `out @ ((read @ x) * (kernel @ w))` correlates x with w.

    To multiply polynomials, evaluate both at enough points, multiply, interpolate; a correlation is the transpose of
    that in one factor (Winograd; Lavin and Gray, arXiv 1509.09308). Rows are scaled to equal size, for rounding.
    """
    powers = np.vander(_POINTS, _READ, increasing=True)
    at_infinity = np.eye(_READ)[-1:]
    read = np.linalg.inv(np.vstack([powers, at_infinity])).T
    kernel, out = (np.vstack([powers[:, :size], np.eye(size)[-1:]]) for size in (KERNEL, TILE))
    size = np.sqrt(np.linalg.norm(read, axis=1) / np.linalg.norm(kernel, axis=1))[:, None]
    return read / size, kernel * size, out.T
