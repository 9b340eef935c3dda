"""Restoring secrets from shares of which some are false.

Shares of one secret are a word of a Reed–Solomon code, so false ones can be corrected instead of searched for. As long
as nobody lies this costs one matrix product for all secrets. Of n shares, t of them needed, there may be false

    ⌊(n − t)/2⌋     always, even if an adversary chose them;
    n − t − 1       if the errors have no pattern: the false holders are told from all secrets at once;
    n − t           whatever the errors, where all sets of t holders are tried: n choose t is at most 5,000.

A secret is only ever accepted by the caller's own check, so that none of this can give a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.shamir import LIMBS, PRIME, Elements, canonical, left_factor, multiply, times

_CHUNK_ELEMENTS = 1 << 18
"""Elements of shares that are worked on at a time: 2 MB."""

MOST_SETS = 5000
"""Sets of holders that are tried on one secret."""

_MOST_TRIALS = 16 * MOST_SETS
"""The same on all secrets of a group: two seconds for 90 holders, much less for few."""

Places = NDArray[np.int64]
"""Places of holders within a group, increasing."""

Rows = NDArray[np.int64]
"""Numbers of secrets, increasing."""


@dataclass(frozen=True)
class Decoded:
    """What became of each secret."""

    secrets: list[bytes | None] = field(repr=False)
    """The secrets; None where too few shares are right."""

    false: NDArray[np.bool_]
    """Which shares are not on their secret's polynomial, of shape (secrets, holders). None are named for a secret that
    was not restored, nor where it can't be told who is right. Whether the holder sent or the owner dealt a false share
    can't be told either."""


def restore(
    shares: Elements,
    holders: NDArray[np.int64],
    threshold: int,
    genuine: Callable[[int, bytes], bool],
    present: NDArray[np.bool_] | None = None,
    liars: int = 0,
) -> Decoded:
    """Restore many secrets and name the false shares.

    `shares` has shape (secrets, holders, LIMBS), in the order of `holders`. `present`, of shape (secrets, holders),
    says which of them there are; all, if not given. `genuine(index, secret)` tells whether `secret` is the one that its
    owner published a commitment to. A secret with fewer than `threshold` shares is not restored.

    Holders who lie together can move a secret's polynomial away from others and leave the secret as it is. It takes
    n − t + 2 − m of them to make m others look false; nobody is named whom `liars` could have framed like that.
    """
    if len(np.unique(holders)) < len(holders):
        raise ValueError("share indices must differ")
    restored = Decoded([None] * len(shares), np.zeros(shares.shape[:2], np.bool_))
    if present is None:
        present = np.ones_like(restored.false)
    sets = [(rows, np.flatnonzero(present[rows[0]])) for rows in _rows_by_content(present)]
    enough = [(rows, places) for rows, places in sets if len(places) >= threshold]
    if not enough:
        return restored
    # Of all groups at once, because a sparse share graph makes a group of almost every secret.
    coefficients = shamir.lagrange_coefficients(np.stack([holders[places[:threshold]] for _, places in enough]))
    for (rows, places), first in zip(enough, coefficients, strict=True):
        group = _Group(rows, shares[np.ix_(rows, places)], holders[places], threshold, genuine)
        group.restore(first)
        certain = group.false.sum(axis=1) + liars <= len(places) - threshold + 1
        restored.false[np.ix_(rows, places)] = group.false & certain[:, None]
        for row, secret in zip(rows, group.secrets, strict=True):
            restored.secrets[row] = secret
    return restored


