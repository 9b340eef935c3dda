"""McMahan's MNIST network in NumPy: two 5 × 5 convolutions with padding, each pooled 2 × 2, and a hidden layer.

The second convolution does nearly all of the work. It is computed on spectra, where a convolution is a product at every
frequency: a period of 16 does for images of 14 × 14, with 144 products of complex matrices in place of 25 for each of
196 pixels. Transforms are products with small fixed matrices, so all of it, forward and backward, is matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from sparsesecagg.errors import require
from sparsesecagg.lab.learning.models import Labels, LayeredNetwork, Values, Vector, Views, log_softmax

KERNEL, POOL = 5, 2
_AROUND = KERNEL // 2

Spectrum = NDArray[np.complex64]


class PooledNetwork(LayeredNetwork):
    """Convolutions to `channels`, ReLU and pooling after each; then a hidden layer. Images have one channel."""

    evaluated_at_once = 250

    def __init__(
        self, side: int, channels: tuple[int, int], hidden: int, classes: int, name: str = "mnist-cnn"
    ) -> None:
        require("model", side % POOL**2 == 0, f"{name} needs images whose side is a multiple of 4, got {side}")
        self._side, (first, second) = side, channels
        self._spectra = _Spectra(side // POOL, first, second)
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
        pooled = _highest(np.moveaxis(one, 1, 0))
        image = _samples_last(np.maximum(pooled + bias, 0))
        spectrum, kernel = self._spectra.of_image(image), self._spectra.of_kernels(kernels)
        two = self._spectra.image(spectrum @ kernel)
        second = _highest(_places(two))
        flat = np.maximum(_samples_first(second) + second_bias, 0).reshape(len(read), -1)
        hidden = np.maximum(flat @ dense + hidden_bias, 0)
        return _Passed(one, pooled, image, spectrum, kernel, two, second, flat, hidden, hidden @ last + last_bias)

    def _gradient(self, views: Views, gradients: Views, samples: Values, y: Labels) -> None:
        found, spectra = self._passed(views, samples), self._spectra
        back: Values = np.exp(log_softmax(found.scores))
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        for number, reads in ((3, found.hidden), (2, found.flat)):
            np.matmul(reads.T, back, out=gradients[number][0])
            back.sum(axis=0, out=gradients[number][1])
            back = back @ views[number][0].T
            back *= reads > 0
        channels = len(gradients[1][1])
        back = back.reshape(-1, channels)
        np.matmul(np.ones(len(back), np.float32), back, out=gradients[1][1])
        second = _samples_last(back.reshape(len(y), -1, channels)).reshape(found.second.shape)
        two = np.empty_like(found.two)
        _to_highest(_places(found.two), found.second, second, _places(two))
        products = spectra.of_image(two)
        # Correlations have one factor conjugate; forward is done with these.
        image_spectrum, kernel = (np.conjugate(each, out=each) for each in (found.spectrum, found.kernel))
        gradients[1][0][:] = spectra.kernels(image_spectrum.transpose(0, 2, 1) @ products)
        image = spectra.image(products @ kernel.transpose(0, 2, 1))
        image *= found.image > 0
        channels = image.shape[-1]
        np.matmul(np.ones(image.size // channels, np.float32), image.reshape(-1, channels), out=gradients[0][1])
        one = np.empty_like(found.one)
        before = _samples_first(image).reshape(found.pooled.shape)
        _to_highest(np.moveaxis(found.one, 1, 0), found.pooled, before, np.moveaxis(one, 1, 0))
        np.matmul(samples.reshape(-1, KERNEL**2).T, one.reshape(-1, channels), out=gradients[0][0])


@dataclass(frozen=True)
class _Passed:
    """One batch on its way forward."""

    one: Values
    pooled: Values
    image: Values
    spectrum: Spectrum
    kernel: Spectrum
    two: Values
    second: Values
    flat: Values
    hidden: Values
    scores: Values


def _samples_last(values: Values) -> Values:
    """Return (sample, pixel, channel) as (row, column, sample, channel) of a square image."""
    side = math.isqrt(values.shape[1])
    return np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(side, side, len(values), -1)


def _samples_first(image: Values) -> Values:
    """Return (row, column, sample, channel) as (sample, row, column, channel)."""
    return np.ascontiguousarray(image.transpose(2, 0, 1, 3))


def _places(image: Values) -> list[Values]:
    """Return the pixels of (row, column, sample, channel) at each of the four places of a pool, as views."""
    return [image[down::POOL, right::POOL] for down in range(POOL) for right in range(POOL)]


def _highest(places: Iterable[Values]) -> Values:
    """Return the maximum of the four places."""
    a, b, c, d = places
    found: Values = np.maximum(np.maximum(a, b), np.maximum(c, d))
    return found


def _to_highest(places: Iterable[Values], highest: Values, back: Values, gradients: Iterable[Values]) -> None:
    """Write the gradient before pooling into `gradients`: all of it goes to the first place that has the maximum."""
    left = back.copy()
    for value, gradient in zip(places, gradients, strict=True):
        np.multiply(left, value == highest, out=gradient)
        left -= gradient


class _Spectra:
    """The spectra of square images and of kernels: (frequency, sample or channel, channel).

    An image has zeros around it, and a kernel reads two pixels beyond each pixel, so a period of two more than the side
    keeps both ends apart. An image is real: half of its frequencies down the rows say the rest.
    """

    def __init__(self, side: int, channels: int, made: int) -> None:
        self._side, self._channels, self._made = side, channels, made
        period = side + _AROUND
        self._half = period // 2 + 1
        turn = 2 * np.pi / period
        pixels, taps = np.arange(side), np.arange(-_AROUND, _AROUND + 1)
        down = turn * np.outer(np.arange(self._half), pixels)
        across = turn * np.outer(np.arange(period), pixels)
        # Of frequency and place: the real part, then the imaginary one.
        self._rows = np.vstack([np.cos(down), -np.sin(down)]).astype(np.float32)
        self._columns = np.exp(-1j * across).astype(np.complex64)
        # Back again, where a frequency stands for its negative too, unless both are the same.
        twice = np.where(np.arange(self._half) % (period // 2) == 0, 1, 2)[:, None] / period**2
        self._to_rows = np.vstack([twice * np.cos(down), -twice * np.sin(down)]).T.astype(np.float32).copy()
        self._to_columns = np.exp(1j * across).T.astype(np.complex64).copy()
        phase = turn * (
            np.multiply.outer(np.arange(self._half), taps)[:, None, :, None]
            + np.multiply.outer(np.arange(period), taps)[None, :, None, :]
        ).reshape(-1, KERNEL**2)
        weights = np.repeat(twice, period, axis=0)
        self._taps = np.vstack([np.cos(phase), np.sin(phase)]).astype(np.float32)
        self._to_taps = np.vstack([weights * np.cos(phase), weights * np.sin(phase)]).T.astype(np.float32).copy()

    def of_image(self, image: Values) -> Spectrum:
        """Transform (row, column, sample, channel)."""
        samples, channels = image.shape[2:]
        halves = self._rows @ image.reshape(self._side, -1)
        rows = _complex(halves).reshape(self._half, self._side, -1)
        found: Spectrum = self._columns @ rows
        return found.reshape(-1, samples, channels)

    def image(self, spectrum: Spectrum) -> Values:
        """Return (row, column, sample, channel)."""
        samples, channels = spectrum.shape[1:]
        rows = self._to_columns @ spectrum.reshape(self._half, -1, samples * channels)
        found: Values = self._to_rows @ _real(rows.reshape(self._half, -1))
        return found.reshape(self._side, self._side, samples, channels)

    def of_kernels(self, weight: Values) -> Spectrum:
        """Transform kernels, (row × column × channel, channel made), with which an image is correlated."""
        halves = self._taps @ weight.reshape(KERNEL**2, -1)
        return _complex(halves).reshape(-1, self._channels, self._made)

    def kernels(self, spectrum: Spectrum) -> Values:
        """Return kernels, of the conjugate of what `of_kernels` has."""
        found: Values = self._to_taps @ _real(spectrum.reshape(len(spectrum), -1))
        return found.reshape(-1, self._made)


def _complex(halves: Values) -> Spectrum:
    """Return the numbers whose real parts are the upper half of the rows, and whose imaginary parts the lower."""
    half = len(halves) // 2
    found = np.empty((half, halves.shape[1]), np.complex64)
    found.real, found.imag = halves[:half], halves[half:]
    return found


def _real(values: Spectrum) -> Values:
    """Return the real parts, then the imaginary ones."""
    found: Values = np.concatenate([values.real, values.imag])
    return found
