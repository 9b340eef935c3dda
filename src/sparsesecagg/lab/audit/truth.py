"""The truth that an attack is compared with: known to the simulation, to nobody in a real round.

Three things: which secrets have enough shares, by counting and without any cryptography; the mask graph among honest
users, for which every user's keys are needed; and the users' updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.lab.audit.attack import Findings
from sparsesecagg.lab.audit.colluder import Draws
from sparsesecagg.lab.audit.components import Edges, component_sizes, label_components, open_components
from sparsesecagg.lab.audit.pooling import Kind
from sparsesecagg.lab.audit.view import PodView, View, agreed_between
from sparsesecagg.protocol.drawn import Drawn
from sparsesecagg.protocol.order import mask_key_of
from sparsesecagg.protocol.package import mask_private
from sparsesecagg.protocol.work import Pair

UpdateOf = Callable[[int], NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Score:
    """Claims, and how many of them are true."""

    count: int = 0
    correct: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.count + other.count, self.correct + other.correct)


class Truth:
    """The components of honest users, and what they uploaded."""

    def __init__(
        self, view: View, draws_of: Mapping[int, Draws], update_of: UpdateOf, weights: Mapping[int, int]
    ) -> None:
        """`draws_of` has the random bytes of every user. `weights` is empty in a round without weights."""
        self._view = view
        self._weights = weights
        self._known = {pod.epoch.pod.index: _exposed(pod) for pod in view.pods}
        self.update_of = update_of
        if view.params.pattern == "pairwise":
            self.labels = label_components(len(view.nodes), self._drawn_edges(draws_of))
            self.sizes = component_sizes(self.labels)
        else:
            size_of = self._public_sizes()
            self.labels = np.arange(len(view.nodes))
            self.sizes = np.array([size_of[user] for user in view.nodes.user.tolist()], np.int64)

    def _public_sizes(self) -> dict[int, int]:
        """Return the size of each honest user's component, by counting shares."""
        sizes: dict[int, int] = {}
        for pod in self._view.pods:
            hidden = [place for place in pod.honest if place not in self._known[pod.epoch.pod.index]]
            opened = [place for place in pod.honest if place in pod.uploads and _enough(pod, Kind.PRIVATE_SEED, place)]
            found = open_components(hidden, opened, pod.order.mask_peers)
            sizes |= {pod.user(place): size for place, size in found.items()}
        return sizes

    def _drawn_edges(self, draws_of: Mapping[int, Draws]) -> Edges:
        """Return an edge for every mask that two honest users share at a coordinate of `pairwise`."""
        nodes, ends = self._view.nodes, [(np.empty(0, np.int64),) * 2]
        for pod in self._view.pods:
            users = pod.epoch.pod.users
            hidden = [place for place in pod.sizes if place not in self._known[pod.epoch.pod.index]]
            agreements = {place: _agreement(pod, place, draws_of[int(users[place])]) for place in hidden}
            for place in hidden:
                peers = [peer for peer in pod.order.mask_peers(place) if peer > place and peer in agreements]
                pairs = [
                    Pair(int(users[place]), int(users[peer]), agreed_between(agreements, pod.packages, place, peer))
                    for peer in peers
                ]
                work = pod.work(place)
                assert isinstance(work, Drawn)  # noqa: S101
                for pair, mask in zip(pairs, work.shared_masks(pairs, [True] * len(pairs)), strict=True):
                    ends.append((nodes.find(pair.user, mask.rows), nodes.find(pair.peer, mask.rows)))
        return np.concatenate([one for one, _ in ends]), np.concatenate([other for _, other in ends])

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
            values[nodes.all_of(user)] = self._scaled(user)[nodes.slices_of[user]]
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


def _enough(pod: PodView, kind: Kind, owner: int) -> bool:
    """Count who has given the attacker a share of a secret: colluders give both kinds, the others one of the two."""
    giving = sum(
        owner in owners and (owner in pod.told[holder]) == (kind is Kind.PRIVATE_SEED)
        for holder, owners in pod.released.items()
    )
    partners = set(pod.epoch.partners(owner).tolist())
    return giving + len(partners.intersection(pod.colluders)) >= pod.epoch.threshold


def _exposed(pod: PodView) -> set[int]:
    """Return the honest members whose mask secrets have enough shares."""
    return {owner for owner in pod.honest if _enough(pod, Kind.MASK_SECRET, owner)}


def _agreement(pod: PodView, place: int, draws: Draws) -> KeyAgreement:
    """Return a user's side of all agreements of a round, from what it drew."""
    key, user, number = mask_key_of(pod.packages[place].head), pod.user(place), pod.order.round_number
    for draw in reversed(draws):  # The round was one of the last.
        if len(draw) == shamir.SECRET_SIZE:
            private = mask_private(pod.epoch, number, user, SharedSecret(draw))
            if public_key(private) == key:
                return KeyAgreement(private)
    raise ValueError("the mask key comes from none of the user's draws")
