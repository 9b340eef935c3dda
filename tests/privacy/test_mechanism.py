"""The mechanism: norms never beyond the bound, noise of the right variance, means that are right."""

from __future__ import annotations

import os
from dataclasses import replace
from math import comb, inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from sparsesecagg import Cohort, InProcessRun, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.errors import InvalidInput, PolicyViolation, PrivacyBudgetExhausted
from sparsesecagg.privacy.mechanism import LARGEST_VARIANCE, Mechanism, RoundWithin
from sparsesecagg.protocol.ledger import MemoryLedger


def mechanism(length: int = 200, multiplier: float = 1.0, clip: float = 1.0) -> Mechanism:
    return Mechanism(clip, multiplier, 0.25, length)


def rounded(of: Mechanism, update: NDArray[Any], peak: float = inf) -> NDArray[np.int64]:
    """Return the integers of an update before noise."""
    clip, rounding, _ = of.steps(1, os.urandom, peak)
    clip.begin(lambda: [update])
    rounding.begin(lambda: [clip.apply(update)])
    return rounding.apply(clip.apply(update))


@given(arrays.arrays(np.float32, 50, elements=st.floats(width=32, allow_nan=True, allow_infinity=True)))
@settings(max_examples=300)
def test_no_update_has_a_larger_integer_norm_than_the_bound(update: NDArray[np.float32]) -> None:
    """Whatever an app returns: huge, tiny, not finite."""
    one = mechanism(50)
    assert int(np.square(rounded(one, update)).sum()) <= one.squared_norm


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_counts_as_nothing(odd: float) -> None:
    """Alone, and beside numbers that then keep their size."""
    one = mechanism(4)
    assert rounded(one, np.full(4, odd)).tolist() == [0] * 4
    assert (
        rounded(one, np.array([odd, 0.0, one.slice_clip * 0.999999, odd])).tolist()[2] >= one.scale * one.slice_clip - 1
    )


def test_a_slice_is_clipped_to_its_part_of_the_norm_and_spread_over_the_levels() -> None:
    one = Mechanism(3.0, 1.0, 0.25, 10_000)
    assert one.slice_clip == 3.0 * 0.5
    assert one.scale == one.levels * 100 / 1.5
    assert one.squared_norm >= (one.levels * 100) ** 2


def test_a_word_has_room_for_four_levels_of_each_user_and_the_noise() -> None:
    one, more = mechanism(100, multiplier=3.0), mechanism(100, multiplier=6.0)
    assert one.largest_sum(30, 30) - one.largest_sum(10, 10) == 80 * one.levels
    noise = one.largest_sum(0, 1)
    assert one.largest_sum(80, 10) - one.largest_sum(80, 80) == pytest.approx(noise, rel=0.01)
    assert more.largest_sum(0, 1) == pytest.approx(2 * noise, rel=0.01)
    assert noise > 8 * sqrt(one.variance)


@pytest.mark.parametrize("users", [3, 60, 1000])
@pytest.mark.parametrize("length", [2, 100, 10_000])
def test_slices_that_are_one_coordinate_alone_are_cut_to_the_room_of_a_word(length: int, users: int) -> None:
    """Or sums of honest users would wrap around. Slices of even coordinates are not touched."""
    one = mechanism(length)
    word = (1 << one.largest_sum(users, users).bit_length()) - 1
    peak = one.peak(word, users, users)
    alone, even = np.zeros(length), np.full(length, 0.999 * one.slice_clip / sqrt(length))
    alone[0] = one.slice_clip
    assert 4 * one.levels <= peak
    assert users * abs(rounded(one, alone, peak)).max() + 6 * sqrt(2 * one.variance) <= word
    assert rounded(one, even, peak).mean() == pytest.approx(one.levels, rel=0.5)


@pytest.mark.slow
def test_a_million_random_coordinates_stay_within_the_bound() -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-6, 0.1, 1.0, 100.0):
        for shape in ("normal", "sparse", "half steps"):
            one = mechanism(1000)
            for _ in range(25):
                update = rng.standard_normal(1000) * scale
                if shape == "sparse":
                    update *= rng.random(1000) < 0.01
                if shape == "half steps":  # Where rounding adds most.
                    update = np.full(1000, one.slice_clip / sqrt(1000)) * rng.choice([-0.25, 0.25, 0.75], 1000)
                assert int(np.square(rounded(one, update)).sum()) <= one.squared_norm


