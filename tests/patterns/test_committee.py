"""`committee`: public random committees, balanced and complete, the same burden for everybody."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patterns.suite import Case, PatternSuite, sent_by, shared_with
from reference import statistics
from sparsesecagg.patterns import SMALLEST_COMMITTEE, Committee, PatternSettings
from sparsesecagg.patterns.committee import groups


def make(case: Case, seed: bytes = b"\x07" * 32) -> Committee:
    pattern = case.pattern(Committee, seed)
    assert isinstance(pattern, Committee)
    return pattern


class TestCommittee(PatternSuite):
    kind = Committee
    cases: ClassVar = [
        Case(clients=3, dim=1, alpha=1.0),
        Case(clients=12, dim=1000, alpha=1 / 3),
        Case(clients=14, dim=100, alpha=0.25),
        Case(clients=13, dim=1001, alpha=0.25, missing=(4,)),
        Case(clients=50, dim=3000, alpha=0.1, stripes=7, missing=(0, 1, 49)),
        Case(clients=40, dim=500, alpha=0.25, degree=4),
        Case(clients=40, dim=3, alpha=0.25, stripes=8),
    ]

    def test_committees_of_a_stripe_differ_by_one_member_at_most(self, case: Case) -> None:
        pattern, count = make(case), groups(case.settings)
        for first in range(0, pattern.layout.blocks, count):
            sizes = [len(pattern.committee(block)) for block in range(first, first + count)]
            assert max(sizes) - min(sizes) <= 1
            assert sum(sizes) == len(case.members)

    def test_everybody_serves_exactly_one_block_of_each_stripe(self, case: Case) -> None:
        """So everybody sends the same number of words, always."""
        pattern, count = make(case), groups(case.settings)
        stripes = pattern.layout.blocks // count
        for user in case.members:
            assert [block // count for block in sent_by(pattern, user)] == list(range(stripes))
            assert sent_by(pattern, user) == [
                block for block in range(pattern.layout.blocks) if user in pattern.committee(block)
            ]

    def test_a_missing_user_serves_nowhere(self, case: Case) -> None:
        """Early dropouts do not thin the committees."""
        pattern = make(case)
        served = {int(user) for block in range(pattern.layout.blocks) for user in pattern.committee(block)}
        assert served == set(case.members)

    def test_masks_connect_each_committee(self, case: Case) -> None:
        """Whoever opens a block learns the sum over its whole committee and nothing less."""
        pattern = make(case)
        shared = {user: shared_with(pattern, user, pattern.peers(user)) for user in case.members}
        for block in range(pattern.layout.blocks):
            committee = pattern.committee(block).tolist()
            joined = {u: {p for p, blocks in shared[u].items() if block in np.asarray(blocks)} for u in committee}
            degree = len(committee) - 1 if case.degree is None else min(case.degree, len(committee) - 1)
            assert all(len(peers) == degree and peers <= set(committee) for peers in joined.values())
            reached = {committee[0]}
            for _ in committee:
                reached |= {peer for user in reached for peer in joined[user]}
            assert reached == set(committee)

    def test_another_public_seed_gives_other_committees(self, case: Case) -> None:
        """Unless there is but one group."""
        first = {frozenset(make(case, bytes([seed]) * 32).committee(0).tolist()) for seed in range(10)}
        assert (len(first) > 1) == (groups(case.settings) > 1)


@given(st.integers(1, 2**32), st.integers(3, 300))
def test_the_number_of_groups_is_one_over_alpha_to_the_nearest_integer(alpha: int, clients: int) -> None:
    """A half goes up; rounding never takes a committee below three members if α·N is at least three."""
    settings = PatternSettings(clients, dim=10, alpha=alpha, degree=None, stripes=1)
    nearest = max(1, int(1 / Fraction(alpha, 2**32) + Fraction(1, 2)))
    if Fraction(alpha, 2**32) * clients >= 3:
        assert groups(settings) == min(nearest, clients // 3)
        assert clients // groups(settings) >= 3
    elif Fraction(alpha + 1, 2**32) * clients < 3:
        assert groups(settings) == nearest


@given(st.integers(3, 1000))
def test_the_smallest_alpha_for_committees_of_three_gives_them(clients: int) -> None:
    """Three over the number of clients, although it may be no multiple of 2^−32."""
    settings = Case(clients=clients, dim=10, alpha=3 / clients).settings
    assert clients // groups(settings) >= SMALLEST_COMMITTEE


@pytest.mark.parametrize(
    ("alpha", "count"),
    [(1.0, 1), (0.7, 1), (0.66, 2), (0.5, 2), (0.41, 2), (0.4, 3), (1 / 3, 3), (0.1, 10), (0.097, 10)],
)
def test_groups_for_everyday_values(alpha: float, count: int) -> None:
    assert groups(Case(clients=100, dim=10, alpha=alpha).settings) == count
    assert Committee.selection_probability(Case(clients=100, dim=10, alpha=alpha).settings) == pytest.approx(1 / count)


@given(st.integers(3, 200), st.integers(1, 5000), st.floats(0.02, 1), st.integers(1, 50))
def test_stripes_are_as_many_as_asked_if_the_model_is_large_enough(
    clients: int, dim: int, alpha: float, stripes: int
) -> None:
    settings = Case(clients=clients, dim=dim, alpha=alpha, stripes=stripes).settings
    layout, count = Committee.make_layout(settings), groups(settings)
    assert layout.blocks % count == 0
    assert layout.blocks // count == max(1, min(stripes, dim // count))


def test_committees_are_drawn_evenly() -> None:
    """Any two users meet in a block as often as any other two; 3,000 rounds, error rate 1e-6."""
    case = Case(clients=9, dim=3, alpha=1 / 3, stripes=1)
    met = np.zeros((9, 9), np.int64)
    for number in range(3000):
        pattern = make(case, number.to_bytes(32, "little"))
        for block in range(3):
            committee = pattern.committee(block)
            met[np.ix_(committee, committee)] += 1
    statistics.assert_follows(met[np.triu_indices(9, 1)], np.full(36, 1 / 36))


def test_blocks_are_drawn_evenly() -> None:
    """A user serves each block of a stripe equally often, independently of the stripe before; error rate 1e-6."""
    case = Case(clients=12, dim=4000, alpha=0.25, stripes=1000)
    pattern = make(case)
    served = np.array([sent_by(pattern, user) for user in range(12)]) % 4
    assert served.shape == (12, 1000)
    for user in (0, 5, 11):
        statistics.assert_uniform(4 * served[user, :-1] + served[user, 1:], 16)
