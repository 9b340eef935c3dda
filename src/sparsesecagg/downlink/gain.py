"""How far the server moves the model: a step is gain × mean on the coordinates that the round covered.

A round covers a part κ of the coordinates (`coverage`). A gain of 1/κ makes the step an unbiased estimate of the whole
update; after long local training it overshoots. So the default adapts within 1 ≤ gain ≤ 1/κ, by what the server sees
anyway: the size of the means, as long as coordinates come for the first time, and from then on the correlation of a
mean with the one that the same coordinates had before. docs/slices.md has the rule, and the measurements that chose it.
"""

from __future__ import annotations

from math import exp, isfinite, sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require

DEFAULT_ALPHA = 0.3
"""The fraction of the model that a user sends by default: docs/slices.md says what smaller ones cost in which task."""

TARGET = 0.1
"""The correlation at which the gain stays."""
RATE = 2.0
"""How fast it follows the correlation, per round and in logarithms."""
SHRINK, GROW = 0.7, 1.5
"""The factors by which it changes in a round, at most."""
BOLD = 5.0
"""Up to this, 1/κ was the better start in every task that was tried; above, long local training overshoots."""
FALLING, RISING, JUMP = 0.9, 1.05, 1.3
"""Sizes of a mean, relative to the last one."""


class Gain:
    """The gain of one run, fixed or adaptive; remembers the last mean of every coordinate."""

    def __init__(self, coverage: float, gain: float | None = None) -> None:
        """Take the coverage κ in (0, 1], and a gain in 1 … 1/κ or None for one that adapts."""
        require("coverage", 0 < coverage <= 1, f"must be in (0, 1], got {coverage}")
        self._most = 1 / coverage
        # 1/κ that was computed in another way may differ in the last digit.
        if gain is not None and not 1 <= gain <= self._most * (1 + 1e-9):
            raise InvalidInput("gain", f"must be in [1, {self._most:g}], 1 over the part that is covered, got {gain}")
        self._adapts = gain is None and coverage < 1
        self._value = max(min(self._most, BOLD), self._most / 2) if gain is None else float(gain)
        self._size = 0.0
        self._last: NDArray[np.float32] | None = None
        """The last mean of each coordinate, NaN where there was none."""

    @property
    def value(self) -> float:
        """The gain of the last step; before the first, the one that adapting starts from."""
        return self._value

    def step(self, mean: NDArray[np.float32], covered: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return what to add to the model, shape (dim,): 0 where the round covered nothing.

        `mean` is the survivors' mean update, shape (dim,); what it holds outside of `covered` is ignored.
        """
        if self._adapts and covered.any():
            self._adapt(mean, covered)
        return np.where(covered, np.float32(self._value) * mean, np.float32(0))

    def _adapt(self, mean: NDArray[np.float32], covered: NDArray[np.bool_]) -> None:
        if self._last is None or len(self._last) != len(mean):  # As when fewer nodes send other arrays whole.
            self._last = np.full(len(mean), np.nan, np.float32)
        now, before = mean[covered].astype(np.float64), self._last[covered].astype(np.float64)
        size = sqrt(float(now @ now) / len(now))
        ratio = size / self._size if self._size else 1.0
        known = ~np.isnan(before)
        if known.any():
            factor = exp(RATE * (_correlation(now[known], before[known]) - TARGET))
            factor = min(factor, 1 / ratio) if ratio > JUMP else factor
        else:
            factor = GROW if ratio < FALLING else SHRINK if ratio > RISING else 1.0
        self._value = min(self._most, max(1.0, self._value * min(GROW, max(SHRINK, factor))))
        self._size = size
        self._last[covered] = mean[covered]

    def save(self) -> bytes:
        """Return what the next step depends on."""
        last = b"" if self._last is None else self._last.astype("<f4").tobytes()
        return msgspec.msgpack.encode(_Saved(self._value, self._size, last))

    def restore(self, data: bytes) -> None:
        """Go back to a state that `save` gave, for the same coverage and kind of gain."""
        try:
            saved = msgspec.msgpack.decode(data, type=_Saved)
            last = np.frombuffer(saved.last, "<f4").astype(np.float32)
        except (msgspec.MsgspecError, ValueError) as problem:
            raise InvalidInput("gain", "can't be restored: not a state that was saved") from problem
        possible = 1 <= saved.value <= self._most * (1 + 1e-9) and isfinite(saved.size) and saved.size >= 0
        if not possible or (not self._adapts and saved.value != self._value):
            raise InvalidInput("gain", "can't be restored: the state is that of a run with other settings")
        self._value, self._size = saved.value, saved.size
        self._last = last if len(last) else None


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    value: float
    size: float
    last: bytes


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the cosine of the angle between two means; without a direction it is `TARGET`, which changes nothing."""
    lengths = sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / lengths if lengths else TARGET
