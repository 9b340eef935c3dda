"""Every limit of the parameters, from both sides: the last value that is allowed, and the first that is not."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from protocol.rounds import small
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import RoundParameters
from sparsesecagg.protocol.parameters import VERSION

ABOVE_ZERO = 2**-40
"""An α so small that it is rounded up to the least there is."""


@pytest.mark.parametrize(
    ("option", "allowed", "refused"),
    [
        ("clients", 3, 2),
        ("clients", 1 << 16, (1 << 16) + 1),
        ("dim", 1, 0),
        ("dim", 1 << 40, (1 << 40) + 1),
        ("alpha", 1, math.nextafter(1, 2)),
        ("alpha", ABOVE_ZERO, 0),
        ("dropout", 0, -(2**-60)),
        ("dropout", math.nextafter(0.5, 0), 0.5),
        ("stripes", 1, 0),
        ("stripes", 4096, 4097),
        ("clip", 1e-30, math.nextafter(1e-30, 0)),
        ("clip", 1e30, math.nextafter(1e30, math.inf)),
        ("max_weight", 0, -1),
        ("max_weight", 1 << 40, (1 << 40) + 1),
        ("round_number", 0, -1),
        ("round_number", (1 << 63) - 1, 1 << 63),
        ("model_digest", bytes(range(32)), bytes(33)),
        ("model_digest", bytes(range(32)), bytes(31)),
        ("session", bytes(range(16)), bytes(17)),
        ("session", bytes(range(16)), bytes(15)),
        ("roster_digest", bytes(range(32)), bytes(33)),
        ("roster_digest", bytes(range(32)), bytes(31)),
        ("threshold", 3, 2),
        ("threshold", 5, 6),
        ("min_survivors", 1, 0),
        ("min_survivors", 5, 6),
        ("neighbours", 2, 1),
        ("modulus_bits", 32, 33),
        ("modulus_bits", 8, 7),
        ("pattern", "pairwise", "top-k"),
    ],
)
def test_the_last_value_passes_and_the_next_one_does_not(option: str, allowed: object, refused: object) -> None:
    small(**{option: allowed})
    with pytest.raises(InvalidInput) as problem:
        small(**{option: refused})
    assert problem.value.option == option


@pytest.mark.parametrize("alpha", ["0.5", None, [1], 1 + 1j])
def test_alpha_must_be_a_number(alpha: object) -> None:
    with pytest.raises(InvalidInput, match="alpha"):
        small(alpha=alpha)


def test_the_least_alpha_is_not_rounded_to_nothing() -> None:
    assert small(alpha=ABOVE_ZERO).alpha_q32 == 1
    assert small(alpha=1).alpha == 1
    assert small(alpha=0.25).alpha_q32 == 1 << 30


@pytest.mark.parametrize("clients", [3, 4, 5, 10, 99, 100, 101])
def test_a_threshold_of_half_the_holders_is_one_too_few(clients: int) -> None:
    """⌊N/2⌋ + 1 is the least: two halves of the holders must not restore two different secrets."""
    assert small(clients=clients).threshold == clients // 2 + 1
    small(clients=clients, threshold=clients // 2 + 1)
    with pytest.raises(InvalidInput, match=f"from {clients // 2 + 1} to {clients} .more than half"):
        small(clients=clients, threshold=clients // 2)


@pytest.mark.parametrize("clients", [3, 4, 5, 6, 7, 99])
def test_with_a_roster_two_thirds_of_the_holders_are_one_too_few(clients: int) -> None:
    roster = {"clients": clients, "roster_digest": b"r" * 32}
    assert small(**roster).threshold == 2 * clients // 3 + 1
    with pytest.raises(InvalidInput, match="more than two thirds"):
        small(**roster, threshold=2 * clients // 3)


def test_a_sparse_graph_counts_its_own_holders() -> None:
    assert small(clients=100, neighbours=10).holders == 11
    small(clients=100, neighbours=10, threshold=11)
    for threshold in (5, 12):
        with pytest.raises(InvalidInput, match="from 6 to 11"):
            small(clients=100, neighbours=10, threshold=threshold)


def test_a_graph_of_all_but_one_is_sparse_and_one_more_is_complete() -> None:
    assert small(clients=9, neighbours=6).neighbours == 6
    assert small(clients=9, neighbours=7).neighbours == 0
    assert small(clients=10, neighbours=8).neighbours == 8
    assert small(clients=10).holders == 10


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("version", VERSION + 1),
        ("version", VERSION - 1),
        ("alpha_q32", 0),
        ("alpha_q32", (1 << 32) + 1),
        ("neighbours", 3),
        ("neighbours", 8),
        ("neighbours", -2),
        ("threshold", 4),
        ("clients", 2),
        ("pattern", ""),
    ],
)
def test_what_only_a_server_can_write_is_refused_as_well(option: str, value: object) -> None:
    """`create` would never make these; a client reads them off the wire."""
    forged = msgspec.structs.replace(small(clients=9), **{option: value})
    with pytest.raises(InvalidInput):
        forged.check()
    with pytest.raises(InvalidInput):
        RoundParameters.decode(forged.encode())
    with pytest.raises(InvalidInput):
        small(clients=9).replace(**{option: value})


def test_parameters_changed_within_the_limits_are_checked_and_kept() -> None:
    changed = small(clients=9).replace(round_number=7)
    assert (changed.round_number, changed.clients) == (7, 9)
    assert changed != small(clients=9)


@pytest.mark.parametrize(("clients", "enough"), [(6, "0.5"), (7, "0.429"), (9, "0.334"), (100, "0.03")])
def test_the_remedy_for_a_small_committee_is_the_least_alpha_that_works(clients: int, enough: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"3 are the least: use {enough} or more")):
        small(clients=clients, alpha=1 / clients, pattern="committee")
    small(clients=clients, alpha=float(enough), pattern="committee")


def test_only_committees_can_be_too_small() -> None:
    for pattern in ("full", "pairwise"):
        small(clients=6, alpha=0.1, pattern=pattern)


def test_the_most_that_send_a_coordinate_bound_the_survivors_that_can_be_asked_for() -> None:
    params = small(clients=12, alpha=0.5, pattern="committee", min_survivors=6, stripes=1)
    assert params.contributors == 6
    with pytest.raises(InvalidInput, match="from 1 to 6"):
        params.replace(min_survivors=7)


def test_defaults() -> None:
    """What a caller gets who says nothing; the documentation gives the same."""
    params = RoundParameters.create(clients=10, dim=4)
    chosen = (params.pattern, params.alpha, params.dropout, params.modulus_bits, params.neighbours)
    assert chosen == ("committee", 1.0, 0.0, 32, 0)
    assert (params.threshold, params.min_survivors, params.clip, params.max_weight) == (6, 2, 1.0, 0)
    assert (params.round_number, params.model_digest, params.session) == (1, bytes(32), bytes(16))
    assert not params.authenticated


def test_every_bit_of_the_rosters_digest_makes_a_round_authenticated() -> None:
    assert small(roster_digest=bytes(31) + b"\x01").authenticated
    assert small(roster_digest=b"\x80" + bytes(31)).authenticated


def test_a_round_with_weights_however_small_has_disjoint_committees() -> None:
    """As the pattern needs to know."""
    for weight, disjoint in ((0, False), (1, True), (2, True)):
        params = small(clients=9, alpha=1 / 3, pattern="committee", max_weight=weight)
        assert params.pattern_settings.disjoint is disjoint
