"""Decoding: as many false shares as the surplus allows are survived and named, and a wrong secret never comes out."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import decoding as twin
from sparsesecagg.crypto import decoding
from sparsesecagg.crypto.decoding import Decoded, restore
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.shamir import LIMBS, PRIME, combine, lagrange_at_zero, split

Shares = NDArray[np.uint64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def deal(secrets: list[bytes], holders: NDArray[np.int64], threshold: int, seed: int = 0) -> Shares:
    """Return shares by secret, holder and limb."""
    return split(secrets, holders, threshold, Secret(rng(seed).bytes(32))).transpose(1, 0, 2).copy()


def some_secrets(count: int, seed: int = 1) -> list[bytes]:
    return [rng(seed + number).bytes(16) for number in range(count)]


def falsify(shares: Shares, row: int, place: int, limbs: list[int], change: int = 1) -> None:
    """Shift some limbs of one share."""
    for limb in limbs:
        shares[row, place, limb] = (int(shares[row, place, limb]) + change) % PRIME


def spoil(shares: Shares, row: int, places: list[int], seed: int = 0) -> None:
    """Replace shares by random ones."""
    shares[row, places] = rng(seed + 1000 * row).integers(0, PRIME, (len(places), LIMBS))


def shift_along_a_polynomial(shares: Shares, places: list[int], holders: NDArray[np.int64], threshold: int) -> None:
    """Replace the shares at `places` by those of another sharing, the same shift for all secrets and limbs.

    Errors with a pattern: nothing but their number gives them away.
    """
    shift = deal([b"\x07" * 16], holders, threshold, seed=77)[0, :, :1]
    shares[:, places] = (shares[:, places] + shift[places]) % PRIME


def open_up(
    secrets: list[bytes],
    shares: Shares,
    holders: NDArray[np.int64],
    threshold: int,
    present: NDArray[np.bool_] | None = None,
) -> Decoded:
    """Restore with a check that knows the truth, as a commitment does."""
    return restore(shares, holders, threshold, lambda index, secret: secret == secrets[index], present)


def named(restored: Decoded) -> list[set[int]]:
    """Return the places of the false shares of each secret."""
    return [set(np.flatnonzero(row).tolist()) for row in restored.false]


# Nobody lies


@given(st.integers(1, 4), st.integers(1, 12), st.data())
def test_without_false_shares_all_secrets_come_back_and_nobody_is_named(
    count: int, size: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, size))
    numbers = data.draw(st.lists(st.integers(0, 2**16 - 1), min_size=size, max_size=size, unique=True))
    holders, secrets = np.array(numbers), some_secrets(count)
    restored = open_up(secrets, deal(secrets, holders, threshold), holders, threshold)
    assert restored.secrets == secrets
    assert not restored.false.any()


def test_no_secrets_are_no_error() -> None:
    restored = open_up([], np.zeros((0, 3, LIMBS), np.uint64), np.arange(3), 2)
    assert restored.secrets == []
    assert restored.false.shape == (0, 3)


def test_secrets_do_not_print() -> None:
    secrets = some_secrets(2)
    restored = open_up(secrets, deal(secrets, np.arange(3), 2), np.arange(3), 2)
    assert restored.secrets == secrets
    assert repr(secrets[0]) not in repr(restored)
    assert "secrets" not in repr(restored)


def test_a_holder_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="share indices must differ"):
        open_up([bytes(16)], np.zeros((1, 3, LIMBS), np.uint64), np.array([4, 5, 4]), 2)


# False shares that are within half the surplus


@pytest.mark.slow
@given(st.integers(3, 9), st.data())
@settings(max_examples=150)
def test_false_shares_are_those_that_trying_all_sets_of_holders_finds(size: int, data: st.DataObject) -> None:
    """The twin tries them one by one; where it finds a single polynomial, so does the decoder."""
    threshold = data.draw(st.integers(1, min(4, size)))
    holders = np.array(data.draw(st.lists(st.integers(0, 40), min_size=size, max_size=size, unique=True)))
    secrets = some_secrets(1)
    shares = deal(secrets, holders, threshold)
    most = (size - threshold) // 2
    for place in data.draw(st.lists(st.integers(0, size - 1), max_size=most, unique=True)):
        limbs = data.draw(st.lists(st.integers(0, LIMBS - 1), min_size=1, max_size=LIMBS, unique=True))
        falsify(shares, 0, place, limbs, data.draw(st.sampled_from([1, PRIME - 1]) | st.integers(1, PRIME - 1)))
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == [twin.false_shares(shares[0].tolist(), holders.tolist(), threshold)]


@pytest.mark.parametrize(
    ("size", "threshold"), [(3, 1), (4, 1), (5, 2), (5, 3), (20, 11), (21, 11), (62, 55), (72, 55)]
)
@pytest.mark.parametrize("where", ["first", "last", "spread"])
def test_half_the_surplus_may_be_false_whatever_the_pattern(size: int, threshold: int, where: str) -> None:
    """Exactly ⌊(n − t)/2⌋ holders give shares of another polynomial, to all secrets alike: the worst there is."""
    most = (size - threshold) // 2
    places = {
        "first": list(range(most)),
        "last": list(range(size - most, size)),
        "spread": sorted(rng(size).choice(size, most, replace=False).tolist()),
    }[where]
    holders, secrets = np.arange(size) * 3 + 1, some_secrets(12)
    shares = deal(secrets, holders, threshold)
    shift_along_a_polynomial(shares, places, holders, threshold)
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == [set(places)] * 12


@pytest.mark.parametrize(("size", "threshold"), [(20, 12), (21, 11)])
def test_one_more_than_half_with_a_pattern_restores_nothing_and_names_nobody(size: int, threshold: int) -> None:
    """Two polynomials are then equally far from the shares; the check refuses the other one."""
    places = list(range((size - threshold) // 2 + 1))
    holders, secrets = np.arange(size), some_secrets(3)
    shares = deal(secrets, holders, threshold)
    shift_along_a_polynomial(shares, places, holders, threshold)
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == [None] * 3
    assert not restored.false.any()


@pytest.mark.parametrize("limb", range(LIMBS))
def test_a_share_is_false_if_any_limb_is(limb: int) -> None:
    holders, secrets = np.arange(9), some_secrets(2)
    shares = deal(secrets, holders, 3)
    falsify(shares, 1, 0, [limb])
    falsify(shares, 1, 8, [limb])
    restored = open_up(secrets, shares, holders, 3)
    assert restored.secrets == secrets
    assert named(restored) == [set(), {0, 8}]


def test_each_secret_may_have_false_shares_of_its_own() -> None:
    """Also where all of them together exceed what one secret could bear."""
    size, threshold, count = 20, 11, 30
    holders, secrets = np.arange(size), some_secrets(count)
    shares = deal(secrets, holders, threshold)
    expected = []
    for row in range(count):
        places = rng(row).choice(size, 4, replace=False).tolist()
        spoil(shares, row, places)
        expected.append(set(places))
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == expected


@given(st.data())
@settings(max_examples=60)
def test_limbs_may_be_false_at_different_holders(data: st.DataObject) -> None:
    """Each limb is corrected by itself, as long as enough holders are right in all of them."""
    holders, secrets = np.arange(14), some_secrets(1)
    shares = deal(secrets, holders, 4)
    places = data.draw(st.permutations(range(14)))[:10]
    for limb in range(LIMBS):
        for place in places[2 * limb : 2 * limb + 2]:
            falsify(shares, 0, place, [limb])
    restored = open_up(secrets, shares, holders, 4)
    assert restored.secrets == secrets
    assert named(restored) == [set(places)]


def test_no_holder_who_is_right_in_all_limbs_is_no_error() -> None:
    holders, secrets = np.arange(10), some_secrets(1)
    shares = deal(secrets, holders, 1)
    for place in range(10):
        falsify(shares, 0, place, [place // 2], 10 + place)
    assert open_up(secrets, shares, holders, 1).secrets == [None]


# Shares that were not needed


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("liars", "told"), [(1, True), (8, True), (9, False)])
def test_false_shares_that_were_not_needed_are_named_too(count: int, liars: int, told: bool) -> None:
    """The first holders restore the secret. If all others differ, it can't be told who is right."""
    holders, secrets = np.arange(20), some_secrets(count)
    shares = deal(secrets, holders, 11)
    for row in range(count):
        spoil(shares, row, list(range(20 - liars, 20)))
    restored = open_up(secrets, shares, holders, 11)
    assert restored.secrets == secrets
    assert named(restored) == [set(range(20 - liars, 20)) if told else set()] * count