class _Group:
    """Secrets with the same holders, and what is known of them so far. Rows and places count within the group."""

    def __init__(
        self,
        names: Rows,
        shares: Elements,
        holders: NDArray[np.int64],
        threshold: int,
        genuine: Callable[[int, bytes], bool],
    ) -> None:
        self.shares, self.threshold = shares, threshold
        self.points = holders.astype(np.uint64) + np.uint64(1)
        self.everywhere, self.spare = np.arange(len(holders)), len(holders) - threshold
        self.secrets: list[bytes | None] = [None] * len(shares)
        self.false = np.zeros(shares.shape[:2], np.bool_)
        self.explained = np.zeros(len(shares), np.bool_)
        """Secrets that are restored and whose false shares are known."""
        self._holders, self._names, self._genuine = holders, names, genuine

    def restore(self, coefficients: Elements) -> None:
        """Try the first holders, then whatever else there is for the secrets that this does not explain.

        `coefficients` are the Lagrange coefficients at 0 of the first holders.
        """
        self._settle(np.arange(len(self.shares)), self.everywhere, coefficients)
        for attempt in (self._correct, self._correct_together, self._search):
            if self.spare and not self.explained.all():
                attempt()

    def _correct(self) -> None:
        """Correct each limb by itself: up to ⌊(n − t)/2⌋ errors for certain. What one secret tells is tried on all."""
        for row in self._unexplained().tolist():
            if self.explained[row]:
                continue
            located = (self._located(self.shares[row][:, [limb]], self.spare // 2 + 1) for limb in range(LIMBS))
            found = [each for each in located if each is not None]
            right = np.flatnonzero(~np.any(found, axis=0))
            if len(found) == LIMBS and len(right) >= self.threshold:
                self._settle(self._unexplained(), right)

    def _correct_together(self) -> None:
        """Look for liars that all secrets have in common, then for those of each: n − t − 1, if there is no pattern."""
        rows = self._unexplained()
        # Of each only if LIMBS errors are not within what was corrected already.
        for some in [rows, *rows[:, None]] if self.spare < 2 * LIMBS else [rows]:
            columns = self.shares[some].transpose(1, 0, 2).reshape(len(self.points), -1)
            errors = self._located(columns[:, : 2 * self.spare], self.spare)
            if errors is not None:
                self._settle(some, np.flatnonzero(~errors), liars=np.flatnonzero(errors))

    @cached_property
    def _checks(self) -> Elements:
        """The (n − t, n) matrix that makes zeros of the values of any polynomial f of degree < t.

        Row k is λ_i · x_i^(k + 1), with λ for the Lagrange coefficients at 0: it gives the value at 0 of x^(k + 1) · f.
        """
        weights = shamir.lagrange_at_zero(tuple(self._holders.tolist()))
        return canonical(shamir.powers(self.points, self.spare + 1)[:, 1:].T * weights)

    def _located(self, columns: Elements, height: int) -> NDArray[np.bool_] | None:
        """Return which holders' errors explain columns of shares, if fewer than `height` explain all of them.

        The checks of a column are a sum over its false holders, of multiples of (1, x, x², …), and so is every stretch
        of them. If all stretches of this height together have as many dimensions as there are false holders, they span
        just what those holders' powers span, and nobody else's lies in there, because any `height` of them are
        independent. The stretches of one column do, for up to half as many false holders as there are checks; whole
        columns of many secrets do, if the errors have no pattern. Fewer than `height` liars can't point at others.
        """
        seen = multiply(left_factor(self._checks), columns)
        kernel = _left_kernel(np.concatenate([seen[low:][:height] for low in range(len(seen) - height + 1)], axis=1))
        errors = (multiply(left_factor(kernel), self._checks[:height]) == 0).all(axis=0)
        return errors if np.count_nonzero(errors) == height - len(kernel) else None

    def _search(self) -> None:
        """Try all sets of t holders on one secret, then those that fit it on all others, if there are few sets.

        With up to n − t false shares, every right one is in a set that gives the secret. So a holder in no such set
        is false. A holder in one may be false too, and is not named.
        """
        sets = comb(len(self.points), self.threshold)
        if sets > MOST_SETS:
            return
        places = np.array(list(combinations(self.everywhere.tolist(), self.threshold)))
        weights = shamir.lagrange_coefficients(self._holders[places])[:, :, None]
        for row in self._unexplained()[: _MOST_TRIALS // sets].tolist():
            if self.explained[row]:
                continue
            found = shamir.from_limbs(canonical(shamir.reduce(self.shares[row][places] * weights).sum(axis=1)))
            fits = (each for each in dict.fromkeys(found) if each and self._genuine(int(self._names[row]), each))
            secret = self.secrets[row] or next(fits, None)
            right = places[[each is not None and each == secret for each in found]]
            if len(right):
                self.secrets[row] = secret
                self._settle(np.array([row]), right[0], liars=np.setdiff1d(self.everywhere, right))
                self._settle(np.flatnonzero([each is None for each in self.secrets]), right[0])

    def _unexplained(self) -> Rows:
        return np.flatnonzero(~self.explained)

    def _settle(
        self, rows: Rows, places: Places, coefficients: Elements | None = None, liars: Places | None = None
    ) -> None:
        """Interpolate each secret from the first shares at `places`; if it is genuine, compare all other shares.

        Two liars among the first holders can leave the secret as it is and yet move the polynomial away from everybody
        else's share. So a holder that differs is false only if they are few enough, in each limb, for this to be the
        one polynomial near all shares, or if all of them are known `liars`.
        """
        most = self.spare // 2
        known = np.isin(self.everywhere, [] if liars is None else liars)
        base = places[: self.threshold]
        if coefficients is None:
            coefficients = shamir.lagrange_at_zero(tuple(self._holders[base].tolist()))
        others = np.delete(self.everywhere, base)
        at = np.concatenate([np.zeros(1, np.uint64), self.points[others]])
        matrix = left_factor(_lagrange_matrix(self.points[base], at, coefficients))
        step = max(1, _CHUNK_ELEMENTS // (len(self.points) * LIMBS))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            by_place = self.shares[some].transpose(1, 0, 2)
            values = multiply(matrix, by_place[base].reshape(len(base), -1)).reshape(len(at), len(some), LIMBS)
            differ = values[1:] != by_place[others]
            misfits, few = differ.any(axis=2), (differ.sum(axis=0) <= most).all(axis=1)
            for column, (row, secret) in enumerate(zip(some.tolist(), shamir.from_limbs(values[0]), strict=True)):
                if secret is None or not (secret == self.secrets[row] or self._genuine(int(self._names[row]), secret)):
                    continue
                self.secrets[row] = secret
                if few[column] or known[others[misfits[:, column]]].all():
                    self.false[row, others] = misfits[:, column]
                    self.explained[row] = True


def _rows_by_content(table: NDArray[np.bool_]) -> list[Rows]:
    """Return which rows are equal to each other."""
    groups: dict[bytes, list[int]] = {}
    for row, content in enumerate(np.packbits(table, axis=1)):
        groups.setdefault(content.tobytes(), []).append(row)
    return [np.array(rows, np.int64) for rows in groups.values()]


def _lagrange_matrix(base: Elements, at: Elements, coefficients: Elements) -> Elements:
    """Return the values at the points `at` of the polynomials that are 1 at one point of `base` and 0 at the others.

    Of shape (at, base); no point may be in both. With λ_j for the `coefficients` at 0, an entry is
    L_j(z) = λ_j · x_j / (x_j − z) · Π (x_m − z) / x_m.
    """
    signed = base.astype(np.int64) - at.astype(np.int64)[:, None]
    table = shamir.inverses_below(int(np.abs(signed).max()) + 1)[np.abs(signed)]  # Of users' numbers: a short one.
    reciprocals = np.where(signed < 0, PRIME - table, table)
    inverse_product = np.array(pow(int(shamir.product(base)), -1, PRIME), np.uint64)
    ratios = times(shamir.product((signed % PRIME).astype(np.uint64)), inverse_product)
    return canonical(times(reciprocals, times(coefficients, base)) * ratios[:, None])


def _left_kernel(matrix: Elements) -> Elements:
    """Return independent rows, as many as there are, whose product with the matrix is zero (Gauss's elimination)."""
    size, columns = matrix.shape
    work = np.concatenate([matrix, np.eye(size, dtype=np.uint64)], axis=1)
    rank = 0
    for column in range(columns):
        candidates = np.flatnonzero(work[rank:, column])
        if not len(candidates):
            continue
        work[[rank, rank + candidates[0]]] = work[[rank + candidates[0], rank]]
        pivot = times(work[rank], np.array(pow(int(work[rank, column]), -1, PRIME), np.uint64))
        below = work[rank + 1 :]
        below[:] = canonical(below + (PRIME - below[:, column])[:, None] * pivot)  # Below 2^31 + 2^62 and a little.
        rank += 1
    return work[rank:, columns:]
