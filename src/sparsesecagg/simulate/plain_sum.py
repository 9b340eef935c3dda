"""What only a simulation can know: the sum of the users' integers without any mask, to compare with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.patterns.base import Index, Trace
from sparsesecagg.protocol.parameters import Parameters


class PlainSum:
    """The users' integers without any mask, group by group. Simulated users are honest: all that upload are in."""

    def __init__(self, params: Parameters) -> None:
        self._dim = params.dim
        self._pieces: dict[int, dict[int, tuple[Index, NDArray[np.int64]]]] = defaultdict(dict)
        self._drawn: NDArray[np.int64] | None = None
        self._public = params.shape.protects

    def of(self, group: int) -> Trace:
        """Return what notes one user's integers. All users of a group have the same coordinates if they are public."""
        pieces = self._pieces[group]

        def note(index: Index, integers: NDArray[np.int64]) -> None:
            if not len(integers):
                return
            first = index.start if isinstance(index, slice) else int(index[0])
            if not self._public:
                self._drawn = np.zeros(self._dim, np.int64) if self._drawn is None else self._drawn
                self._drawn[index] += integers
            elif first in pieces:
                pieces[first][1][:] += integers
            else:
                pieces[first] = index, integers.astype(np.int64)

        return note

    def total(self, lost: Collection[int]) -> NDArray[np.int64]:
        """Return the sum over the groups that were opened."""
        total = np.zeros(self._dim, np.int64) if self._drawn is None else self._drawn
        for group, pieces in self._pieces.items():
            if group not in lost:
                for index, integers in pieces.values():
                    total[index] += integers
        return total
