"""The truth that an attack is compared with: known to the simulation, to nobody in a real round.

Two things: the mask graph among honest survivors, for which every user's keys are needed, and the users' updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.privacy.attack import Findings
from sparsesecagg.privacy.components import Ids, component_sizes, label_components, mask_edges
from sparsesecagg.privacy.view import Agreements, Draws, View, private_key_of
from sparsesecagg.protocol.masking import pair_seeds

UpdateOf = Callable[[int], NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Score:
    """Claims, and how many of them are true."""

    count: int = 0
    correct: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.count + other.count, self.correct + other.correct)


class Truth:
    """The components of honest survivors, and what they uploaded."""

    def __init__(
        self, view: View, draws_of: Mapping[int, Draws], update_of: UpdateOf, weights: Mapping[int, int]
    ) -> None:
        """`draws_of` has the random bytes of every user. `weights` is empty in a round without weights."""
        self._view = view
        self._weights = weights
        self.update_of = update_of
        self.labels = self._components(draws_of)
        self.sizes = component_sizes(self.labels)

    def _components(self, draws_of: Mapping[int, Draws]) -> Ids:
        view = self._view
        members, directory = view.members, view.directory
        hidden = [user for user in view.honest if not self._is_exposed(user)]
        keys = {user: private_key_of(draws_of[user], directory.mask_key(user)) for user in hidden}
        agreements = Agreements(directory, keys)

        def seeds_of(user: int, peers: Sequence[int]) -> list[PatternSeed]:
            return [pair_seeds(agreements.between(user, peer), members.context, user, peer)[1] for peer in peers]

        secret = None if members.pattern.public else seeds_of
        return label_components(len(view.nodes), mask_edges(members.pattern, view.nodes, hidden, secret))

    def _is_exposed(self, user: int) -> bool:
        """Whether colluders hold enough shares of the user's mask key: then it has no secret left."""
        return len(self._view.colluding_holders(user)) >= self._view.params.threshold

    def score_values(self, findings: Findings) -> Score:
        """Compare the values read: right means less than one quantisation step off, as stochastic rounding is."""
        correct = 0
        for user in np.unique(findings.user).tolist():
            here = findings.user == user
            error = findings.value[here] - self._scaled(user)[findings.coordinate[here]]
            correct += int(np.count_nonzero(np.abs(error) < 1))
        return Score(len(findings.value), correct)

    def score_pairs(self, findings: Findings) -> Score:
        """Compare the pairs found: right means that the two form a component, and that the sum is theirs."""
        one, other = findings.pair_nodes.T
        component = (self.labels[one] == self.labels[other]) & (self.sizes[one] == 2)
        nodes = self._view.nodes
        values = np.zeros(len(nodes))
        for user in np.unique(nodes.user[findings.pair_nodes]).tolist():
            values[nodes.all_of(user)] = self._scaled(user)[nodes.blocks_of[user]]
        error = findings.pair_sums - values[one] - values[other]
        return Score(len(one), int(np.count_nonzero(component & (np.abs(error) < 2))))

    def score_weights(self, findings: Findings) -> Score:
        """Compare the weights read."""
        right = [self._weights.get(user) == weight for user, weight in findings.weights.items()]
        return Score(len(right), sum(right))

    def _scaled(self, user: int) -> NDArray[np.float64]:
        """Return the user's update in quantisation steps, before rounding."""
        quantizer, largest = self._view.params.quantizer, self._view.params.max_weight
        factor = self._weights[user] / largest if largest else 1.0
        scaled = self.update_of(user).astype(np.float64) * (quantizer.scale * factor)
        return np.clip(scaled, -quantizer.limit, quantizer.limit)
