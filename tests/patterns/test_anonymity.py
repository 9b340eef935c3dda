"""What groups promise: exact on small cases, never below what sampling finds, and the design brief's own figures."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.audit.sampling import assert_not_exceeded
from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import (
    Structure,
    availability,
    colluder_count,
    failure_log2,
    kept_anonymity,
    least_honest,
)
from sparsesecagg.privacy.tails import log_binomial_below


def highest(size: int, available: float, missed: float) -> int:
    """Return the highest number of users that is missed in at most this fraction of the rounds."""
    return max(n for n in range(size + 1) if math.exp(log_binomial_below(size, available, n)) <= missed)


DESIGN = [
    # N, θ, γ, excluded, with CONFIRM: (m, s, P, t), without.
    (50, 0.1, 0.1, 0, (15, 10, 30, 21), (17, 12, 34, 24)),
    (100, 0.05, 0.05, 0, (13, 10, 26, 20), (13, 10, 39, 32)),
    (100, 0.1, 0.1, 0, (21, 15, 42, 30), (23, 17, 69, 53)),
    (300, 0.1, 0.1, 0, (32, 24, 64, 48), (34, 26, 136, 109)),
    (1000, 0.1, 0.1, 0, (36, 27, 72, 55), (39, 30, 156, 126)),
    (1000, 0.1, 0.2, 0, (51, 40, 102, 80), (59, 47, 177, 144)),
    (10_000, 0.1, 0.1, 0, (38, 29, 76, 58), (44, 34, 132, 106)),
    (1000, 0.3, 0.1, 0, (153, 83, 612, 353), (330, 190, 990, 584)),
    (300, 0.1, 0.1, 0.2, (33, 25, 66, 50), (37, 28, 148, 119)),
    (1000, 0.1, 0.1, 0.2, (38, 29, 76, 58), (44, 34, 132, 106)),
    (1000, 0.1, 0.2, 0.2, (58, 46, 116, 92), (69, 55, 276, 229)),
]


@pytest.mark.parametrize(
    ("row", "confirm"), [(row, confirm) for row in DESIGN for confirm in (True, False)], ids=lambda x: str(x)[:22]
)
def test_sizes_of_the_design_brief(row, confirm) -> None:
    """The smallest committees that keep five honest users but for 2^−40, at the brief's committees per pod.

    Its convention: all groups are of equal size, as many as fit into those who are left after exclusions.
    """
    clients, dropout, colluding, excluded, *tables = row
    members, survivors, holders, threshold = tables[0 if confirm else 1]
    each = holders // members
    population = clients - round(excluded * clients)

    def found(size: int) -> tuple[Structure, float]:
        available, pods = availability(dropout), population // (each * size)
        groups = Structure(
            ((size,) * each,) * pods,
            highest(size, available, 0.01),
            highest(each * size, available, 0.001),
        )
        colluders = colluder_count(clients, colluding)
        return groups, failure_log2(groups, anonymity=5, colluders=colluders, population=population, confirm=confirm)

    sizes = range(max(8, members - 12), members + 1)
    groups = next(groups for groups, log2 in map(found, sizes) if log2 <= -40)
    assert (groups.smallest_committee, groups.min_survivors) == (members, survivors)
    assert (groups.smallest_pod, groups.threshold) == (holders, threshold)


def small_cases():
    for holders, members in product(range(2, 7), range(2, 5)):
        for inside, outside in product(range(members), range(holders - members + 1)):
            for survivors, threshold in product(range(1, members + 1), range(1, holders + 1)):
                if members <= holders and 2 * threshold > holders + inside + outside:
                    yield (members, survivors), (holders, threshold), (inside, inside + outside)


def least_by_trying_everything(committee, pod, colluders):
    """Return the smallest sum that a server can read which tells every honest holder whatever it likes.

    A holder accepts up to m − s dropped members and releases mask keys of these and private seeds of the others; the
    colluders release both. A sum can be read if of every honest member one secret or the other is opened.
    """
    (members, survivors), (holders, threshold), (inside, known) = committee, pod, colluders
    honest = range(members - inside)
    stories = [set(who) for count in range(members - survivors + 1) for who in combinations(honest, count)]
    needed, tellers = threshold - known, holders - known
    least = len(honest)
    for told in combinations_with_replacement(stories, tellers):
        dropped = Counter(who for story in told for who in story)
        keys = [who for who in honest if dropped[who] >= needed]
        seeds = [who for who in honest if tellers - dropped[who] >= needed]
        assert not set(keys) & set(seeds)
        if len(keys) + len(seeds) == len(honest):
            least = min(least, len(seeds))
    return least


def test_no_lying_server_leaves_fewer_honest_users_than_the_formula_and_some_leave_as_few() -> None:
    """Every way to tell different holders different survivors, for pods of up to six users."""
    checked: Counter[int] = Counter()
    for committee, pod, colluders in small_cases():
        formula = least_honest(committee, pod, colluders, confirm=False)
        honest = committee[0] - colluders[0]
        if math.comb(2**honest + pod[0], pod[0]) > 60_000:
            continue
        assert least_by_trying_everything(committee, pod, colluders) == formula
        checked[formula] += 1
    assert sum(checked.values()) > 150
    assert len(checked) >= 4


def test_one_story_for_all_leaves_the_demanded_survivors_less_the_colluders() -> None:
    assert least_honest((38, 29), (76, 58), (7, 12), confirm=True) == 22
    assert least_honest((38, 29), (76, 58), (7, 12), confirm=False) == 22 - 18 * 9 // 46
    assert least_honest((38, 29), (76, 58), (7, 40), confirm=True) == 0  # Both secrets of a user can be opened.


def exact_failure(groups, anonymity, colluders, population, confirm):
    """Return the probability of each event, added up over all groups, in rational arithmetic."""
    total = Fraction(0)
    all_ways = math.comb(population, colluders)
    for pod in groups.sizes:
        holders = sum(pod)
        threshold = groups.threshold_of(holders)
        for known in range(colluders + 1):
            ways = math.comb(holders, known) * math.comb(population - holders, colluders - known)
            if 2 * threshold <= holders + known:
                total += Fraction(ways, all_ways)
        for members in pod:
            for inside, outside in product(range(members + 1), range(holders - members + 1)):
                known = inside + outside
                if known > colluders or (2 * threshold <= holders + known and not confirm):
                    continue
                left = groups.survivors_of(members) - inside
                if not confirm:
                    left = least_honest(
                        (members, groups.survivors_of(members)), (holders, threshold), (inside, known), confirm=False
                    )
                if left < anonymity:
                    total += Fraction(
                        math.comb(members, inside)
                        * math.comb(holders - members, outside)
                        * math.comb(population - holders, colluders - known),
                        all_ways,
                    )
    return total


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_failure_of_a_lying_server_is_exact_but_for_the_union_over_groups(data) -> None:
    clients = data.draw(st.integers(4, 24))
    pods = data.draw(st.integers(1, 3))
    committees = pods * data.draw(st.integers(1, max(1, clients // pods // 3)))
    if committees > clients:
        return
    sizes = Structure.even(clients, committees, pods, min_survivors=1, threshold=1)
    groups = Structure(
        sizes.sizes,
        data.draw(st.integers(1, sizes.smallest_committee)),
        data.draw(st.integers(sizes.smallest_pod // 2 + 1, sizes.smallest_pod)),
    )
    population = data.draw(st.integers(max(clients - 4, groups.largest_pod), clients))
    colluders = data.draw(st.integers(0, population // 2))
    anonymity = data.draw(st.integers(1, 5))
    for confirm in (True, False):
        exact = exact_failure(groups, anonymity, colluders, population, confirm)
        found = failure_log2(
            groups, anonymity=anonymity, colluders=colluders, population=population, confirm=confirm, draws=1
        )
        if exact == 0:
            assert found == -math.inf
        else:
            assert 2**found == pytest.approx(min(1, float(exact)), rel=1e-4)


def drawn_colluders(groups, colluders, draws, seed):
    """Return the colluders in each committee and in each committee's pod, shape (draws, committees)."""
    rng = np.random.default_rng(seed)
    colludes = rng.permuted(np.tile(np.arange(groups.clients) < colluders, (draws, 1)), axis=1)
    members = [size for pod in groups.sizes for size in pod]
    inside = np.add.reduceat(colludes, np.cumsum([0, *members[:-1]]), axis=1)
    lengths = [len(pod) for pod in groups.sizes]
    per_pod = np.add.reduceat(inside, np.cumsum([0, *lengths[:-1]]), axis=1)
    return np.array(members), inside, np.repeat(per_pod, lengths, axis=1)