@pytest.mark.parametrize(("size", "threshold"), [(20, 11), (62, 55)])
@pytest.mark.parametrize("count", [2, 3])
def test_liars_who_leave_the_secret_as_it_is_frame_nobody(size: int, threshold: int, count: int) -> None:
    """Their errors cancel in the sum that restores the secret, so that the shares of all others seem to be false."""
    holders, secrets = np.arange(size), some_secrets(10)
    shares = deal(secrets, holders, threshold)
    weights = lagrange_at_zero(tuple(range(threshold))).tolist()
    for row in range(len(secrets)):
        for limb in range(LIMBS):
            errors = [5 + row + limb * place for place in range(count - 1)]
            rest = -sum(weights[place] * error for place, error in enumerate(errors))
            for place, error in enumerate([*errors, rest * pow(weights[count - 1], -1, PRIME)]):
                falsify(shares, row, place, [limb], error)
    assert combine(shares[:, :threshold], tuple(range(threshold))) == secrets
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == [set(range(count))] * 10


def test_nobody_is_named_when_too_many_liars_leave_the_secret_as_it_is() -> None:
    """The same with more than half the surplus and one pattern for all: the secrets are right, the liars unknown."""
    holders, secrets = np.arange(20), some_secrets(6)
    shares = deal(secrets, holders, 11)
    shift = deal([bytes(16)], holders, 11, seed=9)[0, :, :1]  # Of zero, so that it leaves the secrets as they are.
    shares[:, :11] = (shares[:, :11] + shift[:11]) % PRIME
    restored = open_up(secrets, shares, holders, 11)
    assert restored.secrets == secrets
    assert not restored.false.any()


