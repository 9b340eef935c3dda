"""Sizes of groups: everybody is in one, and they differ as little as they can."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.sizes import group_sizes, scaled


@given(st.data())
def test_committees_differ_by_one_user_and_pods_by_one_committee(data) -> None:
    clients = data.draw(st.integers(1, 500))
    committees = data.draw(st.integers(1, clients))
    pods = data.draw(st.integers(1, committees))
    sizes = group_sizes(clients, committees, pods)
    members = [size for pod in sizes for size in pod]
    assert (sum(members), len(members), len(sizes)) == (clients, committees, pods)
    assert max(members) - min(members) <= 1
    assert max(map(len, sizes)) - min(map(len, sizes)) <= 1
    if committees % pods == 0:
        assert max(map(sum, sizes)) - min(map(sum, sizes)) <= 1


def test_a_thousand_users_in_26_committees_of_13_pods() -> None:
    sizes = group_sizes(1000, 26, 13)
    assert sizes[0] == [38, 38]
    assert {tuple(pod) for pod in sizes} == {(38, 38), (38, 39), (39, 38)}


@given(st.integers(1, 100), st.integers(0, 100), st.data())
def test_a_larger_group_needs_at_least_the_same_fraction(smallest, more, data) -> None:
    least = data.draw(st.integers(1, smallest))
    size = smallest + more
    found = scaled(least, size, smallest)
    assert least <= found <= size
    assert found * smallest >= least * size > (found - 1) * smallest


@pytest.mark.parametrize(
    ("groups", "option"), [((0, 1), "committees"), ((11, 1), "committees"), ((3, 4), "pods"), ((3, 0), "pods")]
)
def test_groups_that_can_not_be_are_rejected(groups, option: str) -> None:
    with pytest.raises(InvalidInput, match="must be from 1 to") as caught:
        group_sizes(10, *groups)
    assert caught.value.option == option
