"""The attack: remove every mask that server and colluders know, then read what lies bare.

Where the pattern is public the mask graph is too, so the attacker simply looks which values are left without a
mask. In `pairwise` it can't see which honest pairs share a mask, and tells by size: a value without masks is a small
number, a masked one is uniform modulo q. Two values that share a mask with each other and nobody else give
themselves away in the same manner, because their sum is small.

How sure is that? Whatever else is true, a masked value passes for a bare one with probability (2B + 1)/q, where
±B is the range of plausible values. The attacker takes B from the public aggregate and reads by size only if that
chance is below `LARGEST_CHANCE`; `Findings` bounds the expected number of wrong readings. A value is
read without any guess if no other honest survivor sent the coordinate, and never read if it bears no known mask:
whoever uploads a coordinate shares a mask there, so it must be one with an honest survivor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import Word
from sparsesecagg.lab.audit.components import Ids
from sparsesecagg.lab.audit.view import PodView, View
from sparsesecagg.protocol.drawn import Drawn
from sparsesecagg.protocol.masking import DrawnMask, Mask, WholeMasks, add_to_column

LARGEST_CHANCE = 1e-6
"""A masked value may look bare with at most this probability, or nothing is read by size."""

PLAUSIBLE_DEVIATIONS = 6
"""B in units of a value's root mean square: a normal value lies beyond with probability 2e-9."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Findings:
    """What the attacker claims to have read out of a round."""

    user: Ids = field(default_factory=_NONE.copy)
    coordinate: Ids = field(default_factory=_NONE.copy)
    value: Ids = field(default_factory=_NONE.copy)
    """Quantised values of single users, with their place."""
    weights: dict[int, int] = field(default_factory=dict)
    """Private weights of single users."""
    pair_nodes: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """Pairs of nodes that form a component of their own."""
    pair_sums: Ids = field(default_factory=_NONE.copy)
    wrong_values: float = 0.0
    """Bound on the expected number of values that are read wrongly."""
    wrong_pairs: float = 0.0
    """Bound on the expected number of pairs that are not pairs."""


@dataclass(frozen=True)
class Stripped:
    """The honest users' uploads without the masks that are known, node by node."""

    words: NDArray[np.int64]
    """Shape (nodes, width), signed."""
    known_mask: NDArray[np.bool_]
    """Whether a pairwise mask was removed there."""


def attack(view: View) -> Findings:
    """Read every value that follows from the view."""
    stripped = strip_known_masks(view)
    return _read_by_size(view, stripped) if view.params.pattern == "pairwise" else _read_public(view, stripped)


def strip_known_masks(view: View) -> Stripped:
    """Remove private masks, and pairwise masks with everybody whose mask key is known."""
    nodes, params = view.nodes, view.params
    words = np.zeros((len(nodes), params.width), np.int64)
    known_mask = np.zeros(len(nodes), np.bool_)
    for user, (pod, place) in view.place_of.items():
        sums = params.word.embed(pod.read_upload(place)[1])
        here = nodes.all_of(user)
        known_mask[here] = _strip(pod, place, sums, nodes.slices_of[user])
        words[here] = params.word.lift(params.word.reduce(sums))
    return Stripped(words, known_mask)


def _strip(pod: PodView, place: int, sums: NDArray[Any], coordinates: Ids) -> NDArray[np.bool_]:
    """Remove what is known from one upload, in place; return where there was a pairwise mask among it."""
    work, word = pod.work(place), pod.epoch.params.word
    peers = [peer for peer in pod.order.mask_peers(place) if place in pod.agreements or peer in pod.agreements]
    pairs = [pod.pair(place, peer) for peer in peers]
    # The user added the mask if its number is the smaller one.
    positive = [pair.user > pair.peer for pair in pairs]
    private = work.private_mask(pod.user(place), pod.private_seeds[place], positive=False)
    masked = np.zeros(len(sums), np.bool_)
    if isinstance(work, Drawn):
        column = sums[:, 0]
        masks = [
            DrawnMask(mask.stream, mask.positive, np.searchsorted(coordinates, mask.rows))
            for mask in work.shared_masks(pairs, positive)
        ]
        for mask in masks:
            masked[mask.rows] = True
        add_to_column(column, masks, word)
        WholeMasks([private], word).add(column)
        return masked
    masked[:] = bool(pairs)
    streams = [MaskStream(work.seeds(pair)[0], word) for pair in pairs]
    known = [Mask(stream, plus) for stream, plus in zip(streams, positive, strict=True)]
    WholeMasks([*known, private], word).add(sums.reshape(-1))
    return masked


