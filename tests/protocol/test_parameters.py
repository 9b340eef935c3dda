"""Parameters that make no sense are refused with a sentence that says what is allowed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rounds import small
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from sparsesecagg.patterns import smallest_committee
from sparsesecagg.protocol import RoundParameters


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("alpha", {"alpha": 0}),
        ("alpha", {"alpha": -0.1}),
        ("alpha", {"alpha": 1.01}),
        ("alpha", {"alpha": float("nan")}),
        ("alpha", {"alpha": 0.5, "pattern": "committee"}),
        ("clients", {"clients": 2}),
        ("clients", {"clients": 0}),
        ("clients", {"clients": 1 << 20}),
        ("dropout", {"dropout": 0.5}),
        ("dropout", {"dropout": -0.1}),
        ("dropout", {"dropout": float("nan")}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": -4}),
        ("threshold", {"threshold": 2}),
        ("threshold", {"threshold": 6}),
        ("neighbours", {"neighbours": 1}),
        ("modulus_bits", {"modulus_bits": 7}),
        ("modulus_bits", {"modulus_bits": 8, "clients": 200}),
        ("pattern", {"pattern": "top-k"}),
        ("min_survivors", {"min_survivors": 0}),
        ("min_survivors", {"min_survivors": 6}),
        ("clip", {"clip": 0}),
        ("clip", {"clip": float("inf")}),
        ("clip", {"clip": float("nan")}),
        ("clip", {"clip": 5e-324}),
        ("max_weight", {"max_weight": -1}),
        ("max_weight", {"max_weight": 10, "pattern": "pairwise"}),
        ("stripes", {"stripes": 0}),
        ("model_digest", {"model_digest": b"short"}),
        ("round_number", {"round_number": -1}),
    ],
)
def test_bad_settings_are_named(option: str, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as problem:
        small(**settings)
    assert problem.value.option == option


@pytest.mark.parametrize(
    ("clients", "alpha"), [(5, 0.625), (10, 0.3), (100, 0.03), (7, 0.43), (3, 1.0), (64, 3 / 64), (1000, 0.003)]
)
def test_any_alpha_with_three_members_per_committee_is_accepted(clients: int, alpha: float) -> None:
    params = small(clients=clients, alpha=alpha, pattern="committee")
    assert smallest_committee(params.pattern_settings) >= 3


def test_the_remedy_for_small_committees_works() -> None:
    with pytest.raises(InvalidInput, match=r"use 0\.5 or more"):
        small(clients=6, alpha=0.2, pattern="committee")
    small(clients=6, alpha=0.5, pattern="committee")


def test_the_remedy_for_short_words_works() -> None:
    with pytest.raises(InvalidInput, match="use 12 or more"):
        small(clients=200, modulus_bits=8)
    small(clients=200, modulus_bits=12)


def test_the_threshold_is_more_than_half_of_the_holders_by_default() -> None:
    assert small(clients=100).threshold == 51
    assert small(clients=101).threshold == 51
    assert small(clients=100, neighbours=20).threshold == 11
    assert small(clients=100, roster_digest=b"r" * 32).threshold == 67


def test_neighbours_are_rounded_up_to_even_and_up_to_complete() -> None:
    assert small(clients=100, neighbours=7).neighbours == 8
    assert small(clients=10, neighbours=9).neighbours == 0
    assert small(clients=10, neighbours=50).neighbours == 0


def test_the_digest_depends_on_every_field() -> None:
    """So that users with different views have nothing in common."""
    base = small(clients=10)
    changed = [
        small(clients=10, **change)
        for change in (
            {"round_number": 2},
            {"dim": 41},
            {"alpha": 0.9},
            {"modulus_bits": 16},
            {"neighbours": 4},
            {"threshold": 7},
            {"min_survivors": 2},
            {"clip": 2.0},
            {"max_weight": 3},
            {"dropout": 0.1},
            {"stripes": 2},
            {"model_digest": b"m" * 32},
            {"session": b"s" * 16},
            {"roster_digest": b"r" * 32},
            {"pattern": "pairwise"},
        )
    ]
    assert len({params.digest for params in [base, *changed]}) == len(changed) + 1
    assert len({params.view for params in [base, *changed]}) == len(changed) + 1


def test_parameters_survive_the_wire() -> None:
    params = small(alpha=0.3, clip=0.1, max_weight=77)
    assert RoundParameters.decode(params.encode()) == params


@given(st.binary(max_size=200))
def test_rubbish_is_no_parameters(data: bytes) -> None:
    with pytest.raises(SparseSecAggError):
        RoundParameters.decode(data)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_never_passes_as_the_same_parameters(place: int, change: int) -> None:
    params = small()
    data = bytearray(params.encode())
    data[place % len(data)] ^= change
    with contextlib.suppress(MalformedMessage, InvalidInput):
        assert RoundParameters.decode(bytes(data)) != params


def test_parameters_are_frozen() -> None:
    """They were checked when they were made, and masks are bound to them."""
    with pytest.raises(AttributeError):
        small().threshold = 1  # type: ignore[misc]


def test_the_pattern_is_told_the_degree_of_a_sparse_graph_and_none_of_a_complete_one() -> None:
    assert small(clients=9, neighbours=4).pattern_settings.degree == 4
    assert small(clients=9).pattern_settings.degree is None