@pytest.mark.parametrize("elements", [1, 100, 10**6], ids=["one by one", "some", "all at once"])
def test_many_secrets_are_worked_on_in_parts(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_CHUNK_ELEMENTS", elements)
    holders, secrets = np.arange(10), some_secrets(17)
    shares = deal(secrets, holders, 4)
    for row in range(0, 17, 2):
        falsify(shares, row, row % 10, [row % LIMBS])
    restored = open_up(secrets, shares, holders, 4)
    assert restored.secrets == secrets
    assert named(restored) == [{row % 10} if row % 2 == 0 else set() for row in range(17)]


# More than half the surplus


@pytest.mark.parametrize(("size", "threshold"), [(20, 11), (62, 55), (72, 55)])
def test_false_shares_without_a_pattern_may_be_all_of_the_surplus_but_one(size: int, threshold: int) -> None:
    places = rng(3).choice(size, size - threshold - 1, replace=False).tolist()
    holders, secrets = np.arange(size), some_secrets(12)
    shares = deal(secrets, holders, threshold)
    for row in range(12):
        spoil(shares, row, places)
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == [set(places)] * 12


@pytest.mark.parametrize(("size", "threshold"), [(20, 11), (62, 55)])
def test_as_many_false_shares_as_the_surplus_restore_nothing(size: int, threshold: int) -> None:
    """Unless the first holders happen to be right."""
    places = list(range(size - threshold))
    holders, secrets = np.arange(size), some_secrets(12)
    shares = deal(secrets, holders, threshold)
    for row in range(12):
        spoil(shares, row, places)
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == [None] * 12
    assert not restored.false.any()


def test_a_single_secret_survives_more_than_half_if_its_limbs_tell() -> None:
    """Five random limbs point at five holders, where half the surplus would be three."""
    holders, secrets = np.arange(20), some_secrets(2)
    shares = deal(secrets, holders, 13)
    spoil(shares, 0, [0, 3, 5, 8, 10])
    spoil(shares, 1, [1, 2, 4, 9, 12])
    restored = open_up(secrets, shares, holders, 13)
    assert restored.secrets == secrets
    assert named(restored) == [{0, 3, 5, 8, 10}, {1, 2, 4, 9, 12}]


def test_a_holder_found_false_elsewhere_is_not_named_where_its_share_is_right() -> None:
    size, threshold, liars = 30, 18, [0, 4, 7, 20, 22, 29]
    holders, secrets = np.arange(size), some_secrets(40)
    shares = deal(secrets, holders, threshold)
    right = shares[33].copy()
    shift_along_a_polynomial(shares, liars, holders, threshold)
    shares[33, 7:] = right[7:]
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert named(restored) == [{0, 4} if row == 33 else set(liars) for row in range(40)]


# Few sets of holders: all are tried


def spoil_without_a_pattern(shares: Shares, liars: list[int]) -> None:
    for row in range(len(shares)):
        spoil(shares, row, liars)


def shift_but_keep_the_secret(shares: Shares, liars: list[int], near: list[int]) -> None:
    """Move the liars' shares by x · Π (x − x_j) over `near`: neither the secrets change, nor do the shares of these."""
    for place in liars:
        shift = place + 1
        for other in near:
            shift = shift * (place - other) % PRIME
        for row in range(len(shares)):
            falsify(shares, row, place, list(range(LIMBS)), shift)


@pytest.mark.parametrize("liars", [[0, 1, 2], [0, 4, 9], [7, 8, 9], [2, 3, 5]], ids=str)
@pytest.mark.parametrize("kind", ["random", "a polynomial"])
def test_all_of_the_surplus_may_be_false_where_all_sets_are_tried(liars: list[int], kind: str) -> None:
    """Three of ten holders, seven needed; only the seven honest ones give the secret, so the others are named."""
    holders, secrets = np.arange(10), some_secrets(10)
    shares = deal(secrets, holders, 7)
    if kind == "random":
        spoil_without_a_pattern(shares, liars)
    else:
        shift_along_a_polynomial(shares, liars, holders, 7)
    restored = open_up(secrets, shares, holders, 7)
    assert restored.secrets == secrets
    assert named(restored) == [set(liars)] * 10


@pytest.mark.parametrize("liars", [[0, 1, 2], [4, 5, 6], [7, 8, 9], [0, 5, 9]], ids=str)
@pytest.mark.parametrize("near", range(6))
def test_liars_up_to_the_surplus_frame_nobody(liars: list[int], near: int) -> None:
    """They move the polynomial away from some honest holders and leave the secret as it is, for all secrets alike."""
    holders, secrets = np.arange(10), some_secrets(10)
    shares = deal(secrets, holders, 7)
    honest = [place for place in range(10) if place not in liars]
    shift_but_keep_the_secret(shares, liars, honest[:near])
    restored = open_up(secrets, shares, holders, 7)
    assert restored.secrets == secrets
    assert not restored.false[:, honest].any()


@pytest.mark.parametrize(("liars", "framed"), [(6, 0), (7, 4), (8, 3), (10, 1)])
def test_nobody_is_named_whom_so_many_liars_could_have_framed(liars: int, framed: int) -> None:
    """Of 20 holders, 11 needed, 9 + 2 − m liars make m others look false; who expects as many names none."""
    holders, secrets = np.arange(20), some_secrets(4)
    shares = deal(secrets, holders, 11)
    shift_but_keep_the_secret(shares, list(range(liars)), list(range(liars, liars + 9)))
    for expected, told in ((0, True), (liars - 1, True), (liars, False)):
        restored = restore(shares, holders, 11, lambda index, secret: secret == secrets[index], liars=expected)
        assert restored.secrets == secrets
        honest = set(range(liars + 9, liars + 9 + framed)) if told else set()
        assert named(restored) == [honest] * 4


def test_liars_are_named_if_as_many_could_not_have_framed_them() -> None:
    holders, secrets = np.arange(20), some_secrets(4)
    shares = deal(secrets, holders, 11)
    spoil_without_a_pattern(shares, [3, 4, 5])
    for expected, told in ((7, True), (8, False)):
        restored = restore(shares, holders, 11, lambda index, secret: secret == secrets[index], liars=expected)
        assert named(restored) == [{3, 4, 5} if told else set()] * 4


@pytest.mark.slow
@given(st.integers(2, 9), st.data())
@settings(max_examples=100)
def test_whatever_is_false_up_to_the_surplus_secrets_come_back_and_nobody_honest_is_named(
    size: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, size - 1))
    liars = data.draw(st.lists(st.integers(0, size - 1), max_size=size - threshold, unique=True))
    holders, secrets = np.arange(size), some_secrets(3)
    shares = deal(secrets, holders, threshold)
    for row in range(3):
        for place in liars:
            falsify(shares, row, place, list(range(LIMBS)), data.draw(st.sampled_from([0, 1, 2, PRIME - 1])))
    restored = open_up(secrets, shares, holders, threshold)
    assert restored.secrets == secrets
    assert not restored.false[:, [place for place in range(size) if place not in liars]].any()


