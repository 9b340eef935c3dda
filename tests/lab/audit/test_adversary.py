"""What server and colluders restore from messages, which sums they can read, and how well they can lie."""

from collections import Counter

import numpy as np
import pytest

from lab.audit.rounds import attacked, attacked_run, next_round, parameters, steps_of, users_of
from sparsesecagg.lab.audit.adversary import told_dropped
from sparsesecagg.privacy.anonymity import honest_in_sum
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy


def test_unmask_gives_survivors_seeds_and_dropped_users_mask_secrets() -> None:
    (known,) = attacked(parameters(8, 30, pattern="full"), dropped=[2]).known
    assert set(known.seeds) == {0, 1, 3, 4, 5, 6, 7}
    assert set(known.mask_secrets) == {2}
    assert known.sums() == [{0, 1, 3, 4, 5, 6, 7}]


def test_colluders_bring_their_mask_secrets_and_are_no_aim() -> None:
    (known,) = attacked(parameters(8, 30, pattern="full"), colluders=[1, 4], dropped=[0]).known
    assert set(known.mask_secrets) == {0, 1, 4}
    assert known.sums() == [{2, 3, 5, 6, 7}]


def test_the_sum_of_the_honest_survivors_comes_out_and_no_part_of_it() -> None:
    params = parameters(8, 30, pattern="full")
    (known,) = attacked(params, colluders=[1, 4], dropped=[0]).known
    (part,) = known.sums()
    found, steps = known.read(part), steps_of(0, 30)
    assert found is not None
    assert found.values.tolist() == sum(steps(user) for user in part).tolist()
    assert known.read(set(list(part)[1:])) is None


@pytest.mark.parametrize(("colluders", "opened"), [(4, False), (5, True)])
def test_a_threshold_of_colluders_reads_everybody_and_one_fewer_nobody(colluders: int, opened: bool) -> None:
    found = attacked(parameters(9, 10, pattern="full", threshold=5), colluders=range(colluders))
    tally = found.tally()
    assert (tally.by_size[1] > 0) == opened
    assert tally.read.correct == tally.read.count == (40 if opened else 0)


def test_a_threshold_of_colluders_reads_what_the_server_could_not_open() -> None:
    found = attacked(parameters(9, 10, pattern="full", threshold=7), colluders=range(7), dropped=[0, 1, 7])
    assert found.outcome is None
    assert "needed" in found.problem
    assert found.tally().read.correct == 10


def test_a_group_that_is_not_opened_stays_closed_to_fewer_colluders() -> None:
    found = attacked(parameters(9, 10, pattern="full", threshold=7), colluders=range(3), dropped=[6, 7, 8])
    assert found.known[0].sums() == []
    assert found.tally().closed == 3 * 10
    assert found.tally().unopened == 1


def test_later_rounds_are_seen_as_well_with_missed_rounds_between() -> None:
    """A user that misses two rounds has no package in the third; one that misses one is a member of the next."""
    run = attacked_run(parameters(12, 20, alpha=0.5, threshold=8), colluders=[4])
    missing = [[0, 1], [0], [], []]
    seen = [next_round(run, dropped=dropped, seed=number).known[0] for number, dropped in enumerate(missing)]
    everybody = set(range(12))
    assert [set(known.packages) for known in seen] == [everybody, everybody, everybody - {0}, everybody]
    assert [known.sums() for known in seen] == [
        [everybody - {4, 0, 1}],
        [everybody - {4, 0}],
        [everybody - {4, 0}],
        [everybody - {4}],
    ]


def test_groups_are_seen_apart() -> None:
    found = attacked(parameters(24, 24, alpha=0.25, group_size=12), dropped=[0, 1])
    parts = [users_of(known, part) for known in found.known for part in known.sums()]
    assert len(parts) == 2
    assert set().union(*parts) == set(range(2, 24))


def test_with_a_roster_colluders_bring_their_identities() -> None:
    identities = make_identities(9, "test", seeded_entropy(1))
    run = attacked_run(parameters(9, 12, identities[0].roster), colluders=[2, 5], identities=identities)
    (known,) = next_round(run, dropped=[7]).known
    assert set(known.mask_secrets) == {2, 5, 7}
    assert known.sums() == [{0, 1, 3, 4, 6, 8}]


def test_a_sparse_mask_graph_falls_apart_when_all_neighbours_collude() -> None:
    params = parameters(10, 20, pattern="full", neighbours=2, threshold=3)
    neighbours = attacked(params).known[0].epoch.partners(5).tolist()
    found = attacked(params, colluders=neighbours)
    assert sorted(map(len, found.known[0].sums())) == [1, 7]
    assert found.tally().read.correct == 20


def test_a_lone_honest_user_gives_its_weight_away_with_its_values() -> None:
    params = parameters(9, 10, pattern="full", threshold=5, max_weight=9)
    tally = attacked(params, colluders=range(8), weights=[1 + user for user in range(9)]).tally()
    assert (tally.weights.count, tally.weights.correct) == (1, 1)


def test_weights_of_many_are_seen_as_a_sum_only() -> None:
    params = parameters(9, 10, pattern="full", threshold=5, max_weight=9)
    found = attacked(params, colluders=[0], weights=[1 + user for user in range(9)])
    opened = found.known[0].read(range(1, 9))
    assert opened is not None
    assert opened.weight == sum(range(2, 10))
    assert found.tally().weights.count == 0


# The best lie about survivors


@pytest.mark.parametrize("size", [4, 5, 6, 10, 25, 40])
def test_no_lie_leaves_fewer_honest_users_than_the_bound(size: int) -> None:
    reached = 0
    for threshold in range(size // 2 + 1, size + 1):
        for colluders in range(threshold):
            bound = honest_in_sum(size, threshold, colluders, "malicious")
            if not bound:
                continue
            honest = list(range(size - colluders))
            told = told_dropped(honest, size, threshold, colluders)
            against = Counter(index for lie in told.values() for index in lie)
            assert all(len(lie) <= size - threshold and holder not in lie for holder, lie in told.items())
            votes = threshold - colluders
            gone = [index for index in honest if against[index] >= votes]
            kept = [index for index in honest if len(honest) - against[index] >= votes]
            assert not set(gone) & set(kept)
            assert len(kept) >= bound
            reached += len(kept) == bound
    assert reached, "the bound is met by some lie"


def test_with_a_threshold_that_is_too_low_both_secrets_of_everybody_open() -> None:
    """2t ≤ P + c: twelve users, three collude, t = 7."""
    honest = list(range(9))
    told = told_dropped(honest, 12, 7, 3)
    against = Counter(index for lie in told.values() for index in lie)
    assert [against[index] for index in honest] == [4] * 9, "and five of the nine for it"


def test_nothing_can_be_left_out_where_everybody_must_stay() -> None:
    assert told_dropped(range(5), 5, 5, 0) == {}
    assert np.array_equal(sorted(told_dropped(range(5), 6, 5, 1)), range(5))
