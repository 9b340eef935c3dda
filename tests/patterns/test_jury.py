"""The jury that draws the groups: as small as it can be, never with a majority of colluders but for 2^−128."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.jury import jury_size


def half_collude(clients, colluders, jurors):
    """Return Pr[at least half of the jurors collude]."""
    ways = sum(
        math.comb(colluders, c) * math.comb(clients - colluders, jurors - c) for c in range(-(-jurors // 2), jurors + 1)
    )
    return Fraction(ways, math.comb(clients, jurors))


@pytest.mark.parametrize(("clients", "colluders", "jurors"), [(100, 10, 21), (1000, 100, 127), (10_000, 1000, 163)])
def test_the_juries_of_the_design_brief(clients, colluders, jurors):
    assert jury_size(clients, colluders) == jurors


@given(st.integers(1, 260), st.data())
def test_no_smaller_jury_is_safe(clients, data):
    colluders = data.draw(st.integers(0, (clients - 1) // 2))
    jurors = jury_size(clients, colluders)
    assert jurors <= min(clients, 2 * colluders + 1)
    assert half_collude(clients, colluders, jurors) <= Fraction(1, 2**128)
    assert all(half_collude(clients, colluders, fewer) > Fraction(1, 2**128) for fewer in range(1, jurors))


def test_without_colluders_one_juror_draws():
    assert jury_size(3, 0) == 1


@pytest.mark.parametrize("colluders", [-1, 5, 11])
def test_a_majority_of_colluders_has_no_jury(colluders):
    with pytest.raises(InvalidInput, match="fewer than half of 10 clients, got"):
        jury_size(10, colluders)