def test_a_false_dealer_does_not_end_the_search() -> None:
    """Its secret is lost, all others are found behind it."""
    holders, secrets, liars = np.arange(10), some_secrets(10), [1, 5, 6]
    shares = deal(secrets, holders, 7)
    spoil_without_a_pattern(shares, liars)
    spoil(shares, 0, list(range(10)), seed=5)
    restored = open_up(secrets, shares, holders, 7)
    assert restored.secrets == [None, *secrets[1:]]
    assert named(restored) == [set(), *[set(liars)] * 9]


# False dealers


def test_shares_on_no_polynomial_restore_nothing_and_disturb_no_other_secret() -> None:
    holders, secrets = np.arange(20), some_secrets(5)
    shares = deal(secrets, holders, 11)
    spoil(shares, 2, list(range(20)))
    restored = open_up(secrets, shares, holders, 11)
    assert restored.secrets == [*secrets[:2], None, *secrets[3:]]
    assert not restored.false.any()


def test_shares_on_no_polynomial_are_given_up_without_trying_sets_of_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Liars decide neither how often it is tried, nor how long that takes."""
    tried: list[int] = []
    interpolate = decoding._lagrange_matrix

    def counted(*args: Any) -> Any:
        tried.append(1)
        return interpolate(*args)

    monkeypatch.setattr(decoding, "_lagrange_matrix", counted)
    holders, secrets = np.arange(30), some_secrets(40)
    shares = deal(secrets, holders, 17)
    for row in range(40):
        spoil(shares, row, list(range(30)))
    assert open_up(secrets, shares, holders, 17).secrets == [None] * 40
    assert len(tried) == 1


def test_a_sharing_of_another_secret_than_was_committed_to_restores_nothing() -> None:
    """All shares fit together; only the check can tell."""
    holders, secrets = np.arange(12), some_secrets(2)
    shares = deal([secrets[0], bytes(16)], holders, 5)
    restored = open_up(secrets, shares, holders, 5)
    assert restored.secrets == [secrets[0], None]
    assert not restored.false.any()


def test_a_polynomial_of_too_high_a_degree_restores_nothing() -> None:
    holders, secrets = np.arange(20), some_secrets(1)
    restored = open_up(secrets, deal(secrets, holders, 12), holders, 11)
    assert restored.secrets == [None]


@given(st.lists(st.integers(0, PRIME - 1), min_size=7 * LIMBS, max_size=7 * LIMBS), st.integers(1, 7))
@settings(max_examples=50)
def test_whatever_was_sent_the_check_decides(elements: list[int], threshold: int) -> None:
    """Every candidate is shown to the check, under its secret's number, and nothing it refuses comes out."""
    shown: list[tuple[int, bytes]] = []

    def refuse(index: int, secret: bytes) -> bool:
        shown.append((index, secret))
        return False

    restored = restore(np.array([elements], np.uint64).reshape(1, 7, LIMBS), np.arange(7), threshold, refuse)
    assert restored.secrets == [None]
    assert all(index == 0 and len(secret) == 16 for index, secret in shown)


