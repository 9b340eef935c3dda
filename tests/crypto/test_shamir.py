"""Secret sharing: t shares restore, t − 1 say nothing, and the vectorised kernel agrees with plain integers."""

from __future__ import annotations

from itertools import combinations
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import shamir as twin
from reference import statistics
from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.crypto.shamir import (
    LIMBS,
    PRIME,
    SHARE_SIZE,
    combine,
    decode_shares,
    encode_shares,
    split,
)
from strategies import seeds

SECRET = bytes(range(1, 17))
SEED = bytes(range(100, 132))

secrets_16 = st.sampled_from([bytes(16), b"\xff" * 16, b"\x01" + bytes(15), bytes(15) + b"\x80"]) | st.binary(
    min_size=16, max_size=16
)
holder_sets = st.lists(st.integers(0, 20) | st.integers(0, 2**16 - 1), min_size=1, max_size=9, unique=True).map(sorted)


def shares_of(secrets: list[bytes], holders: list[int], threshold: int, seed: bytes = SEED) -> NDArray[np.uint64]:
    return split(secrets, np.array(holders, np.int64), threshold, Secret(seed))


def restore(shares: NDArray[np.uint64], holders: list[int], chosen: tuple[int, ...]) -> list[bytes | None]:
    """Combine the shares of the chosen holders."""
    rows = [holders.index(holder) for holder in chosen]
    return combine(shares[rows].transpose(1, 0, 2), chosen)


# Restoring


@given(st.lists(secrets_16, min_size=1, max_size=4), holder_sets, seeds, st.data())
def test_any_threshold_of_shares_restores_all_secrets(
    secrets: list[bytes], holders: list[int], seed: bytes, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, len(holders)))
    chosen = data.draw(st.permutations(holders))[:threshold]
    shares = shares_of(secrets, holders, threshold, seed)
    assert restore(shares, holders, tuple(chosen)) == secrets


@pytest.mark.parametrize(("threshold", "holders"), [(1, 3), (2, 4), (3, 5), (5, 5), (4, 7)])
def test_every_single_choice_of_holders_restores(threshold: int, holders: int) -> None:
    shares = shares_of([SECRET], list(range(holders)), threshold)
    for chosen in combinations(range(holders), threshold):
        assert restore(shares, list(range(holders)), chosen) == [SECRET]


def test_a_large_cohort_restores() -> None:
    """Numbers as large as a cohort allows, and thresholds in the hundreds."""
    holders = list(range(2**16 - 300, 2**16))
    shares = shares_of([SECRET, bytes(16), b"\xff" * 16], holders, 151)
    assert restore(shares, holders, tuple(holders[-151:])) == [SECRET, bytes(16), b"\xff" * 16]


def test_more_than_the_threshold_restore_as_well() -> None:
    shares = shares_of([SECRET], list(range(6)), 3)
    assert restore(shares, list(range(6)), tuple(range(6))) == [SECRET]


# The twin


@given(st.lists(secrets_16, min_size=1, max_size=3), holder_sets, seeds, st.data())
@settings(max_examples=50)
def test_shares_are_those_of_plain_polynomials(
    secrets: list[bytes], holders: list[int], seed: bytes, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, len(holders)))
    assert shares_of(secrets, holders, threshold, seed).tolist() == twin.split(secrets, holders, threshold, seed)


elements = st.sampled_from([0, 1, 2**29 - 1, 2**29, PRIME - 1]) | st.integers(0, PRIME - 1)


@given(holder_sets, st.data())
@settings(max_examples=50)
def test_combining_is_plain_interpolation(holders: list[int], data: st.DataObject) -> None:
    """For whatever elements, also those that no sharing ever gave out."""
    row = st.lists(elements, min_size=LIMBS, max_size=LIMBS)
    shares = data.draw(st.lists(row, min_size=len(holders), max_size=len(holders)))
    assert combine(np.array([shares], np.uint64), tuple(holders)) == [twin.combine(shares, holders)]


@given(holder_sets)
def test_lagrange_coefficients_are_those_of_plain_integers(holders: list[int]) -> None:
    """The coefficient of holder h is the value at 0 of the polynomial that is 1 at h + 1 and 0 at the others."""
    unit = [twin.interpolate([(o + 1, int(o == h)) for o in holders])[0] for h in holders]
    assert shamir.lagrange_at_zero(tuple(holders)).tolist() == unit


