"""The clips of the next round, from what the server may know anyway: the last means and how many values were clipped.

`quantize/clips.py` has the rule: some headroom times the largest magnitude in the last mean. Every array has a clip of
its own, since the statistics of a normalisation layer move by whole numbers where weights move by thousandths. No
single update is known, but the mean is, and a user's values are rarely many times larger than the mean's largest. Where
they were, the count of clipped values tells, and the clips grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

from sparsesecagg.quantize.clips import next_clips

GROWTH = 4.0
"""How much a clip grows after a round in which values were clipped, and changes at most after others."""
CEILING = 1024.0
"""Beyond this multiple of the mean's largest value a wider clip is no help: what is clipped then is an outlier."""
MEMORY = 0.7
"""How much of an earlier round's size counts: a mean may come close to zero by chance."""


def headroom(parameters: int) -> float:
    """Return how much larger than the mean's largest value a single update may be before it is clipped.

    The largest of thousands of parameters is a steady figure; the largest of a few may be small by chance.
    """
    return 8.0 * (1 + 6 / sqrt(parameters))


@dataclass
class Clips:
    """The largest change of a parameter that is sent, for each array of the model."""

    first: float
    """What all arrays begin with."""
    adaptive: bool = True
    values: list[float] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _seen: list[float] = field(default_factory=list)

    def of(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Return the clips of a model whose arrays have so many parameters; another model begins anew."""
        if list(sizes) != self._sizes:
            self._sizes = list(sizes)
            self.values, self._seen = [self.first] * len(sizes), [0.0] * len(sizes)
        return tuple(self.values)

    def save(self) -> tuple[list[float], list[int], list[float]]:
        """Return what the next clips depend on."""
        return self.values, self._sizes, self._seen

    def restore(self, state: tuple[list[float], list[int], list[float]]) -> None:
        """Go back to what `save` returned."""
        self.values, self._sizes, self._seen = (list(each) for each in state)  # type: ignore[assignment]

    def learn(self, largest: Sequence[float], clipped: int | None) -> None:
        """Adapt to a completed round, given the largest magnitude in each array of its mean."""
        if not self.adaptive:
            return
        usable = [size if size < float("inf") else 0.0 for size in largest]  # Also for what is not a number.
        self._seen = [max(now, MEMORY * before) for now, before in zip(usable, self._seen, strict=True)]
        known = [seen > 0 for seen in self._seen]
        if not clipped:
            headrooms = [headroom(size) for size in self._sizes]
            self.values = next_clips(self.values, self._seen, headrooms, fastest=GROWTH, known=known).tolist()
            return
        # Only the number of clipped values is known. Suspects are arrays whose mean has come near its clip; without
        # any, all arrays are.
        near = [8 * seen > value for seen, value in zip(self._seen, self.values, strict=True)]
        for place, value in enumerate(self.values):
            if known[place] and (near[place] or not any(near)) and value < CEILING * self._seen[place]:
                self.values[place] = value * GROWTH