# Shares that are missing


@pytest.mark.parametrize("absent", [0, 1, 9])
def test_a_share_that_is_missing_is_not_read(absent: int) -> None:
    """And its holder is not named, whatever stands in its place."""
    holders, secrets = np.arange(10), some_secrets(3)
    shares = deal(secrets, holders, 6)
    present = np.ones((3, 10), np.bool_)
    present[1, absent] = False
    spoil(shares, 1, [absent])
    restored = open_up(secrets, shares, holders, 6, present)
    assert restored.secrets == secrets
    assert not restored.false.any()


def test_secrets_with_holders_of_their_own_are_restored_and_their_false_shares_named() -> None:
    """As in a sparse share graph; some secrets have the same holders, and the check gets the right number."""
    size, threshold, count = 40, 5, 25
    holders, secrets = np.arange(size) + 100, some_secrets(count)
    shares, present = deal(secrets, holders, threshold), np.zeros((count, size), np.bool_)
    expected = []
    for row in range(count):
        places = rng(row % 20).choice(size, 9, replace=False)
        present[row, places] = True
        liars = places[: row % 3].tolist()
        spoil(shares, row, liars)
        expected.append(set(liars))
    shares[~present] = 12345
    restored = open_up(secrets, shares, holders, threshold, present)
    assert restored.secrets == secrets
    assert named(restored) == expected


