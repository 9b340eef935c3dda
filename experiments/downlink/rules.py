"""Other ways to round a step, for comparison: slow, in double precision, and without a wire format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.downlink.training import Advance, Vector
from sparsesecagg.downlink import BLOCK

Blocks = NDArray[np.float64]


@dataclass
class Rule:
    """A way to round; `kept` collects the size of what rounding leaves, relative to the update of the round."""

    levels: tuple[int, ...]
    tried: int
    """How many powers of two are tried, from the one that fits the largest magnitude downwards."""
    random: bool = False
    """Round up or down at random, so that the mean is right."""
    keep_error: bool = True

    def __post_init__(self) -> None:
        self.kept: list[float] = []

    def begin(self, start: Vector, seed: int) -> Advance:
        """Return the function that rounds one model after the other."""
        model, error, rng = start, np.zeros(len(start)), np.random.default_rng(seed + 1000)

        def advance(target: Vector) -> Vector:
            nonlocal model, error
            update = target - model
            step = update + error
            rounded = self._rounded(step, rng)
            model = (model + rounded).astype(np.float32)
            error = step - rounded if self.keep_error else error
            self.kept.append(float(np.linalg.norm(step - rounded) / np.linalg.norm(update)))
            return model

        return advance

    def _rounded(self, step: Blocks, rng: np.random.Generator) -> Blocks:
        blocks = np.pad(step, (0, -len(step) % BLOCK)).reshape(-1, BLOCK)
        peaks = np.maximum(np.abs(blocks).max(axis=1), 1e-30)
        fitting = np.ceil(np.log2(peaks / (self.levels[-1] + (self.levels[-1] - self.levels[-2]) / 2)))
        best, least = np.zeros_like(blocks), np.full(len(blocks), np.inf)
        for lower in range(self.tried):
            scales = 2.0 ** (fitting - lower)[:, None]
            candidate = self._nearest(blocks / scales, rng) * scales
            errors = ((blocks - candidate) ** 2).sum(axis=1)
            best[errors < least] = candidate[errors < least]
            least = np.minimum(errors, least)
        return best.reshape(-1)[: len(step)]

    def _nearest(self, scaled: Blocks, rng: np.random.Generator) -> Blocks:
        first, gap = self.levels[0], self.levels[1] - self.levels[0]
        places = (scaled - first) / gap
        places = np.floor(places + rng.random(places.shape)) if self.random else np.rint(places)
        return first + gap * np.clip(places, 0, len(self.levels) - 1)


MANY, SEVEN, ONE = tuple(range(-127, 128)), tuple(range(-7, 8)), (-1, 0, 1)
RULES: dict[str, Callable[[], Rule]] = {
    "8 bits, as chosen: −127 … 127, nearest, scale by the largest magnitude": lambda: Rule(MANY, 1),
    "8 bits, three scales tried": lambda: Rule(MANY, 3),
    "4 bits, as chosen: −7 … 7, nearest, two scales tried": lambda: Rule(SEVEN, 2),
    "4 bits, scale by the largest magnitude": lambda: Rule(SEVEN, 1),
    "4 bits, four scales tried": lambda: Rule(SEVEN, 4),
    "4 bits, random rounding": lambda: Rule(SEVEN, 2, random=True),
    "4 bits, error not kept": lambda: Rule(SEVEN, 2, keep_error=False),
    "2 bits, as chosen: −1, 0, 1, nearest, three scales tried": lambda: Rule(ONE, 3),
    "2 bits, scale by the largest magnitude": lambda: Rule(ONE, 1),
    "2 bits, five scales tried": lambda: Rule(ONE, 5),
    "2 bits, levels −3, −1, 1, 3, five scales tried": lambda: Rule((-3, -1, 1, 3), 5),
    "2 bits, random rounding": lambda: Rule(ONE, 3, random=True),
    "2 bits, error not kept": lambda: Rule(ONE, 3, keep_error=False),
}