LOOSE = [
    (Structure.even(100, 8, 4, min_survivors=9, threshold=19), 16, 3),
    (Structure.even(61, 6, 2, min_survivors=9, threshold=25), 9, 4),
    (Structure.even(40, 2, 1, min_survivors=16, threshold=33), 9, 9),
    (Structure.even(90, 10, 5, min_survivors=7, threshold=14), 14, 2),
]


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize(("groups", "colluders", "anonymity"), LOOSE)
def test_a_lying_servers_chances_are_never_below_the_sampled_frequency(
    groups, colluders, anonymity, confirm: bool
) -> None:
    draws = 20_000
    members, inside, known = drawn_colluders(groups, colluders, draws, seed=colluders)
    sizes = [(size, sum(pod)) for pod in groups.sizes for size in pod]
    least = np.empty_like(inside)
    for at, (size, holders) in enumerate(sizes):
        table = {
            pair: least_honest(
                (size, groups.survivors_of(size)), (holders, groups.threshold_of(holders)), pair, confirm=confirm
            )
            for pair in set(zip(inside[:, at].tolist(), known[:, at].tolist(), strict=True))
        }
        least[:, at] = [table[pair] for pair in zip(inside[:, at].tolist(), known[:, at].tolist(), strict=True)]
    failed = int((least < anonymity).any(axis=1).sum())
    bound = 2 ** failure_log2(groups, anonymity=anonymity, colluders=colluders, confirm=confirm, draws=1)
    assert len(members) == groups.committees
    assert_not_exceeded(bound, failed, draws)
    assert bound < 3 * max(failed, 3) / draws


