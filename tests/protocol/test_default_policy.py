"""A node with a roster and nothing else configured: what it accepts keeps two honest users in every sum."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import comb

import msgspec
import numpy as np
import pytest

from protocol.rounds import identities
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import InvalidInput, PolicyViolation
from sparsesecagg.patterns.groups import group_sizes
from sparsesecagg.protocol import Parameters, Policy, RoundOptions

COHORTS = (3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 40)


@cache
def most_colluders(clients: int, groups: int) -> int:
    """Return how many of a tenth of the users a group has at most, but for 2^−40 over 16 draws; exact."""
    colluders = max(1, (clients + 5) // 10)
    if groups == 1:
        return colluders
    sizes = group_sizes(clients, groups)
    for most in range(colluders + 1):
        tail = sum(
            Fraction(
                sum(comb(colluders, k) * comb(clients - colluders, size - k) for k in range(most + 1, colluders + 1)),
                comb(clients, size),
            )
            for size in sizes
        )
        if 16 * tail <= Fraction(1, 2**40):
            return most
    return colluders


def honest_users(params: Parameters) -> int:
    """Return the bound of the design, by its formula."""
    worst = params.clients
    for size in set(params.sizes):
        c, t = min(size, most_colluders(params.clients, params.groups)), params.threshold
        if 2 * t <= size + c:
            return 0
        worst = min(worst, t - c - (size - t) ** 2 // (t - c))
    return worst


@cache
def usual(clients: int, group_size: int | None) -> tuple[Parameters, Roster]:
    """Return parameters to change, and a roster; made once, because making one checks every signature."""
    roster = replace(identities(clients)[0].roster, group_size=group_size)
    one_group = replace(roster, group_size=None)
    return Parameters.create(clients, 64, RoundOptions(threshold=clients), roster=one_group), roster


def proposals(rng: np.random.Generator) -> tuple[Parameters, Roster]:
    """Return parameters as a server might make them up, and the roster they name."""
    clients = int(rng.choice(COHORTS))
    size = None if rng.random() < 0.5 else int(rng.integers(3, clients + 1))
    made, roster = usual(clients, size)
    changed = msgspec.structs.replace(
        made,
        groups=int(rng.integers(1, max(1, clients // 3) + 1)),
        threshold=int(rng.integers(1, clients + 1)),
        colluding=float(rng.choice([0.0, 0.1, 0.4])),
        dropout=float(rng.choice([0.0, 0.1, 0.45])),
        alpha_q32=int(rng.integers(1 << 28, (1 << 32) + 1)),
        pattern=str(rng.choice(["sliced", "full", "pairwise"])),
        neighbours=int(rng.choice([0, 0, 0, 2, 4])),
        roster_digest=roster.digest,
    )
    return changed, roster


@pytest.mark.slow
def test_what_the_default_policy_accepts_with_a_roster_hides_one_among_two() -> None:
    rng, tried, accepted = np.random.default_rng(0), 0, 0
    while accepted < 2_000:
        tried += 1
        assert tried < 200_000
        params, roster = proposals(rng)
        try:
            params.check()
            Policy().check(params, roster)
        except (InvalidInput, PolicyViolation):
            continue
        accepted += 1
        assert honest_users(params) >= 2


def test_a_policy_that_asked_for_nothing_would_accept_less() -> None:
    """The control: among what the parameters alone allow there are runs in which one user is read."""
    rng, bare = np.random.default_rng(1), 0
    for _ in range(3_000):
        params, _ = proposals(rng)
        try:
            params.check()
        except InvalidInput:
            continue
        bare += honest_users(params) < 2
    assert bare > 10


@pytest.mark.parametrize("colluding", [0.0, 0.05])
def test_the_owner_may_write_less(colluding: float) -> None:
    """Three users of whom nobody colludes: two of three is enough for an owner that says so."""
    roster = identities(3)[0].roster
    params = Parameters.create(3, 64, RoundOptions(threshold=2), roster=roster)
    with pytest.raises(PolicyViolation):
        Policy().check(params, roster)
    if not colluding:
        assert Policy(colluding=colluding, server="semi-honest").check(params, roster).anonymity == 2
