"""`sliced` and `full`: the pattern suite, and what only slices promise."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from patterns.suite import CONTEXT, SEED, GroupOfUsers, PatternSuite, coordinates, make_layout, updates
from reference import slices as twin
from reference import statistics
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.field import pack
from sparsesecagg.patterns.base import Pattern
from sparsesecagg.patterns.sliced import Full, Sliced, block_of
from strategies import seeds

alphas = st.sampled_from([0.037, 0.1, 0.25, 0.3, 0.5, 0.99, 1.0]) | st.floats(0.005, 1)
PARTS = [(1, 10), (3, 10), (2, 7), (1, 2), (1, 27), (5, 6)]


class TestSliced(PatternSuite):
    kind = Sliced
    alphas = (0.3, 0.1, 0.037, 1.0, 0.5)
    least_dim = 27


class TestFull(PatternSuite):
    kind = Full
    alphas = (1.0,)


def sent(pattern: Pattern, group: int, round_number: int, seed: bytes = SEED) -> list[int]:
    return coordinates(pattern.masked_sum(group, round_number, seed, CONTEXT).indices())


# α as a fraction


@given(alphas)
def test_the_fraction_in_use_is_within_a_percent_of_what_was_asked(alpha: float) -> None:
    """And it is the one with the shortest blocks."""
    asked = round(alpha * 2**32)
    part, length = block_of(asked)
    assert abs(Fraction(part, length) - Fraction(asked, 2**32)) <= Fraction(asked, 2**32) / 100
    assert (part, length) == twin.block_of(Fraction(asked, 2**32))


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(1.0, (1, 1)), (0.5, (1, 2)), (0.3, (3, 10)), (0.1, (1, 10)), (0.037, (1, 27)), (0.01, (1, 100)), (0.995, (1, 1))],
)
def test_small_integers_make_the_fraction(alpha: float, expected: tuple[int, int]) -> None:
    assert block_of(round(alpha * 2**32)) == expected
    assert Sliced(make_layout(1000, alpha)).fraction() == expected[0] / expected[1]


def test_the_smallest_alpha_has_blocks_of_a_million() -> None:
    assert block_of(1 << 12) == (1, (1 << 20) * 100 // 101 + 1)
    with pytest.raises(InvalidInput, match=r"alpha must be at least 2\^-20"):
        block_of(1 << 11)


@pytest.mark.parametrize(("dim", "alpha"), [(9, 0.1), (1, 0.5), (26, 0.037), (26, 0.039), (5, 0.77), (3, 0.0001)])
def test_a_model_shorter_than_a_block_is_refused_with_the_nearest_alpha_that_is_not(dim: int, alpha: float) -> None:
    """As many coordinates as a block has are enough."""
    part, length = block_of(round(alpha * 2**32))
    expected = rf"alpha of {alpha} sends {part} of every {length} coordinates, and the model has {dim}: use \S+$"
    with pytest.raises(InvalidInput, match=expected) as caught:
        Sliced(make_layout(dim, alpha))
    assert caught.value.option == "alpha"
    Sliced(make_layout(length, alpha))
    Sliced(make_layout(dim, float(str(caught.value).split()[-1])))


@pytest.mark.parametrize("alpha", [0.1, 0.999])
def test_full_sends_everything_or_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidInput, match="alpha must be 1 with full"):
        Full(make_layout(100, alpha))
    assert sent(Full(make_layout(100)), 0, 7) == sent(Sliced(make_layout(100)), 0, 3) == list(range(100))


# Which coordinates


@settings(max_examples=150)
@given(st.data(), seeds)
def test_slices_are_those_of_the_plain_twin(data: st.DataObject, seed: bytes) -> None:
    groups = data.draw(st.integers(1, 12))
    slices = data.draw(st.sampled_from([1, groups]))
    alpha = data.draw(alphas)
    part, length = block_of(round(alpha * 2**32))
    dim = data.draw(st.integers(length, length + 300))
    pattern = Sliced(make_layout(dim, alpha, groups=groups, slices=slices))
    number, group = data.draw(st.integers(0, 10**9)), data.draw(st.integers(0, groups - 1))
    shift = twin.shift(group, number, slices, part, length)
    assert sent(pattern, group, number, seed) == twin.coordinates(seed, dim, part, length, shift)


@pytest.mark.parametrize(("part", "length"), PARTS)
def test_every_coordinate_is_sent_equally_often(part: int, length: int) -> None:
    """a times in L rounds, wherever one begins to count; once in L/a rounds where a divides L."""
    pattern = Sliced(make_layout(5 * length + length // 2, part / length, groups=3, slices=3))
    for group in range(3):
        counts = Counter(each for number in range(4, 4 + length) for each in sent(pattern, group, number))
        assert counts == dict.fromkeys(range(pattern.layout.dim), part)
        if length % part == 0:
            once = [each for number in range(9, 9 + length // part) for each in sent(pattern, group, number)]
            assert sorted(once) == list(range(pattern.layout.dim))


@pytest.mark.parametrize(("part", "length"), PARTS)
def test_a_slice_takes_as_many_of_every_block(part: int, length: int) -> None:
    """So it is spread evenly over every layer."""
    dim = 40 * length
    pattern = Sliced(make_layout(dim, part / length))
    for number in (1, 2, 77):
        blocks = Counter(each // length for each in sent(pattern, 0, number))
        assert blocks == dict.fromkeys(range(40), part)


def test_offsets_are_uniform_and_do_not_follow_the_block() -> None:
    """Chi-square over 20,000 blocks of ten, alone and in pairs of neighbours; error rate 1e-6 each."""
    where = np.array(sent(Sliced(make_layout(200_000, 0.1)), 0, 0)) % 10
    statistics.assert_uniform(where, 10)
    statistics.assert_uniform(10 * where[::2] + where[1::2], 100)


def test_another_epoch_has_other_slices() -> None:
    pattern = Sliced(make_layout(1000, 0.1))
    assert len({tuple(sent(pattern, 0, 1, bytes([seed]) * 32)) for seed in range(20)}) == 20


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.037])
@pytest.mark.parametrize("groups", [2, 3, 4, 10, 30])
def test_groups_send_different_slices_or_the_same(alpha: float, groups: int) -> None:
    """Different ones cover K times as much, up to all of it, and meet only where there is no room."""
    part, length = block_of(round(alpha * 2**32))
    dim = 30 * length
    for number in (1, 5):
        different = Sliced(make_layout(dim, alpha, groups=groups, slices=groups))
        each = [set(sent(different, group, number)) for group in range(groups)]
        assert len(set().union(*each)) / dim == pytest.approx(different.coverage) == min(1, groups * part / length)
        if groups * part <= length:
            assert sum(map(len, each)) == len(set().union(*each))
        same = Sliced(make_layout(dim, alpha, groups=groups, slices=1))
        assert len({tuple(sent(same, group, number)) for group in range(groups)}) == 1
        assert same.coverage == part / length


@given(st.sampled_from(PARTS), st.integers(0, 40), st.integers(0, 10**6), st.integers(0, 2))
def test_turns_tell_when_a_coordinate_is_sent(part: tuple[int, int], more: int, number: int, group: int) -> None:
    """Those whose turn is among the a that begin at the group's shift; equal turns are always sent together."""
    pattern = Sliced(make_layout(60 + more, part[0] / part[1], groups=3, slices=3))
    turns = pattern.turns(SEED)
    assert turns is not None
    begin = twin.shift(group, number, 3, *part)
    due = np.flatnonzero((turns - begin) % part[1] < part[0])
    assert sent(pattern, group, number) == due.tolist()
    assert Sliced(make_layout(60)).turns(SEED) is None, "everything, always"