@pytest.mark.parametrize(("left", "works"), [(4, False), (5, True), (6, True)])
def test_fewer_shares_than_the_threshold_restore_nothing(left: int, works: bool) -> None:
    holders, secrets = np.arange(8), some_secrets(2)
    present = np.ones((2, 8), np.bool_)
    present[1, left:] = False
    restored = open_up(secrets, deal(secrets, holders, 5), holders, 5, present)
    assert restored.secrets == [secrets[0], secrets[1] if works else None]
    assert open_up(secrets, deal(secrets, holders, 5), holders, 5, present[[1, 1]]).secrets == (
        secrets if works else [None, None]
    )


# The building blocks


@given(st.integers(1, 5), st.integers(0, 7), st.integers(0, 5), st.integers(0, 99))
def test_a_left_kernel_has_as_many_rows_as_the_rank_leaves(size: int, columns: int, rank: int, seed: int) -> None:
    rank = min(rank, size, columns)
    left = rng(seed).integers(0, PRIME, (size, rank)).astype(object)
    right = rng(seed + 1).integers(0, PRIME, (rank, columns)).astype(object)
    matrix = (left @ right % PRIME).astype(np.uint64).reshape(size, columns)
    kernel = decoding._left_kernel(matrix)
    assert kernel.shape == (size - rank, size)
    assert not (kernel.astype(object) @ matrix.astype(object) % PRIME).any()
    assert len(decoding._left_kernel(kernel)) == 0, "the rows are independent"


# Speed


def seconds_for(secrets: list[bytes], shares: Shares, holders: NDArray[np.int64], threshold: int) -> float:
    """Time the best of a few, since machines are busy."""
    best = float("inf")
    for _ in range(3):
        start = perf_counter()
        restored = open_up(secrets, shares, holders, threshold)
        best = min(best, perf_counter() - start)
        assert restored.secrets == secrets
    return best


def test_a_hundred_secrets_with_24_of_100_holders_false_take_less_than_a_second() -> None:
    holders, secrets = np.arange(100), some_secrets(100)
    shares = deal(secrets, holders, 51)
    honest = seconds_for(secrets, shares, holders, 51)
    liars = rng(4).choice(100, 24, replace=False).tolist()
    shift_along_a_polynomial(shares, liars, holders, 51)
    assert seconds_for(secrets, shares, holders, 51) < 1
    assert honest < 0.1
