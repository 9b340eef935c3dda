"""The shares' field: every kernel agrees with plain integers, at the edges too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.shamir import (
    PRIME,
    canonical,
    inverse,
    inverses_below,
    left_factor,
    multiply,
    powers,
    product,
    times,
)

EDGES = [0, 1, 2, 2**11 - 1, 2**11, 2**21, 2**30, PRIME - 1]
elements = st.sampled_from(EDGES) | st.integers(0, PRIME - 1)
LARGEST = 2**64 - 1


@pytest.mark.parametrize("multiple", [0, 1, 2, 3, 2**31, 2**33])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_values_next_to_multiples_of_the_prime_become_canonical(multiple: int, offset: int) -> None:
    value = multiple * PRIME + offset
    if 0 <= value <= LARGEST:
        assert canonical(np.array([value], np.uint64)).tolist() == [value % PRIME]


@given(st.sampled_from([0, LARGEST, LARGEST - 1, 2**62, 2**63]) | st.integers(0, LARGEST))
def test_any_64_bit_value_becomes_canonical(value: int) -> None:
    assert canonical(np.array([value], np.uint64)).tolist() == [value % PRIME]


@given(st.sampled_from([2**32 - 1, PRIME]) | st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_products_of_32_bit_factors_are_ready_for_the_next_product(left: int, right: int) -> None:
    result = int(times(np.array([left], np.uint64), np.array([right], np.uint64))[0])
    assert result % PRIME == left * right % PRIME
    assert result < 2**32


@given(st.lists(elements, min_size=1, max_size=20))
def test_a_product_is_that_of_plain_integers(factors: list[int]) -> None:
    plain = 1
    for factor in factors:
        plain = plain * factor % PRIME
    assert int(product(np.array(factors, np.uint64))) % PRIME == plain


@given(elements.filter(bool))
def test_an_element_times_its_inverse_is_one(element: int) -> None:
    assert int(inverse(np.array([element], np.uint64))[0]) % PRIME == pow(element, -1, PRIME)


@pytest.mark.parametrize("bound", [1, 2, 3, 4, 5, 128, 129, 1000])
def test_a_table_of_inverses_reaches_as_far_as_asked(bound: int) -> None:
    table = inverses_below(bound).tolist()
    assert len(table) >= bound
    assert all(table[number] == pow(number, -1, PRIME) for number in range(1, bound))
    assert table[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        inverses_below(bound)[0] = 1


@given(st.lists(elements, min_size=1, max_size=4), st.integers(0, 20))
def test_powers_are_those_of_plain_integers(points: list[int], count: int) -> None:
    table = powers(np.array(points, np.uint64), count)
    assert table.tolist() == [[pow(point, power, PRIME) for power in range(count)] for point in points]


@given(st.integers(0, 4), st.integers(0, 9), st.integers(0, 4), st.data())
def test_a_matrix_product_is_that_of_plain_integers(rows: int, terms: int, columns: int, data: st.DataObject) -> None:
    left = [[data.draw(elements) for _ in range(terms)] for _ in range(rows)]
    right = [[data.draw(elements) for _ in range(columns)] for _ in range(terms)]
    result = multiply(
        left_factor(np.array(left, np.uint64).reshape(rows, terms)), np.array(right, np.uint64).reshape(terms, columns)
    )
    assert result.shape == (rows, columns)
    plain = [[sum(row[k] * right[k][j] for k in range(terms)) % PRIME for j in range(columns)] for row in left]
    assert result.tolist() == plain


@pytest.mark.parametrize("alone", [1, 7, 60, 500, 10**9])
@pytest.mark.parametrize("shape", [(1, 5, 40), (13, 4, 1), (13, 4, 33), (7, 3, 16)])
def test_large_products_are_made_of_small_ones_without_a_seam(
    alone: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, terms, columns = shape
    left, right = (
        np.random.default_rng(rows).integers(0, PRIME, size).astype(np.uint64)
        for size in ((rows, terms), (terms, columns))
    )
    expected = left.astype(object) @ right.astype(object) % PRIME
    monkeypatch.setattr(shamir, "_ALONE", alone)
    assert multiply(left_factor(left), right).tolist() == expected.tolist()


@pytest.mark.parametrize("terms", [681, 682, 683, 684, 2048, 3000])
@pytest.mark.parametrize("left", [PRIME - 1, PRIME - 2, 2**30 + 1])
def test_long_sums_of_the_largest_elements_are_exact(terms: int, left: int) -> None:
    """A sum beyond 2^53 would lose its lowest bits: the sums are cut before that."""
    rows = np.full((2, terms), left, np.uint64)
    for right in (PRIME - 1, 2**11 - 1, PRIME - 2**11):
        columns = np.full((terms, 3), right, np.uint64)
        assert multiply(left_factor(rows), columns).tolist() == [[terms * left * right % PRIME] * 3] * 2


def test_the_bound_on_exact_sums_is_what_floats_hold() -> None:
    longest = max(bits for _, bits in shamir._PIECES)
    assert shamir._EXACT_TERMS * (PRIME - 1) * (2**longest - 1) < 2**53
    assert sum(bits for _, bits in shamir._PIECES) == 31
