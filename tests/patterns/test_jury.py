"""The size of a jury: exact, as small as it can be, and never more than two colluders' worth and one."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.jury import jury_size


def failure(clients: int, colluders: int, size: int) -> Fraction:
    """Pr[colluders are half of the jury or more], term by term."""
    juries = sum(
        comb(colluders, inside) * comb(clients - colluders, size - inside)
        for inside in range(-(-size // 2), min(colluders, size) + 1)
    )
    return Fraction(juries, comb(clients, size))


def literal_size(clients: int, colluders: int) -> int:
    return next(size for size in range(1, clients + 1) if failure(clients, colluders, size) <= Fraction(1, 2**128))


@pytest.mark.parametrize(("clients", "colluders", "size"), [(100, 10, 21), (1_000, 100, 127), (10_000, 1_000, 163)])
def test_the_sizes_of_the_design(clients: int, colluders: int, size: int) -> None:
    assert jury_size(clients, colluders) == size


@given(st.integers(1, 250).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, (n - 1) // 2))))
def test_it_is_the_first_size_that_is_enough(cohort: tuple[int, int]) -> None:
    assert jury_size(*cohort) == literal_size(*cohort) <= 2 * cohort[1] + 1


@pytest.mark.parametrize(("clients", "colluders"), [(400, 90), (700, 35), (2_000, 60)])
def test_it_is_the_first_size_also_where_chance_helps(clients: int, colluders: int) -> None:
    assert jury_size(clients, colluders) == literal_size(clients, colluders) < 2 * colluders + 1


@pytest.mark.parametrize(("clients", "colluders"), [(10, 5), (10, 6), (10, -1), (0, 0)])
def test_there_is_no_jury_where_half_collude(clients: int, colluders: int) -> None:
    with pytest.raises(InvalidInput, match="fewer than half"):
        jury_size(clients, colluders)
