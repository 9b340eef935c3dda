"""Everything that a malicious server can do in a round of one group, as a model of the rule of release.

c of the P users collude: they give the server all their shares, and tags over whatever header it likes. The server
chooses the header of each honest user, and tells each honest holder its own survivors, by naming others or by garbling
tags. A holder releases, if it counts t survivors or more, shares of the private seeds of those and of the mask secrets
of the other members of its header. Only the counts matter: τ = t − c shares of honest holders open a secret. So all
lies are tried by adding up, holder by holder, every set that it can be told, and keeping each reachable count once.

What can be read then is linear algebra. A sum Σ λᵢ·uploadᵢ is free of unknown masks if λᵢ = 0 where the private seed is
closed, and λᵢ = λⱼ where i and j share an unknown mask; where i has one with somebody who did not upload under i's
header, λᵢ = 0. So the sums that can be read are those over the connected parts that have no such user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
"""Reachable counts, each as one number: digit i < w counts the holders that name i, digit w those that release."""

KINDS = ("no member", "member", "member with a forged key")
"""What the header says about an honest user that got another one, or none."""


@dataclass(frozen=True)
class Group:
    """P users, t of whom open a secret, c of whom collude."""

    size: int
    threshold: int
    colluders: int

    @property
    def honest(self) -> int:
        """n: honest users."""
        return self.size - self.colluders

    @property
    def needed(self) -> int:
        """τ: shares of honest holders that open a secret, and honest survivors that a holder must count."""
        return self.threshold - self.colluders

    @property
    def is_safe(self) -> bool:
        """Whether 2t > P + c, which users demand."""
        return 2 * self.threshold > self.size + self.colluders


@cache
def reachable(same_header: int, needed: int) -> tuple[Codes, ...]:
    """Return the counts that can be reached among honest users with one header, after each of the holders."""
    base = same_header + 1
    digits = base ** np.arange(same_header + 1)
    layers = [np.zeros(1, np.int64)]
    for holder in range(same_header):
        layers.append(np.unique(layers[-1][:, None] + _answers(holder, same_header, needed, digits)[None, :]))
    return tuple(layers)


def _answers(holder: int, same_header: int, needed: int, digits: Codes) -> Codes:
    """Return what a holder's answer adds: one for each set that it may be told; 0 if it releases nothing."""
    sets = np.array([chosen for chosen in range(1 << same_header) if chosen >> holder & 1], np.int64)
    bits = sets[:, None] >> np.arange(same_header) & 1
    allowed = bits[bits.sum(axis=1) >= needed]
    return np.append(allowed @ digits[:-1] + digits[-1], 0)


def opened(codes: Codes, same_header: int, needed: int) -> list[tuple[int, int, int]]:
    """Return what different counts open: private seeds and mask secrets as bit sets, and how many holders released."""
    base = same_header + 1
    counts = codes[:, None] // base ** np.arange(same_header + 1) % base
    named, released = counts[:, :-1], counts[:, -1:]
    bits = 1 << np.arange(same_header)
    seeds = (named >= needed) @ bits
    masks = (released - named >= needed) @ bits
    return [(int(s), int(m), int(k)) for s, m, k in np.unique(np.stack([seeds, masks, released[:, 0]], 1), axis=0)]


@dataclass(frozen=True)
class Knowledge:
    """What a server ends with. Honest users are 0 … n − 1; the first `same_header` of them got one header."""

    same_header: int
    kinds: tuple[str, ...]
    """What that header says about each of the others."""
    seeds: int
    """Bit set of those whose private seed is open."""
    masks: int
    """Of those whose mask secret is open."""

    def sums(self) -> list[int]:
        """Return the users of every sum that can be read, as bit sets."""
        left, found = set(range(self.same_header)), []
        while left:
            part, reached = 0, [left.pop()]
            while reached:
                i = reached.pop()
                part |= 1 << i
                near = {j for j in left if not (self.masks >> i | self.masks >> j) & 1}
                left -= near
                reached += near
            if all(self._can_be_in(i) for i in range(self.same_header) if part >> i & 1):
                found.append(part)
        return found

    def _can_be_in(self, i: int) -> bool:
        """Tell whether i's private mask is known, and all masks that i shares with those of other headers."""
        others = range(self.same_header, self.same_header + len(self.kinds))
        unknown = (
            j
            for j, kind in zip(others, self.kinds, strict=True)
            if kind == "member" and not (self.masks >> i | self.masks >> j) & 1
        )
        return bool(self.seeds >> i & 1) and not any(unknown)


def outcomes(group: Group) -> Iterator[Knowledge]:
    """Yield everything that a server can know after a round, for one header that is answered.

    Users of other headers release nothing if 2t > P + c: `reachable` shows that both can't have τ survivors. So they
    are only members who did not upload, of whom the holders release mask secrets.
    """
    for same_header in range(1, group.honest + 1):
        others = group.honest - same_header
        for seeds, masks, released in opened(reachable(same_header, group.needed)[-1], same_header, group.needed):
            for kinds in combinations_with_replacement(KINDS, others):
                gone = sum(
                    1 << same_header + j
                    for j, kind in enumerate(kinds)
                    if kind != "no member" and released >= group.needed
                )
                yield Knowledge(same_header, kinds, seeds, masks | gone)


def smallest_sum(group: Group) -> tuple[int, int, int]:
    """Return the fewest honest users in a readable sum, the most readable sums of a round, and the outcomes tried."""
    least, most, tried = group.honest + 1, 0, 0
    for known in outcomes(group):
        sums = known.sums()
        tried += 1
        most = max(most, len(sums))
        least = min([least, *(each.bit_count() for each in sums)])
    return least, most, tried


def told_sets(group: Group, seeds: int, masks: int) -> list[set[int] | None]:
    """Return what to tell each holder so that these secrets open, everybody under one header; None: nothing."""
    count = group.honest
    layers, digits = reachable(count, group.needed), (count + 1) ** np.arange(count + 1)
    code = next(
        int(code) for code in layers[-1] if opened(np.array([code]), count, group.needed)[0][:2] == (seeds, masks)
    )
    told: list[set[int] | None] = []
    for holder in reversed(range(count)):
        answers = _answers(holder, count, group.needed, digits)
        answer = int(answers[np.isin(code - answers, layers[holder])][0])
        told.append({i for i in range(count) if answer // int(digits[i]) % (count + 1)} or None)
        code -= answer
    return told[::-1]
