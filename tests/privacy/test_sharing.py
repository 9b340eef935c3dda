"""The chosen share graph keeps every condition on the threshold, for all sorts of cohorts."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesecagg.privacy.sharing import Cohort, choose_sharing
from sparsesecagg.privacy.theory import colluder_count

BUDGET = -40 * math.log(2)


def choose(clients, dropout, colluding, log_apart=lambda degree: -math.inf):
    cohort = Cohort(clients, colluder_count(clients, colluding), dropout)
    return cohort, choose_sharing(cohort, log_budget=BUDGET, abort_budget=5e-4, log_apart=log_apart)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 5000), st.floats(0.0, 0.49), st.floats(0.0, 0.49))
def test_threshold_is_a_majority_out_of_the_colluders_reach(clients, dropout, colluding):
    cohort, sharing = choose(clients, dropout, colluding)
    holders = clients if sharing.neighbours is None else sharing.neighbours + 1
    assert holders < 2 * sharing.threshold <= 2 * (holders - 1)
    assert sharing.log_exposed <= BUDGET
    if sharing.neighbours is None:
        assert sharing.threshold > cohort.colluders
    else:
        assert sharing.neighbours % 2 == 0
        assert 2 <= sharing.neighbours <= (clients - 1) // 2
        assert sharing.abort_probability <= 5e-4


@pytest.mark.parametrize("clients", [3, 20, 128])
def test_small_cohorts_share_with_everybody(clients):
    assert choose(clients, 0.1, 0.1)[1].neighbours is None


def test_large_cohorts_share_with_few_and_stand_up_to_a_lying_server_where_it_is_cheap():
    _, sharing = choose(1000, 0.1, 0.1)
    assert sharing.neighbours is not None
    assert sharing.neighbours < 120
    assert sharing.log_split <= BUDGET


def test_a_third_colluding_and_dropping_leaves_only_the_curious_server_covered():
    _, sharing = choose(10_000, 0.3, 1 / 3)
    assert sharing.neighbours is not None
    assert sharing.log_exposed <= BUDGET < sharing.log_split


def test_hopeless_dropout_keeps_a_majority_and_admits_the_abort_probability():
    _, sharing = choose(20, 0.49, 0.4)
    assert sharing.threshold == 11
    assert sharing.abort_probability > 0.3


def test_masks_that_would_fall_apart_raise_the_degree_and_share_the_budget():
    alone = choose(1000, 0.1, 0.0)[1]
    log_apart = lambda degree: -0.7 * degree  # noqa: E731
    joint = choose(1000, 0.1, 0.0, log_apart)[1]
    assert joint.neighbours > alone.neighbours
    assert joint.log_apart == log_apart(joint.neighbours) <= BUDGET
    assert math.log(math.exp(joint.log_apart) + math.exp(joint.log_exposed)) <= BUDGET


def test_masks_that_always_fall_apart_leave_the_complete_graph():
    assert choose(1000, 0.1, 0.1, lambda degree: -math.inf if degree == 999 else 0.0)[1].neighbours is None