def test_without_the_check_rounding_would_lead_beyond_it() -> None:
    """The control: at the worst fractions plain random rounding exceeds the scaled clip in most draws."""
    one = mechanism(1000)
    update = np.full(1000, one.slice_clip / sqrt(1000) * 0.75)
    scaled = update * one.scale
    draws = [np.floor(scaled + np.random.default_rng(seed).random(1000)) for seed in range(50)]
    longest = (one.scale * np.linalg.norm(update)) ** 2
    assert np.mean([np.square(each).sum() > longest for each in draws]) > 0.9


def test_rounding_keeps_the_mean() -> None:
    one, update = mechanism(100), np.linspace(-0.04, 0.04, 100)
    total = np.mean([rounded(one, update) for _ in range(2000)], axis=0)
    assert np.allclose(total / one.scale, update, atol=4 * 0.5 / sqrt(2000) / one.scale)


def rounded_within(rows: NDArray[np.float64], bound: int, seed: int) -> NDArray[np.int64]:
    """Return rows rounded within a bound and added up, as an upload has them."""
    step = RoundWithin(bound, seed)
    step.begin(lambda: iter([rows]))
    return step.apply(rows)


HALVES = np.full((1, 16), 0.5)
"""Each draw has a squared norm of 8 ± 2."""


@pytest.mark.parametrize("bound", [0, 3, 6])
def test_a_draw_beyond_the_bound_is_drawn_again_and_at_last_rounded_toward_zero(bound: int) -> None:
    norms = [int(np.square(rounded_within(HALVES, bound, seed)).sum()) for seed in range(2000)]
    assert max(norms) == bound  # What meets it is taken, and nothing beyond.
    within = sum(comb(16, ones) for ones in range(bound + 1)) / 2**16
    zeros = (1 - within) ** 4  # Four draws.
    assert norms.count(0) / 2000 == pytest.approx(zeros, abs=4 * sqrt(zeros * (1 - zeros) / 2000) + 0.001)


def test_no_row_decides_how_others_are_rounded() -> None:
    """The first half of the coordinates is the first row's. The second row is zero, or often beyond the bound."""
    halves = np.concatenate([HALVES, 0 * HALVES], axis=1)
    for seed in range(50):
        alone, beside = (
            rounded_within(np.concatenate([halves, other]), 7, seed) for other in (0 * halves, halves[:, ::-1])
        )
        assert np.array_equal(alone[:16], beside[:16])
        assert not alone[16:].any()
        assert np.square(beside[16:]).sum() <= 7


def noisy_run(clients: int = 8, **options: Any) -> InProcessRun:
    usual = {"alpha": 0.5, "modulus_bits": 24, "clip_norm": 1.0, "noise_multiplier": 0.5}
    return InProcessRun(Parameters.create(clients, 64, RoundOptions(**{**usual, **options})))


def test_what_no_user_could_draw_alone_can_be_read_in_the_sum() -> None:
    """A variance beyond 2^26, which ten users share. What is too much for them is refused before any key is made."""
    options = RoundOptions(clip_norm=1.0, noise_multiplier=30.0)
    run = InProcessRun(Parameters.create(10, 20_000, options))
    mechanism, honest = run.params.mechanism, run.clients[0].promise.anonymity
    assert mechanism
    assert LARGEST_VARIANCE < mechanism.variance < honest * LARGEST_VARIANCE
    found = run.round([np.zeros(20_000, np.float32)] * 10).result.sum() * mechanism.scale
    assert float(np.var(found)) == pytest.approx(mechanism.variance * 10 / honest, rel=0.1)
    with pytest.raises(PolicyViolation, match="users can share at most"):
        InProcessRun(Parameters.create(10, 20_000, replace(options, noise_multiplier=90.0)))


def test_noise_takes_an_honest_user() -> None:
    """An owner that demands none, in a run that promises none."""
    with pytest.raises(PolicyViolation, match="promises no honest user"):
        Policy(min_anonymity=0, colluding=0.9).check(noisy_run().params)