@pytest.mark.parametrize(("clients", "colluders", "survivors", "anonymity"), [(60, 20, 7, 5), (48, 10, 6, 5)])
def test_a_curious_servers_chances_are_never_below_the_sampled_frequency(
    clients: int, colluders: int, survivors: int, anonymity: int
) -> None:
    """Colluders always take part, honest users with the availability; five rounds per run."""
    groups = Structure.even(clients, 6, 3, min_survivors=survivors, threshold=clients // 6 + 1)
    draws, rounds, dropout = 20_000, 5, 0.15
    members, inside, known = drawn_colluders(groups, colluders, draws, seed=1)
    rng = np.random.default_rng(2)
    failed = (known >= [groups.threshold_of(sum(pod)) for pod in groups.sizes for _ in pod]).any(axis=1)
    needed = np.array([groups.survivors_of(size) for size in members])
    for _ in range(rounds):
        honest = rng.binomial(members - inside, availability(dropout))
        failed |= ((honest + inside >= needed) & (honest < anonymity)).any(axis=1)
    bound = 2 ** failure_log2(
        groups, anonymity=anonymity, colluders=colluders, server="curious", dropout=dropout, rounds=rounds, draws=1
    )
    assert_not_exceeded(bound, int(failed.sum()), draws)
    assert bound < 4 * failed.mean() + 1e-3 or bound == 1.0
    assert failed.any()


def test_each_draw_and_each_round_is_charged() -> None:
    groups = Structure.even(100, 8, 4, min_survivors=9, threshold=19)
    one = failure_log2(groups, anonymity=3, colluders=10, confirm=True, draws=1)
    assert failure_log2(groups, anonymity=3, colluders=10, confirm=True) == pytest.approx(one + 4, abs=1e-5)
    curious: dict[str, Any] = {"anonymity": 3, "colluders": 10, "server": "curious", "dropout": 0.1}
    assert failure_log2(groups, **curious, rounds=2000) > failure_log2(groups, **curious, rounds=1)


@given(st.data())
def test_privacy_only_gets_worse_with_more_colluders_a_smaller_population_or_a_higher_demand(data) -> None:
    groups = Structure.even(120, 8, 4, min_survivors=11, threshold=22)
    server = data.draw(st.sampled_from(["lying", "curious"]))
    confirm = data.draw(st.booleans())
    here = {"anonymity": data.draw(st.integers(1, 10)), "colluders": data.draw(st.integers(0, 30)), "population": 120}

    def failure(**changes):
        return failure_log2(groups, **here | changes, server=server, confirm=confirm, dropout=0.1)

    assert failure(colluders=here["colluders"] + 1) >= failure() - 1e-9
    assert failure(population=100) >= failure() - 1e-9
    assert failure(anonymity=here["anonymity"] + 1) >= failure() - 1e-9
    if server == "lying":
        confirmed = failure_log2(groups, **here, confirm=True)
        assert failure_log2(groups, **here, confirm=False) >= confirmed - 1e-9
        assert failure_log2(groups, **here, server="curious", dropout=0.1, rounds=1) <= confirmed + 1e-9


@given(st.integers(3, 400), st.data())
def test_fewer_users_make_fewer_groups_not_smaller_ones(clients, data) -> None:
    each, pods = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    if each * pods > clients:
        return
    sizes = Structure.even(clients, each * pods, pods, min_survivors=1, threshold=1)
    groups = Structure(sizes.sizes, max(1, sizes.smallest_committee * 3 // 4), max(1, sizes.smallest_pod * 3 // 4))
    fewer = data.draw(st.integers(max(1, clients // 2), clients))
    again = groups.among(fewer)
    assert again.clients == fewer
    assert groups.among(clients).committees == groups.committees
    if again.committees > 1:
        assert again.smallest_committee >= groups.smallest_committee
    if len(again.sizes) > 1:
        assert again.smallest_pod >= groups.smallest_pod
    assert again.min_survivors * groups.smallest_committee >= groups.min_survivors * again.smallest_committee
    assert again.threshold * groups.smallest_pod >= groups.threshold * again.smallest_pod


def test_a_population_smaller_than_a_pod_is_cut_anew() -> None:
    groups = Structure.even(50, 3, 1, min_survivors=11, threshold=37)
    assert groups.among(40).sizes == ((20, 20),)
    assert failure_log2(groups, anonymity=5, colluders=5, population=40, confirm=True) == failure_log2(
        groups.among(40), anonymity=5, colluders=5, confirm=True
    )


def test_kept_anonymity_is_the_largest_that_holds() -> None:
    groups = Structure.even(1000, 26, 13, min_survivors=29, threshold=58)
    facts: dict[str, Any] = {"colluders": 100, "population": 800, "confirm": True}
    kept = kept_anonymity(groups, allowed_log2=-40, **facts)
    assert kept == 5
    assert failure_log2(groups, anonymity=kept, **facts) <= -40 < failure_log2(groups, anonymity=kept + 1, **facts)
    assert kept_anonymity(groups, allowed_log2=-40, colluders=500) == 0


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"server": "evil"}, "server"),
        ({"colluders": -1}, "colluders"),
        ({"colluders": 101}, "colluders"),
        ({"anonymity": 0}, "anonymity"),
        ({"draws": 0}, "draws"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_impossible_questions_are_rejected(change, option: str) -> None:
    groups = Structure.even(100, 4, 2, min_survivors=15, threshold=30)
    with pytest.raises(InvalidInput, match=", got") as caught:
        failure_log2(groups, **{"anonymity": 5, "colluders": 10} | change)
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("sizes", "survivors", "threshold", "option"),
    [
        (((5, 5),), 6, 6, "min_survivors"),
        (((5, 5),), 0, 6, "min_survivors"),
        (((5, 5),), 3, 11, "threshold"),
        ((), 1, 1, "sizes"),
        (((),), 1, 1, "sizes"),
    ],
)
def test_groups_that_could_never_be_opened_are_rejected(sizes, survivors: int, threshold: int, option: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Structure(sizes, survivors, threshold)
    assert caught.value.option == option
