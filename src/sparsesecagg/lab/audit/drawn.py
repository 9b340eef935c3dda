"""Reading `pairwise`: every coordinate has its own mask graph, and the attacker does not see it.

It removes every mask that it knows and tells by size: a value without masks, or the sum of two that share one, is a
small number; a masked one is uniform modulo q, and passes for a bare one with probability (2B + 1)/q, where ±B is the
range of plausible values. The attacker takes B from the public aggregate and reads by size only if that chance is
below `LARGEST_CHANCE`. A value is read without any guess if no other honest survivor sent the coordinate, and never
read if it bears no known mask: whoever uploads a coordinate shares a mask there, so it must be an honest survivor's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.field import Word, unpack
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.patterns.gaps import decode_locations
from sparsesecagg.patterns.masks import DrawnMask, Pair, add_to_column, add_whole
from sparsesecagg.patterns.pairwise import PairwiseSum
from sparsesecagg.protocol.epoch import Header, mask_private

LARGEST_CHANCE = 1e-6  # A masked value may look bare with at most this probability, or nothing is read by size.
PLAUSIBLE_DEVIATIONS = 6  # B in units of a value's root mean square: a normal value lies beyond with probability 2e-9.

Ids = NDArray[np.int64]
Edges = tuple[Ids, Ids]  # Both ends of each edge, as node numbers.


@dataclass(frozen=True)
class Findings:
    """What the attacker claims to have read out of a round. Nodes are values of single users."""

    nodes: Ids
    values: Ids
    pairs: NDArray[np.int64]  # Nodes, two by two, that form a component of their own.
    pair_sums: Ids
    wrong_values: float  # Bound on the expected number of values that are read wrongly.
    wrong_pairs: float  # Bound on the expected number of pairs that are not pairs.


class DrawnValues:
    """The values of honest users that are in a sum that can be read, without the masks that are known: nodes."""

    def __init__(self, adversary: Adversary) -> None:
        self._adversary = adversary
        self.users = sorted(set().union(*adversary.sums()))  # Indices.
        self.word, self.dim = adversary.epoch.params.word, adversary.epoch.params.dim
        sent = [self._coordinates_of(index) for index in self.users]
        self.starts = np.cumsum([0, *map(len, sent)])
        self.coordinate: Ids = np.concatenate([np.empty(0, np.int64), *sent])
        self.user = np.repeat(np.array(self.users, np.int64), [len(each) for each in sent])
        stripped = [self._stripped(index, each) for index, each in zip(self.users, sent, strict=True)]
        self.values: Ids = np.concatenate([np.empty(0, np.int64), *(values for values, _ in stripped)])
        self.known_mask = np.concatenate([np.empty(0, np.bool_), *(known for _, known in stripped)])
        """Where a pair's mask was removed."""

    def __len__(self) -> int:
        return len(self.user)

    def _coordinates_of(self, index: int) -> Ids:
        return decode_locations(self._adversary.uploads[index].locations, self.dim)

    @property
    def closed(self) -> int:
        """How many values of honest users are in no sum that can be read."""
        left = self._adversary.uploads.keys() - self._adversary.colluders - set(self.users)
        return sum(len(self._coordinates_of(index)) for index in left)

    def nodes_of(self, index: int) -> slice:
        """Return where a user's nodes lie."""
        place = self.users.index(index)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def _stripped(self, index: int, coordinates: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        """Remove the private mask and the masks of pairs that are known from one upload."""
        each, word = self._adversary, self.word
        header, user = each.header_of[index], each.epoch.user(index)
        sums = word.embed(unpack(each.uploads[index].words, len(coordinates), word))
        masked_sum = _drawn_sum(header)
        pairs = [
            Pair(user, each.epoch.user(peer), agreed)
            for peer in header.partners(index).tolist()
            if (agreed := each.agreed(header, index, peer)) is not None
        ]
        # The user added the mask if its number is the smaller one.
        masks = [
            DrawnMask(mask.stream, mask.positive, np.searchsorted(coordinates, mask.rows))
            for mask in masked_sum.shared_masks(pairs, [pair.user > pair.peer for pair in pairs])
        ]
        known = np.zeros(len(coordinates), np.bool_)
        for mask in masks:
            known[mask.rows] = True
        add_to_column(sums, masks, word)
        add_whole(sums, [masked_sum.private_mask(user, each.seeds[index], positive=False)], word)
        return word.lift(word.reduce(sums)), known

    @cached_property
    def senders(self) -> Ids:
        """How many honest survivors sent each coordinate."""
        return np.bincount(self.coordinate, minlength=self.dim)

    # Reading

    def attack(self) -> Findings:
        """Read single values that are alone or small, then find pairs whose sum is small."""
        exposed = [index for index in self.users if index in self._adversary.mask_secrets]
        bare = (self.senders[self.coordinate] == 1) | np.isin(self.user, exposed)
        bound, modulus, tests = self._plausible_bound(), self.word.modulus, 0
        chance = (2 * bound + 1) / modulus
        if chance <= LARGEST_CHANCE:
            candidates = self.known_mask & ~bare
            bare |= candidates & (np.abs(self.values) <= bound)
            tests = int(candidates.sum())
        pair_bound = int(np.ceil(np.sqrt(2) * bound))  # The sum of two has √2 times the spread.
        pair_chance = (2 * pair_bound + 1) / modulus
        pairs, sums, pair_tests = np.empty((0, 2), np.int64), np.empty(0, np.int64), 0
        if pair_chance <= LARGEST_CHANCE:
            pairs, sums, pair_tests = small_pairs(
                np.flatnonzero(~bare), self.coordinate, self.values, pair_bound, self.word
            )
        nodes = np.flatnonzero(bare)
        return Findings(nodes, self.values[nodes], pairs, sums, tests * chance, pair_tests * pair_chance)

    def _plausible_bound(self) -> int:
        """Return B: several times the root mean square of a value, estimated from the aggregate.

        The masks among honest survivors cancel in the sum over all of them. If updates have something in common the sum
        grows faster than by chance and B is too large, which only makes the attacker more careful.
        """
        sums = np.zeros(self.dim, np.int64)
        np.add.at(sums, self.coordinate, self.values)
        totals = self.word.lift(np.mod(sums, self.word.modulus).astype(self.word.accumulator)).astype(np.float64)
        return int(np.ceil(PLAUSIBLE_DEVIATIONS * np.sqrt(float(np.sum(totals**2)) / max(1, len(self)))))

    # The truth, for which the mask secrets of all users are needed

    def components(self, mask_secrets: dict[int, SharedSecret]) -> Ids:
        """Return for each node the first node of its component: masks that only two honest users know join nodes."""
        each, epoch = self._adversary, self._adversary.epoch
        hidden = [index for index in self.users if index not in each.mask_secrets]
        ends: list[Edges] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for index in hidden:
            header = each.header_of[index]
            private = mask_private(epoch, each.round_number, epoch.user(index), mask_secrets[index])
            agreement, partners = KeyAgreement(private), set(header.partners(index).tolist())
            peers = [peer for peer in hidden if peer > index and peer in partners]
            pairs = [
                Pair(epoch.user(index), epoch.user(peer), agreement.with_peer(header.mask_key[peer])) for peer in peers
            ]
            for peer, mask in zip(peers, _drawn_sum(header).shared_masks(pairs, [True] * len(pairs)), strict=True):
                ends.append((self._find(index, mask.rows), self._find(peer, mask.rows)))
        return label_components(len(self), tuple(np.concatenate(side) for side in zip(*ends, strict=True)))  # type: ignore[arg-type]

    def _find(self, index: int, coordinates: Ids) -> Ids:
        nodes = self.nodes_of(index)
        return np.asarray(nodes.start + np.searchsorted(self.coordinate[nodes], coordinates), np.int64)


def _drawn_sum(header: Header) -> PairwiseSum:
    found = header.masked_sum()
    assert isinstance(found, PairwiseSum)  # noqa: S101  # The one pattern whose coordinates are drawn by pairs.
    return found


def label_components(nodes: int, edges: Edges) -> Ids:
    """Return for each node the smallest node of its connected component."""
    labels = np.arange(nodes)
    while True:
        one, other = labels[edges[0]], labels[edges[1]]
        if np.array_equal(one, other):
            return labels
        smaller = np.minimum(one, other)
        np.minimum.at(labels, one, smaller)
        np.minimum.at(labels, other, smaller)
        # A label always points to a smaller node: following it to the end makes labels roots again.
        while not np.array_equal(labels, labels[labels]):
            labels = labels[labels]


def component_sizes(labels: Ids) -> Ids:
    """Return for each node how many nodes its component has."""
    return np.bincount(labels, minlength=len(labels))[labels]


def small_pairs(rest: Ids, coordinate: Ids, values: Ids, bound: int, word: Word) -> tuple[NDArray[np.int64], Ids, int]:
    """Return pairs of nodes of one coordinate whose sum is small, the sums, and how many pairs were tried.

    A node that fits two partners is left out: one of the two is an accident.
    """
    rest = rest[np.argsort(coordinate[rest], kind="stable")]
    found = [np.empty((0, 2), np.int64)]
    tried = 0
    for distance in range(1, len(rest)):
        one, other = rest[:-distance], rest[distance:]
        together = coordinate[one] == coordinate[other]
        if not together.any():
            break
        one, other = one[together], other[together]
        tried += len(one)
        small = np.abs(_sum(values, one, other, word)) <= bound
        found.append(np.stack([one[small], other[small]], axis=1))
    pairs = np.concatenate(found)
    fits = np.bincount(pairs.reshape(-1), minlength=len(coordinate))
    pairs = pairs[(fits[pairs] == 1).all(axis=1)]
    return pairs, _sum(values, pairs[:, 0], pairs[:, 1], word), tried


def _sum(values: Ids, one: Ids, other: Ids, word: Word) -> Ids:
    return word.lift(np.mod(values[one] + values[other], word.modulus).astype(word.accumulator))