def _read_public(view: View, stripped: Stripped) -> Findings:
    """Read the slices of users with whom no other honest user is in a sum. Certain."""
    params, nodes = view.params, view.nodes
    alone = [user for user, (pod, place) in view.place_of.items() if pod.sizes[place] == 1]
    bare = np.flatnonzero(np.isin(nodes.user, alone))
    length = params.slices.length
    coordinate = nodes.slice_number[bare, None] * length + np.arange(length)
    real = coordinate < params.dim
    weights = {}
    if params.max_weight:
        integers = params.digits.read(stripped.words[bare, length:] % params.word.modulus)
        weights = dict(zip(nodes.user[bare].tolist(), integers[:, 0].tolist(), strict=True))
    return Findings(
        user=np.broadcast_to(nodes.user[bare, None], coordinate.shape)[real],
        coordinate=coordinate[real],
        value=stripped.words[bare, :length][real],
        weights=weights,
    )


def _read_by_size(view: View, stripped: Stripped) -> Findings:
    """Read single coordinates that are alone or small, then find pairs whose sum is small."""
    nodes, modulus = view.nodes, view.params.word.modulus
    values = stripped.words[:, 0]
    senders = np.bincount(nodes.slice_number, minlength=view.params.dim)
    alone = senders[nodes.slice_number] == 1
    exposed = [user for user, (pod, place) in view.place_of.items() if place in pod.agreements]
    bare = alone | np.isin(nodes.user, exposed)

    bound = plausible_bound(view, values, senders)
    chance = (2 * bound + 1) / modulus
    tests = 0
    if chance <= LARGEST_CHANCE:
        candidates = stripped.known_mask & ~bare
        bare |= candidates & (np.abs(values) <= bound)
        tests = int(candidates.sum())

    # The sum of two has √2 times the spread.
    pair_bound = int(np.ceil(np.sqrt(2) * bound))
    pair_chance = (2 * pair_bound + 1) / modulus
    pairs, sums, pair_tests = np.empty((0, 2), np.int64), _NONE, 0
    if pair_chance <= LARGEST_CHANCE:
        pairs, sums, pair_tests = small_pairs(
            np.flatnonzero(~bare), nodes.slice_number, values, pair_bound, view.params.word
        )
    return Findings(
        user=nodes.user[bare],
        coordinate=nodes.slice_number[bare],
        value=values[bare],
        pair_nodes=pairs,
        pair_sums=sums,
        wrong_values=tests * chance,
        wrong_pairs=pair_tests * pair_chance,
    )


def plausible_bound(view: View, values: Ids, senders: Ids) -> int:
    """Return B: several times the root mean square of a value, estimated from the aggregate.

    The masks among honest survivors cancel in the sum over all of them. If updates have something in common the
    sum grows faster than by chance and B is too large, which only makes the attacker more careful.
    """
    word = view.params.word
    sums = np.zeros(len(senders), np.int64)
    np.add.at(sums, view.nodes.slice_number, values)
    totals = word.lift(np.mod(sums, word.modulus).astype(word.accumulator)).astype(np.float64)
    mean_square = float(np.sum(totals**2)) / max(1, int(senders.sum()))
    return int(np.ceil(PLAUSIBLE_DEVIATIONS * np.sqrt(mean_square)))


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