def test_lagrange_coefficients_are_computed_once_per_set_of_holders() -> None:
    holders = tuple(range(7, 60))
    assert shamir.lagrange_at_zero(holders) is shamir.lagrange_at_zero(holders)


@pytest.mark.parametrize("table", [1, 50, 10**6], ids=["row by row", "set by set", "all at once"])
def test_coefficients_of_many_sets_of_holders_come_at_once(table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sparse share graph; some sets are the same."""
    monkeypatch.setattr(shamir, "_TABLE", table)
    rng = np.random.default_rng(3)
    holders = np.stack([rng.choice(40, 5, replace=False) for _ in range(12)])
    holders[7] = holders[2]
    alone = [shamir.lagrange_at_zero.__wrapped__(tuple(some)).tolist() for some in holders.tolist()]
    assert shamir.lagrange_coefficients(holders).tolist() == alone


# Secrecy


def test_one_share_too_few_fits_every_other_secret_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each candidate there are coefficients under which the same holders see the same shares.

    The candidates' coefficients are found by interpolation and put in place of the random ones.
    """
    threshold, holders = 3, [0, 4, 9]
    seen = shares_of([SECRET], holders, threshold)[: threshold - 1]
    for candidate in (bytes(16), b"\xff" * 16, SECRET[::-1]):
        polynomials = [
            twin.interpolate(
                [(0, limb), *((h + 1, int(seen[row, 0, k])) for row, h in enumerate(holders[: threshold - 1]))]
            )
            for k, limb in enumerate(twin.limbs(candidate))
        ]
        highest_first = [[polynomial[power] for polynomial in polynomials] for power in (2, 1)]
        with monkeypatch.context() as patch:
            patch.setattr(
                shamir,
                "random_elements",
                lambda _, count, rows=highest_first: np.array(rows, np.uint64).reshape(count),
            )
            other = shares_of([candidate], holders, threshold)
        assert np.array_equal(other[: threshold - 1], seen)
        assert restore(other, holders, (0, 4, 9)) == [candidate]


@pytest.mark.parametrize("secret", [bytes(16), b"\xff" * 16], ids=["zeros", "ones"])
@pytest.mark.parametrize("threshold", [2, 5])
def test_a_single_share_is_uniform_whatever_the_secret(secret: bytes, threshold: int) -> None:
    """Chi-square on the high and on the low eight bits; error rate 1e-6 each."""
    share = shares_of([secret] * 10_000, [6], threshold).reshape(-1)
    statistics.assert_uniform(share >> np.uint64(23), 256)
    statistics.assert_uniform(share & np.uint64(255), 256)


def test_two_shares_below_the_threshold_are_independent() -> None:
    """Chi-square on their joint high bits; error rate 1e-6."""
    shares = shares_of([SECRET] * 10_000, [1, 2], 3) >> np.uint64(27)
    statistics.assert_uniform((16 * shares[0] + shares[1]).reshape(-1), 256)


def test_every_secret_and_limb_has_a_polynomial_of_its_own() -> None:
    """Equal limbs would otherwise show in the shares."""
    shares = shares_of([bytes(16)] * 3, [0, 1, 2], 2)
    assert len(set(shares[0].reshape(-1).tolist())) == 3 * LIMBS


def test_random_coefficients_skip_what_is_not_in_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw of 2^31 − 1 would otherwise make zero more likely than the rest."""
    script = [PRIME, 5, 2**32 - 1, PRIME, 2**31 + 7, PRIME - 1, PRIME, 2**31, 9]

    class Scripted:
        def __init__(self, _: Secret) -> None:
            self.left = list(script)

        def read(self, size: int) -> NDArray[np.uint8]:
            part, self.left = self.left[: size // 4], self.left[size // 4 :]
            return np.array(part, "<u4").view(np.uint8)

    monkeypatch.setattr(shamir, "KeyStream", Scripted)
    assert shamir.random_elements(Secret(SEED), 4).tolist() == [5, 7, PRIME - 1, 0]


def test_other_randomness_gives_other_shares() -> None:
    one, other = (shares_of([SECRET], [0, 1], 2, seed) for seed in (SEED, SEED[::-1]))
    assert not np.any(one == other)


@pytest.mark.parametrize("size", [0, 15, 17, 32])
def test_only_secrets_of_16_bytes_are_shared(size: int) -> None:
    """A longer one would lose its end; the error does not show it."""
    with pytest.raises(ValueError, match=r"^a secret that is shared has 16 bytes$"):
        shares_of([SECRET, b"s" * size], [0, 1], 2)


def test_a_secret_a_limb_and_a_share_have_the_sizes_of_the_wire() -> None:
    assert (shamir.SECRET_SIZE, LIMBS, SHARE_SIZE) == (16, 5, 20)


def test_many_groups_of_holders_take_turns() -> None:
    """The powers of a group's points are kept, each under its own holders and threshold."""
    for _ in range(2):
        for threshold in (1, 2, 3):
            for first in range(6):
                holders = [first, first + 7, first + 3]
                shares = shares_of([SECRET], holders, threshold)
                assert shares.tolist() == twin.split([SECRET], holders, threshold, SEED)


# Wrong shares


def test_a_holder_named_twice_is_refused() -> None:
    """Its Lagrange coefficient would divide by zero."""
    shares = shares_of([SECRET], [0, 1, 2], 3)
    with pytest.raises(ValueError, match="differ"):
        combine(shares.transpose(1, 0, 2), (0, 1, 1))


@given(st.integers(0, 2), st.integers(0, LIMBS - 1), st.integers(1, PRIME - 1))
def test_a_wrong_share_gives_another_secret_or_none(row: int, limb: int, change: int) -> None:
    """Never the right one: who checks it against a commitment will notice."""
    shares = shares_of([SECRET], [0, 1, 2], 3)
    shares[row, 0, limb] = (int(shares[row, 0, limb]) + change) % PRIME
    assert restore(shares, [0, 1, 2], (0, 1, 2)) != [SECRET]


def test_shares_under_a_wrong_number_do_not_restore() -> None:
    shares = shares_of([SECRET], [0, 1, 2], 3)
    assert combine(shares.transpose(1, 0, 2), (0, 2, 1)) != [SECRET]


def test_too_few_shares_do_not_restore() -> None:
    shares = shares_of([SECRET], [0, 1, 2], 3)
    assert restore(shares, [0, 1, 2], (0, 1)) != [SECRET]


def test_limbs_that_make_no_secret_give_none() -> None:
    """A limb of 30 bits, or a number beyond 16 bytes."""
    constant = np.zeros((1, 1, LIMBS), np.uint64)
    constant[0, 0, 3] = 2**29
    assert combine(constant, (0,)) == [None]
    constant[0, 0] = 0
    constant[0, 0, LIMBS - 1] = 2**12  # 4 · 29 + 12 = 128
    assert combine(constant, (0,)) == [None]
    constant[0, 0, LIMBS - 1] = 2**12 - 1
    assert combine(constant, (0,)) == [bytes(14) + b"\xf0\xff"]


# On the wire


@given(st.lists(secrets_16, min_size=1, max_size=3), seeds)
def test_shares_survive_the_wire(secrets: list[bytes], seed: bytes) -> None:
    (share,) = shares_of(secrets, [3], 2, seed)
    wire = encode_shares(share)
    read = decode_shares(wire)
    assert len(wire) == SHARE_SIZE * len(secrets)
    assert read is not None
    assert read.dtype == np.uint64
    assert np.array_equal(read, share.reshape(-1))


@pytest.mark.parametrize("size", [1, SHARE_SIZE - 1, SHARE_SIZE - 4, SHARE_SIZE + 1, SHARE_SIZE + 4])
def test_a_length_that_is_no_whole_share_is_refused(size: int) -> None:
    empty = decode_shares(b"")
    assert empty is not None
    assert not len(empty)
    assert decode_shares(bytes(size)) is None


@pytest.mark.parametrize("value", [PRIME, PRIME + 1, 2**32 - 1])
@pytest.mark.parametrize("place", [0, LIMBS - 1])
def test_elements_outside_the_field_are_refused(value: int, place: int) -> None:
    row = np.full(LIMBS, PRIME - 1, np.uint64)
    assert decode_shares(encode_shares(row)) is not None
    row[place] = value
    assert decode_shares(encode_shares(row)) is None


# Speed


def test_a_secret_among_a_hundred_takes_at_most_twenty_milliseconds() -> None:
    """51 of 100, split and combined, coefficients included; the best of several, since machines are busy."""
    holders = list(range(100))
    seconds = []
    for _ in range(7):
        shamir.lagrange_at_zero.cache_clear()
        start = perf_counter()
        shares = shares_of([SECRET], holders, 51)
        restored = restore(shares, holders, tuple(holders[49:]))
        seconds.append(perf_counter() - start)
        assert restored == [SECRET]
    assert min(seconds) <= 0.020
