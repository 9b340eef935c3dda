"""Plans with noise keep (ε, δ), say what that costs, and have groups as large as can be."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput, RoundRefused
from sparsesecagg.planning.noise import LARGEST_NORM, MEANING, DifferentialPrivacy, rounded, with_noise
from sparsesecagg.planning.planner import Goal, plan_round
from sparsesecagg.privacy.accountant import Cost
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.protocol import Parameters, Policy, RoundOptions
from sparsesecagg.protocol.policy import kept_by, sharing_noise
from sparsesecagg.simulate import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import make_identities, seeded_entropy

DELTA = 1e-5


def planned(clients: int, dim: int, epsilon: float, rounds: int = 100, **changes: Any) -> Any:
    """Return the plan. Which of its figures are there depends on the goal, and each test knows."""
    goal = Goal(clients, dim, 0.1, 0.1, 5, noise=DifferentialPrivacy(epsilon, rounds, DELTA, 0.5))
    return plan_round(replace(goal, **changes))


@pytest.mark.parametrize(
    ("clients", "dim", "epsilon", "norm"),
    [
        (100, 7_850, 8, 5.65),
        (100, 165_000, 8, 25.9),
        (1000, 7_850, 2, 1.90),
        (1000, 7_850, 8, 0.57),
        (1000, 165_000, 2, 8.73),
        (1000, 165_000, 8, 2.59),
        (10_000, 1_663_370, 8, 0.82),
    ],
)
def test_runs_whose_noise_exceeds_three_clips_are_refused(clients: int, dim: int, epsilon: float, norm: float) -> None:
    plan = planned(clients, dim, epsilon)
    assert plan.noise.norm_in_clips == pytest.approx(norm, rel=0.01)
    assert plan.noise.norm_in_clips == math.sqrt(dim) * plan.noise.multiplier / clients
    assert plan.feasible == (norm <= LARGEST_NORM)
    assert (plan.options is None) != plan.feasible
    assert MEANING in plan.reason


def test_a_plan_is_about_users_and_not_about_examples() -> None:
    with pytest.raises(InvalidInput, match="unit must be 'user' in a plan"):
        planned(100, 100, 8.0, noise=DifferentialPrivacy(8.0, 10, unit="example"))


@pytest.mark.parametrize(("epsilon", "rounds", "alpha"), [(2, 30, 0.2), (8, 100, 1.0), (0.5, 3, 0.5), (8, 1, 0.1)])
def test_users_with_just_that_budget_answer_just_so_many_rounds(epsilon: float, rounds: int, alpha: float) -> None:
    """What counts is what each user computes itself: honest users, cost of an upload, and δ without the failures."""
    plan = planned(600, 2_000, epsilon, rounds, alpha=alpha)
    params = Parameters.create(600, 2_000, plan.options)
    assert params.mechanism is not None
    assert kept_by(params, "malicious", 0.1).anonymity == plan.noise.honest == plan.anonymity
    policy, spent = Policy(max_epsilon=epsilon, delta=DELTA, clip_norm=0.5), Cost()
    for _ in range(rounds):
        policy.check_budget(params, spent)
        spent += params.mechanism.cost
    least = spent.epsilon(DELTA - 2**-40)
    assert 0.99 * epsilon < least <= epsilon


def test_users_of_a_real_run_refuse_the_round_after_the_last_planned_one() -> None:
    plan = plan_round(Goal(20, 60, 0.1, 0.1, 5, noise=DifferentialPrivacy(8, 3)))
    assert plan.options is not None
    people = make_identities(20, "budget", seeded_entropy(1))
    cohort = Cohort(policy=Policy(max_epsilon=8, delta=DELTA, clip_norm=1.0), identities=people)
    run = InProcessRun(Parameters.create(20, 60, plan.options, roster=cohort.roster), cohort)
    for _ in range(3):
        assert run.round([np.zeros(60)] * 20).exact
    with pytest.raises(RoundRefused, match="would spend epsilon"):
        run.round([np.zeros(60)] * 20)


def test_delta_includes_the_chance_that_the_groups_fail() -> None:
    usual, rare = (planned(600, 2_000, 2, failure_log2=failure).noise.multiplier for failure in (-40, -17))
    assert rare > usual, "2^-17 is three quarters of this delta"


@pytest.mark.parametrize(("clients", "groups"), [(10, 1), (129, 1), (1000, 1), (1001, 2), (5000, 5)])
def test_groups_are_as_large_as_can_be(clients: int, groups: int) -> None:
    plan = planned(clients, 20, 8)
    assert plan.groups == groups
    survivors = clients / groups * availability(0.1)
    expected = math.sqrt(groups * survivors / plan.noise.honest)
    assert plan.noise.std_vs_trusted_server == pytest.approx(expected)


@pytest.mark.parametrize(("clients", "factor"), [(10, 1.34), (100, 1.14), (1000, 1.09)])
def test_one_group_costs_little_more_than_a_trusted_server(clients: int, factor: float) -> None:
    assert planned(clients, 20, 8).noise.std_vs_trusted_server == pytest.approx(factor, abs=0.01)


def test_the_word_is_the_shortest_that_has_room_for_the_noise() -> None:
    plan = planned(1000, 7_850, 2)
    params = Parameters.create(1000, 7_850, plan.options)
    assert params.mechanism is not None
    assert params.mechanism.largest_sum(1000, 1000) <= params.word.largest
    with pytest.raises(ValueError, match="modulus_bits must be"):
        Parameters.create(1000, 7_850, replace(plan.options, modulus_bits=plan.options.modulus_bits - 1))


def test_a_word_too_short_for_noise_that_few_share_is_refused() -> None:
    """Every user adds as much as if only H honest ones did, so a sum of all has more noise than it needs."""
    options = RoundOptions(threshold=28, dropout=0.1, colluding=0.45)
    goal = DifferentialPrivacy(8, 10, 1e-5)
    bits = with_noise(options, goal, 50, 1400).modulus_bits
    assert bits is not None
    with pytest.raises(InvalidInput, match=f"modulus_bits must be {bits} or more for the noise, got {bits - 1}"):
        with_noise(replace(options, modulus_bits=bits - 1), goal, 50, 1400)


def test_updates_that_are_one_coordinate_alone_do_not_wrap_around() -> None:
    """The sum is what the users' cut coordinates come to, within six deviations of the noise."""
    goal, dim = DifferentialPrivacy(8, 1), 1001
    params = Parameters.create(60, dim, with_noise(RoundOptions(), goal, 60, dim))
    mechanism = params.mechanism
    assert mechanism is not None
    update = np.zeros(dim, np.float32)
    update[-1] = goal.clip
    result = InProcessRun(params).round(lambda user: update).result
    noise = math.sqrt(mechanism.variance) / mechanism.scale / 60
    honest = sharing_noise(params, None)
    peak = mechanism.peak(params.word.largest, 60, honest)
    assert 4 * mechanism.levels <= peak <= params.word.largest / 60
    assert result.mean()[-1] == pytest.approx(peak / mechanism.scale, abs=6 * noise * math.sqrt(60 / honest))
    assert 60 * mechanism.scale * goal.clip > params.word.largest, "without the cut it would wrap around"


def test_noise_that_no_table_holds_is_refused_in_a_sentence() -> None:
    """A million users can learn under noise that a single group's words have no room for."""
    plan = plan_round(Goal(1_000_000, 10**10, 0.1, 0.1, 5, noise=DifferentialPrivacy(8, 100, 1e-7)))
    assert plan.noise is not None
    assert not plan.feasible
    assert plan.noise.norm_in_clips <= LARGEST_NORM
    assert plan.reason.startswith("noise: there is more of it than a word of 32 bits has room for")


def test_remedies_for_too_few_honest_users_can_also_learn() -> None:
    plan = planned(100, 7_850, 8, min_anonymity=85)
    assert not plan.feasible
    assert plan.noise is None
    assert "--min-anonymity" not in plan.reason, "fewer honest users would be kept, and drowned"


@pytest.mark.parametrize(
    ("value", "digits", "up", "expected"),
    [
        (21.4967, 4, True, 21.5),
        (6.38087, 4, True, 6.381),
        (2213.0, 2, False, 2200),
        (188.3, 2, True, 190),
        (1, 2, 1, 1),
    ],
)
def test_rounding_never_goes_the_other_way(value: float, digits: int, up: bool, expected: float) -> None:
    assert rounded(value, digits, up=up) == expected