@given(st.sampled_from(PARTS), st.integers(0, 60), st.integers(0, 200), st.integers(0, 50))
def test_copies_in_a_row_are_never_all_left_out(part: tuple[int, int], more: int, start: int, number: int) -> None:
    """As many as the pattern says hold a coordinate of every slice."""
    dim = 300 + more
    pattern = Sliced(make_layout(dim, part[0] / part[1]))
    assume(start + pattern.copies <= dim)
    assert set(range(start, start + pattern.copies)) & set(sent(pattern, 0, number))


# What travels beside the values, and values that nobody honest sends


def problem_of(max_weight: int, place: int, added: int) -> str:
    """Return what is wrong with a sum of three of five users at the clip, one of whom adds something to a word."""
    group = GroupOfUsers(Sliced(make_layout(60, 0.3, bits=16, max_weight=max_weight)))
    word = group.pattern.layout.word
    for user in range(3):
        words = group.upload(user, np.ones(60, np.float32), max_weight // 2)
        if user == 0:
            masked = group.masked[0].words.astype(np.int64)
            masked[place] = (masked[place] + added) % word.modulus
            words = bytes(pack(masked.astype(word.dtype), word))
        group.add(user, words)
    group.open(range(3))
    return group.server.problem()


def test_a_sum_that_honest_users_can_not_reach_is_a_problem() -> None:
    beyond, too_many = "its users sent values beyond the clip", "its users sent weights or counts above what is allowed"
    limit = GroupOfUsers(Sliced(make_layout(60, 0.3, bits=16))).quantizer.limit
    for max_weight in (0, 10):
        assert problem_of(max_weight, 3, 0) == ""
        assert problem_of(max_weight, 3, limit) == beyond
        assert problem_of(max_weight, -1, 3 * 18) == "", "all values of all users may have been clipped"
        assert problem_of(max_weight, -1, 3 * 18 + 1) == too_many
    # With weights, values must fit the weights that came with them.
    assert problem_of(10, 3, 9) == beyond
    assert problem_of(10, -2, 15) == ""
    assert problem_of(10, -2, 16) == too_many
    assert problem_of(10, -2, -1) == beyond


def test_counts_do_not_travel_where_they_would_tell_too_much() -> None:
    """As under differential privacy."""
    counting, silent = (Sliced(make_layout(1000, 0.3, bits=16, clip_norm=norm)) for norm in (0.0, 1.0))
    assert counting.digits.total > silent.digits.total == 0
    group = GroupOfUsers(silent)
    for user in group.users:
        group.add(user, group.upload(user, 9 * updates(5, 1000)[user]))
    assert group.assert_exact(group.users).clipped is None


def test_an_opened_sum_of_nobody_is_refused() -> None:
    group = GroupOfUsers(Sliced(make_layout(60, 0.3)))
    with pytest.raises(MalformedMessage, match="nobody has uploaded"):
        group.open([])


@pytest.mark.parametrize(("alpha", "max_weight"), [(0.25, 0), (0.25, 1000), (1.0, 1000)])
def test_the_size_of_an_upload_is_known_to_the_byte(alpha: float, max_weight: int) -> None:
    """In a small model, where the weight behind the values takes a large part."""
    pattern = Sliced(make_layout(40, alpha, max_weight=max_weight, bits=8))
    assert len(GroupOfUsers(pattern).upload(0, updates(1, 40)[0])) == pattern.upload_size()
