"""Restoring secrets from shares of which some are false.

Shares of one secret are a word of a Reed–Solomon code, so false ones can be corrected instead of searched for: of n
shares, t of them needed, any ⌊(n − t)/2⌋ may be false, even if an adversary chose them. As long as nobody lies this
costs one matrix product for all secrets; it also names the false shares that were not needed.

Where more are false, two further ways are tried: since a false share rarely has a pattern, the false holders are told
from all secrets at once (up to n − t − 1 of them); and where there are few sets of t holders, all are tried (n − t may
be false). So of n shares there may be false

    ⌊(n − t)/2⌋     always;
    n − t − 1       if the errors have no pattern;
    n − t           whatever the errors, where n choose t is at most 5,000: 10 holders and t = 7, 90 and t = 88.

A secret is only ever accepted by the caller's own check, so that none of this can give a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.shamir import (
    LIMBS,
    PRIME,
    Elements,
    canonical,
    from_limbs,
    inverses_below,
    lagrange_coefficients,
    left_factor,
    multiply,
    powers,
    product,
    reduce,
    times,
)

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
    coefficients = lagrange_coefficients(np.stack([holders[places[:threshold]] for _, places in enough]))
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
        self.everywhere = np.arange(len(holders))
        self.secrets: list[bytes | None] = [None] * len(shares)
        self.false = np.zeros(shares.shape[:2], np.bool_)
        self.explained = np.zeros(len(shares), np.bool_)
        """Secrets that are restored and whose false shares are known."""
        self._names, self._genuine = names, genuine

    def restore(self, coefficients: Elements) -> None:
        """Try the first holders, then whatever else there is for the secrets that this does not explain.

        `coefficients` are the Lagrange coefficients at 0 of the first holders.
        """
        self._settle(np.arange(len(self.shares)), self.everywhere, coefficients)
        for attempt in (self._correct, self._correct_together, self._search):
            if not self.explained.all():
                attempt()

    def _correct_together(self) -> None:
        """Look for liars that all secrets have in common, then for those of each."""
        self._correct_alike(self._unexplained())
        if len(self.points) - self.threshold < 2 * LIMBS:  # Else LIMBS errors are within what was corrected already.
            for row in self._unexplained():
                self._correct_alike(np.array([row]))

    def _search(self) -> None:
        """Try all sets of t holders on one secret, then those that fit it on all others, if there are few sets.

        With up to n − t false shares, every right one is in a set that gives the secret. So a holder in no such set
        is false. A holder in one may be false too, and is not named.
        """
        sets = comb(len(self.points), self.threshold)
        if sets > MOST_SETS or len(self.points) == self.threshold:
            return
        places = np.array(list(combinations(self.everywhere.tolist(), self.threshold)))
        weights = lagrange_coefficients(self.points[places].astype(np.int64) - 1)[:, :, None]
        for row in self._unexplained()[: _MOST_TRIALS // sets].tolist():
            if self.explained[row]:
                continue
            found = from_limbs(canonical(reduce(self.shares[row][places] * weights).sum(axis=1)))
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
        most = (len(self.points) - self.threshold) // 2
        known = np.isin(self.everywhere, [] if liars is None else liars)
        base = places[: self.threshold]
        if coefficients is None:
            coefficients = _coefficients_at_zero(self.points[base])
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
            for column, (row, secret) in enumerate(zip(some.tolist(), from_limbs(values[0]), strict=True)):
                if secret is None or not (secret == self.secrets[row] or self._genuine(int(self._names[row]), secret)):
                    continue
                self.secrets[row] = secret
                if few[column] or known[others[misfits[:, column]]].all():
                    self.false[row, others] = misfits[:, column]
                    self.explained[row] = True

    def _correct(self) -> None:
        """Correct the shares of each secret, each limb by itself: up to ⌊(n − t)/2⌋ errors for certain."""
        rows = self._unexplained()
        checks = _parity_checks(self.points, len(self.points) - self.threshold)
        locators, lengths = _locators(multiply(left_factor(checks), self._columns(rows)))
        back = inverses_below(int(self.points.max()) + 1)[self.points]
        errors = multiply(left_factor(powers(back, len(locators))), locators) == 0  # (places, rows · LIMBS)
        # A false share is a root; with fewer roots than the recurrence is long, there are too many errors.
        known = (errors.sum(axis=0) == lengths).reshape(-1, LIMBS).all(axis=1)
        found = errors.reshape(len(self.points), -1, LIMBS).any(axis=2).T[known]
        for some in _rows_by_content(found):
            right = self.everywhere[~found[some[0]]]
            if len(right) >= self.threshold:
                self._settle(rows[known][some], right)

    def _correct_alike(self, rows: Rows) -> None:
        """Look for holders whose errors explain all of these secrets: up to n − t − 1, if the errors have no pattern.

        The checks of a secret are a combination of the columns that belong to its false holders. If all secrets' checks
        together have as many dimensions as there are false holders, they span just what those columns span, and no
        other holder's column lies in there, because any n − t columns are independent. For the same reason fewer than
        n − t liars can't point at anybody else.
        """
        spare = len(self.points) - self.threshold
        checks = _parity_checks(self.points, spare)
        seen = multiply(left_factor(checks), self._columns(rows)[:, : 2 * spare])
        kernel = _left_kernel(seen)
        errors = (multiply(left_factor(kernel), checks) == 0).all(axis=0)
        if np.count_nonzero(errors) == spare - len(kernel):
            self._settle(rows, self.everywhere[~errors], liars=self.everywhere[errors])

    def _columns(self, rows: Rows) -> Elements:
        """Return the shares of some secrets as columns, one per limb: (places, rows · LIMBS)."""
        return self.shares[rows].transpose(1, 0, 2).reshape(len(self.points), -1)


def _rows_by_content(table: NDArray[np.bool_]) -> list[Rows]:
    """Return which rows are equal to each other."""
    groups: dict[bytes, list[int]] = {}
    for row, content in enumerate(np.packbits(table, axis=1)):
        groups.setdefault(content.tobytes(), []).append(row)
    return [np.array(rows, np.int64) for rows in groups.values()]


def _coefficients_at_zero(points: Elements) -> Elements:
    coefficients: Elements = lagrange_coefficients(points[None].astype(np.int64) - 1)[0]
    return coefficients


def _lagrange_matrix(base: Elements, at: Elements, coefficients: Elements) -> Elements:
    """Return the values at the points `at` of the polynomials that are 1 at one point of `base` and 0 at the others.

    Of shape (at, base); no point may be in both. With λ_j for the `coefficients` at 0, an entry is
    L_j(z) = λ_j · x_j / (x_j − z) · Π (x_m − z) / x_m.
    """
    signed = base.astype(np.int64) - at.astype(np.int64)[:, None]
    table = inverses_below(int(np.abs(signed).max()) + 1)[np.abs(signed)]  # Users' numbers, so it is a short one.
    reciprocals = np.where(signed < 0, PRIME - table, table)
    inverse_product = np.array(pow(int(product(base)), -1, PRIME), np.uint64)
    ratios = times(product((signed % PRIME).astype(np.uint64)), inverse_product)
    return canonical(times(reciprocals, times(coefficients, base)) * ratios[:, None])


def _parity_checks(points: Elements, spare: int) -> Elements:
    """Return the (spare, points) matrix that makes zeros of the values of any polynomial f of degree < points − spare.

    Row k is λ_i · x_i^(k + 1), with λ for the Lagrange coefficients at 0: it gives the value at 0 of x^(k + 1) · f.
    """
    return canonical(powers(points, spare + 1)[:, 1:].T * _coefficients_at_zero(points))


def _locators(sequences: Elements) -> tuple[Elements, NDArray[np.int64]]:
    """Find the shortest linear recurrence of each column, all at once (Berlekamp and Massey, without divisions).

    Returns connection polynomials, constant term first, of shape (length // 2 + 1, columns), and the recurrences'
    lengths. Where a length exceeds half the sequence's, the polynomial is not complete, and not needed.
    """
    length, columns = sequences.shape
    size = length // 2 + 1
    current, previous = np.zeros((2, size, columns), np.uint64)
    current[0] = previous[0] = 1
    scale = np.ones(columns, np.uint64)
    lengths = np.zeros(columns, np.int64)
    for step in range(length):
        terms = min(step + 1, size)
        window = sequences[step - terms + 1 : step + 1][::-1]
        discrepancy = canonical(reduce(current[:terms] * window).sum(axis=0))
        previous = np.concatenate([np.zeros((1, columns), np.uint64), previous[:-1]])
        corrected = canonical(current * scale + previous * (PRIME - discrepancy))  # Two products below 2^62.
        grows = (discrepancy != 0) & (2 * lengths <= step)
        previous = np.where(grows, current, previous)
        scale = np.where(grows, discrepancy, scale)
        lengths = np.where(grows, step + 1 - lengths, lengths)
        current = corrected
    return current, lengths


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