@pytest.mark.slow
def test_sums_have_the_noise_of_their_users_and_never_less_than_planned() -> None:
    """Everybody there, and just enough there; the variance is n·μ/H."""
    for drops in ({}, {0: Stage.UPLOAD, 1: Stage.UPLOAD}):
        run = noisy_run(threshold=6)
        assert run.params.mechanism
        honest, found = run.clients[0].promise.anonymity, []
        for _ in range(60):
            outcome = run.round([np.zeros(64, np.float32)] * 8, drops=drops)
            assert outcome.exact
            assert outcome.result.clipped is None
            found.append(outcome.result.total[outcome.result.updated])
            run.share_keys(drops)
        variance = float(np.var(np.concatenate(found)))
        expected = (8 - len(drops)) / honest * run.params.mechanism.variance
        assert variance == pytest.approx(expected, rel=0.15)
        assert expected >= run.params.mechanism.variance


def test_the_mean_is_that_of_the_clipped_updates() -> None:
    run = noisy_run(20, noise_multiplier=1e-3)
    updates = [np.random.default_rng(user).standard_normal(64) for user in range(20)]
    result = run.round(updates).result
    where = result.updated
    slices = [update[where] * min(1.0, sqrt(0.5) / float(np.linalg.norm(update[where]))) for update in updates]
    assert np.allclose(result.mean()[where], np.mean(slices, axis=0), atol=0.035)  # Rounding: 0.5 / 16 / √20 a level.


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("pattern", {"pattern": "pairwise"}),
        ("pattern", {"neighbours": 4}),
        ("max_weight", {"max_weight": 5}),
        ("modulus_bits", {"modulus_bits": 6}),
        ("clip_norm", {"clip_norm": None}),
        ("clip_norm", {"clip_norm": 1e-31}),
        ("noise_multiplier", {"noise_multiplier": 1e-5}),
    ],
)
def test_what_noise_does_not_go_with_is_refused_by_name(option: str, options: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"modulus_bits": 24, "clip_norm": 1.0, "noise_multiplier": 1.0}
    with pytest.raises(InvalidInput) as caught:
        Parameters.create(10, 64, RoundOptions(**{**usual, **options}))
    assert caught.value.option == option


def test_a_user_answers_until_its_budget_is_spent_and_no_further() -> None:
    params = Parameters.create(5, 64, RoundOptions(modulus_bits=24, clip_norm=1.0, noise_multiplier=3.0, dropout=0.0))
    assert params.mechanism
    allowed = params.mechanism.cost.times(2).epsilon(1e-5 - 2**-40)
    ledgers = [MemoryLedger() for _ in range(5)]
    cohort = Cohort(policy=Policy(max_epsilon=allowed * 1.001), ledger_of=lambda user: ledgers[user])
    run = InProcessRun(params, cohort)
    update = [np.ones(64, np.float32)] * 5
    assert run.round(update).exact
    assert run.round(update).exact
    spent = ledgers[0].spent()
    with pytest.raises(Exception, match="epsilon"):
        run.round(update)
    assert ledgers[0].spent() == spent
    with pytest.raises(PrivacyBudgetExhausted):
        run.clients[0].policy.check_budget(params, spent)


def test_two_runs_with_one_ledger_share_its_budget() -> None:
    """A header that was accepted while there was budget gets no upload once the other run has spent it."""
    params = Parameters.create(5, 64, RoundOptions(modulus_bits=24, clip_norm=1.0, noise_multiplier=3.0, dropout=0.0))
    assert params.mechanism
    policy = Policy(max_epsilon=params.mechanism.cost.epsilon(1e-5 - 2**-40) * 1.001)
    runs = [InProcessRun(params.replace(session=bytes([n] * 32)), Cohort(policy=policy)) for n in (1, 2)]
    shared = runs[0].clients[0]._journal.ledger
    headers = [run.server.begin_round()[0] for run in runs]
    other = runs[1].clients[0]
    other._journal.ledger.spent = shared.spent  # type: ignore[method-assign]
    assert other.accept(headers[1]) is None
    runs[0].clients[0].upload(headers[0], np.ones(64, np.float32))
    with pytest.raises(PrivacyBudgetExhausted):
        other.upload(headers[1], np.ones(64, np.float32))


def test_a_user_that_demands_noise_takes_no_part_without() -> None:
    params = Parameters.create(5, 64)
    with pytest.raises(PolicyViolation, match="no noise"):
        Policy(max_epsilon=1.0).check(params)


def test_a_user_refuses_a_larger_clip_than_its_owner_allows() -> None:
    params = Parameters.create(5, 64, RoundOptions(modulus_bits=24, clip_norm=2.0, noise_multiplier=3.0))
    with pytest.raises(PolicyViolation, match="norm of 2"):
        Policy(clip_norm=1.0).check(params)
