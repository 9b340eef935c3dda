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
from sparsesecagg.patterns import SMALLEST_COMMITTEE, Committee, PatternSettings, served_fraction, smallest_committee
from sparsesecagg.patterns.committee import arc_sizes


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
        Case(clients=25, dim=1000, alpha=0.4),
        Case(clients=25, dim=1000, alpha=0.3, missing=(3, 24)),
        Case(clients=23, dim=400, alpha=2 / 3, degree=6, missing=(11,)),
        Case(clients=10, dim=77, alpha=13 / 16, stripes=2),
        Case(clients=5, dim=40, alpha=0.6, stripes=1, missing=(2,)),
    ]

    def test_committees_of_a_stripe_differ_by_one_member_at_most(self, case: Case) -> None:
        pattern, share = make(case), served_fraction(case.settings)
        for first in range(0, pattern.layout.blocks, share.denominator):
            sizes = [len(pattern.committee(block)) for block in range(first, first + share.denominator)]
            assert max(sizes) - min(sizes) <= 1
            assert sum(sizes) == share.numerator * len(case.members)

    def test_a_committee_is_a_set_of_members(self, case: Case) -> None:
        pattern = make(case)
        for block in range(pattern.layout.blocks):
            committee = pattern.committee(block).tolist()
            assert len(set(committee)) == len(committee)

    def test_everybody_serves_equally_many_blocks_of_each_stripe(self, case: Case) -> None:
        """So everybody sends the same number of words, always."""
        pattern, share = make(case), served_fraction(case.settings)
        stripes = range(pattern.layout.blocks // share.denominator)
        for user in case.members:
            served = [block // share.denominator for block in sent_by(pattern, user)]
            assert served == [stripe for stripe in stripes for _ in range(share.numerator)]
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
        """Unless all serve everywhere."""
        first = {frozenset(make(case, bytes([seed]) * 32).committee(0).tolist()) for seed in range(10)}
        assert (len(first) > 1) == (served_fraction(case.settings) < 1)


@given(st.integers(1, 2**32), st.integers(3, 300))
def test_users_serve_the_fraction_nearest_to_alpha(alpha: int, clients: int) -> None:
    """Of all with a denominator up to 16, and 1/G; none that gives committees below three if α·N is at least three."""
    wanted = Fraction(alpha, 2**32)
    share = served_fraction(PatternSettings(clients, dim=10, alpha=alpha, degree=None, stripes=1))
    whole = int(1 / wanted + Fraction(1, 2))
    candidates = {Fraction(a, b) for b in range(1, 17) for a in range(1, b + 1)}
    if wanted * clients >= 3:
        candidates = {a_b for a_b in candidates | {Fraction(1, min(whole, clients // 3))} if int(clients * a_b) >= 3}
    elif Fraction(alpha + 1, 2**32) * clients < 3:
        candidates |= {Fraction(1, whole)}
    else:
        return  # So near to three that the rounding of α decides; see the next test.
    assert share in candidates
    assert all((abs(share - wanted), share.denominator) <= (abs(c - wanted), c.denominator) for c in candidates)


@given(st.integers(3, 1000))
def test_the_smallest_alpha_for_committees_of_three_gives_them(clients: int) -> None:
    """Three over the number of clients, although it may be no multiple of 2^−32."""
    settings = Case(clients=clients, dim=10, alpha=3 / clients).settings
    assert smallest_committee(settings) >= SMALLEST_COMMITTEE


@given(st.integers(1, 100).flatmap(lambda groups: st.tuples(st.just(groups), st.integers(3 * groups, 1000))))
def test_one_over_a_whole_number_is_kept(sizes: tuple[int, int]) -> None:
    groups, clients = sizes
    assert served_fraction(Case(clients=clients, dim=10, alpha=1 / groups).settings) == Fraction(1, groups)


@pytest.mark.parametrize(
    ("alpha", "share"),
    [
        *[(1.0, "1"), (0.99, "1"), (0.7, "7/10"), (0.66, "2/3"), (0.5, "1/2"), (0.41, "5/12"), (0.4, "2/5")],
        *[(1 / 3, "1/3"), (0.3, "3/10"), (0.1, "1/10"), (0.097, "1/10"), (0.05, "1/20"), (0.03, "1/33")],
        (31 / 32, "1"),  # As near to 15/16.
    ],
)
def test_fractions_for_everyday_values(alpha: float, share: str) -> None:
    settings = Case(clients=100, dim=10, alpha=alpha).settings
    assert served_fraction(settings) == Fraction(share)
    assert Committee.selection_probability(settings) == float(Fraction(share))


def test_ten_of_twenty_five_users_are_four_tenths() -> None:
    case = Case(clients=25, dim=1000, alpha=0.4)
    pattern = make(case)
    assert [len(pattern.committee(block)) for block in range(pattern.layout.blocks)] == [10] * 20
    assert smallest_committee(case.settings) == Committee.contributors(case.settings) == 10


@given(st.integers(1, 200), st.integers(1, 16).flatmap(lambda b: st.tuples(st.integers(1, b), st.just(b))))
def test_arcs_and_committees_have_one_of_two_sizes(members: int, served: tuple[int, int]) -> None:
    share = Fraction(*served)
    sizes = arc_sizes(members, share)
    assert sum(sizes) == members
    assert max(sizes) - min(sizes) <= 1
    committees = {sum((sizes * 2)[k : k + share.numerator]) for k in range(share.denominator)}
    assert committees <= {int(members * share), -int(-members * share // 1)}


def test_with_one_arc_per_committee_the_first_ones_are_larger() -> None:
    assert arc_sizes(14, Fraction(1, 4)) == [4, 4, 3, 3]


@given(st.data())
def test_committees_are_what_users_say_they_send(data: st.DataObject) -> None:
    """Any α, any cohort, any dropouts: blocks, peers, shared blocks and counts of survivors all agree."""
    clients = data.draw(st.integers(3, 40))
    case = Case(
        clients=clients,
        dim=data.draw(st.integers(1, 500)),
        alpha=data.draw(st.floats(3 / clients, 1)),
        degree=data.draw(st.sampled_from([None, 4])),
        stripes=data.draw(st.integers(1, 4)),
        missing=tuple(data.draw(st.sets(st.integers(0, clients - 1), max_size=clients - 3))),
    )
    pattern = make(case)
    sent = {user: set(sent_by(pattern, user)) for user in case.members}
    for block in range(pattern.layout.blocks):
        assert {user for user in case.members if block in sent[user]} == set(pattern.committee(block).tolist())
        assert len(pattern.committee(block)) <= Committee.contributors(case.settings)
        if not case.missing:
            assert len(pattern.committee(block)) >= smallest_committee(case.settings) >= 3
    for user in case.members:
        for peer, blocks in shared_with(pattern, user, pattern.peers(user)).items():
            assert set(np.asarray(blocks).tolist()) <= sent[user] & sent[peer]
    survivors = data.draw(st.sets(st.sampled_from(case.members), min_size=1))
    counts = pattern.survivors_per_block(np.array(sorted(survivors)))
    assert counts.tolist() == [len(survivors & set(pattern.committee(b).tolist())) for b in range(len(counts))]


@given(st.integers(3, 200), st.integers(1, 5000), st.floats(0.02, 1), st.integers(1, 50))
def test_stripes_are_as_many_as_asked_if_the_model_is_large_enough(
    clients: int, dim: int, alpha: float, stripes: int
) -> None:
    settings = Case(clients=clients, dim=dim, alpha=alpha, stripes=stripes).settings
    layout, count = Committee.make_layout(settings), served_fraction(settings).denominator
    assert layout.blocks % count == 0
    assert layout.blocks // count == max(1, min(stripes, dim // count))


@pytest.mark.parametrize("alpha", [1 / 3, 0.4])
def test_committees_are_drawn_evenly(alpha: float) -> None:
    """Any two users meet in the first block as often as any other two; 4,000 rounds, error rate 1e-6."""
    case = Case(clients=9, dim=5, alpha=alpha, stripes=1)
    met = np.zeros((9, 9), np.int64)
    for number in range(4000):
        committee = make(case, number.to_bytes(32, "little")).committee(0)
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
