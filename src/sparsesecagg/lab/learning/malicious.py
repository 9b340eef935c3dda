"""Malicious users: what they send in place of their updates. They know all honest updates of the round.

range        sets its group's sum against the honest mean as far as the word allows, coordinate by coordinate
reverse      knows the rule over groups: moves its group's mean against the honest one, just as far as honest groups lie
drift        the same, in a direction that stays the same from round to round (after arXiv 2208.09894)
sign-flip    its own update, reversed
ipm          the honest mean, reversed, as far as a user's own clip allows (arXiv 1903.03936)
alie         the honest mean, moved by 1.5 standard deviations (a little is enough, arXiv 1902.06156)
label-flip   an honest update for wrong labels: class k is called last − k

The first three send more than one user may: masks hide it, and only the range of a sum of all users is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.learning.data import Dataset, Partition
from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.lab.learning.seeds import Purpose, generator
from sparsesecagg.protocol import Parameters
from sparsesecagg.rounding import Quantizer

ATTACKS = ("range", "reverse", "drift", "sign-flip", "ipm", "alie", "label-flip")
BEYOND = frozenset({"range", "reverse", "drift"})  # Attacks that use the range of a whole group.
_OF_THE_RANGE = 0.9  # The part that an attacker uses: a sum beyond the range of honest users is thrown away.
_DEVIATIONS = 1.5


@dataclass(frozen=True)
class Malicious:
    """Who they are, and what they do."""

    users: frozenset[int]
    attack: str

    @classmethod
    def draw(cls, clients: int, fraction: float, attack: str, seed: int) -> Malicious:
        """Draw the malicious users of a run; at least one, unless the fraction is 0."""
        count = max(1, round(fraction * clients)) if fraction else 0
        drawn = generator(seed, Purpose.MALICIOUS).choice(clients, count, replace=False)
        return cls(frozenset(drawn.tolist()), attack)

    def labels(self, dataset: Dataset, partition: Partition) -> Dataset:
        """Return the data as the malicious users see it."""
        if self.attack != "label-flip" or not self.users:
            return dataset
        labels = dataset.train_y.copy()
        for user in self.users:
            labels[partition.indices[user]] = len(dataset.classes) - 1 - labels[partition.indices[user]]
        return replace(dataset, train_y=labels)

    def parameters(self, params: Parameters) -> Parameters:
        """Return a run's parameters as a malicious user reads them: all of the word's range is its own to use."""
        if self.attack not in BEYOND:
            return params
        own = Parameters.decode(params.encode())
        vars(own)["shape"] = params.shape
        vars(own)["quantizer"] = Quantizer(params.word.largest, params.quantizer.scale)
        return own

    def replace(self, updates: Mapping[int, Vector], size: int, clip: Vector) -> dict[int, Vector]:
        """Return the updates with the malicious users'; `size` is a group's, `clip` what one user may send."""
        honest = [update for user, update in updates.items() if user not in self.users]
        if len(honest) == len(updates) or not honest or self.attack == "label-flip":
            return dict(updates)
        crafted = None if self.attack == "sign-flip" else self._crafted(np.stack(honest), size, clip)
        sent = {user: -updates[user] if crafted is None else crafted for user in updates.keys() & self.users}
        return {**updates, **sent}

    def _crafted(self, honest: NDArray[np.float32], size: int, clip: Vector) -> Vector:
        """Return what all of them send."""
        mean: Vector = honest.mean(axis=0)
        if self.attack == "range":
            sent = -np.sign(mean) * np.float32(_OF_THE_RANGE * size) * clip
        elif self.attack == "alie":
            sent = mean - np.float32(_DEVIATIONS) * honest.std(axis=0)
        elif self.attack == "ipm":
            there = mean != 0
            room = np.min(clip[there] / np.abs(mean[there]), initial=np.inf) if there.any() else 1.0
            sent = -mean * np.float32(room)
        else:
            # Honest groups' means lie this far from the mean of all, and so will that of the attacker's group.
            radius = np.sqrt(honest.var(axis=0).sum() / size)
            towards = -mean if self.attack == "reverse" else np.where(np.arange(len(mean)) % 2, 1, -1) * clip
            sent = mean + np.float32(size * radius / max(np.linalg.norm(towards), 1e-30)) * towards
        return sent.astype(np.float32)
