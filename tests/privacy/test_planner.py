"""The planner keeps what it promises, costs as little as possible, and says what would be feasible."""

import math
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privacy.sampling import assert_not_exceeded, sampled_rounds, thinnest
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.patterns import served_fraction
from sparsesecagg.privacy import graph_tails, tails
from sparsesecagg.privacy.plan import Goal
from sparsesecagg.privacy.planner import ABORT_TARGET, MARGIN, plan_each, plan_round
from sparsesecagg.protocol import RoundParameters, Stage, run_round


def goals(most: int) -> st.SearchStrategy[Goal]:
    return st.integers(3, most).flatmap(
        lambda n: st.builds(
            Goal,
            clients=st.just(n),
            dim=st.integers(1, 10**6),
            dropout=st.floats(0.0, 0.49),
            colluding=st.floats(0.0, 0.49),
            min_anonymity=st.integers(1, n),
            failure_log2=st.floats(-60, -2),
            clip=st.floats(0.01, 100),
            levels=st.integers(1, 64),
        )
    )


def test_a_thousand_users_send_a_fiftieth():
    plan = plan_round(Goal(1000, 1_663_370, dropout=0.1, colluding=0.1, min_anonymity=5))
    assert plan.feasible
    assert plan.alpha <= 0.035
    assert plan.privacy_failure_log2 <= -40
    assert plan.upload_bytes <= 130_000
    assert plan.compression_vs_secagg > 50
    assert plan.abort_probability <= ABORT_TARGET
    assert plan.neighbours is not None


def test_twenty_users_of_whom_a_third_collude_and_drop_out_have_no_plan():
    plan = plan_round(Goal(20, 1000, dropout=0.3, colluding=1 / 3, min_anonymity=5))
    assert not plan.feasible
    assert "20 users" in plan.reason
    assert plan.alpha is None
    assert plan.upload_bytes is None
    with pytest.raises(InvalidInput, match="min_anonymity"):
        plan.round_options()


@settings(max_examples=150, deadline=None)
@given(goals(2000))
def test_every_plan_keeps_its_promises(goal):
    plan = plan_round(goal)
    assume(plan.feasible)
    assert plan.privacy_failure_log2 <= goal.failure_log2
    assert 0 <= plan.abort_probability <= 1
    assert plan.committee_size == int(goal.clients * plan.share) >= max(3, goal.min_anonymity)
    assert plan.alpha == float(plan.share)
    assert served_fraction(RoundParameters.create(**plan.round_options()).pattern_settings) == plan.share
    assert max(2, goal.min_anonymity) <= plan.min_survivors <= plan.committee_size
    contributors = math.ceil(goal.clients * plan.share)
    assert plan.quantisation_levels == Word.of(plan.modulus_bits).largest // contributors
    assert plan.quantisation_levels >= goal.levels * max(1, goal.clip)
    assert plan.modulus_bits == WORD_BITS[0] or (
        Word.of(WORD_BITS[WORD_BITS.index(plan.modulus_bits) - 1]).largest // contributors
        < goal.levels * max(1, goal.clip)
    )
    # The abort target is missed only where there is no choice: a mere majority, or the least demand.
    holders = goal.clients if plan.neighbours is None else plan.neighbours + 1
    if plan.abort_probability > ABORT_TARGET:
        forced = plan.min_survivors == max(2, goal.min_anonymity)
        assert forced or plan.threshold == max(holders // 2 + 1, goal.colluders + 1)


@settings(max_examples=60, deadline=None)
@given(goals(300))
def test_no_smaller_share_of_the_model_would_keep_the_promise(goal):
    plan = plan_round(goal)
    assume(plan.feasible and goal.dim >= goal.stripes * goal.clients)
    least = max(3, goal.min_anonymity)
    shares = {Fraction(a, b) for b in range(1, 17) for a in range(1, b)} | {Fraction(1, g) for g in range(1, 101)}
    for share in (share for share in shares if least <= share * goal.clients and share < plan.share):
        failure = tails.log_privacy_failure(
            goal.clients, goal.colluders, share, goal.stripes, dropout=goal.dropout, anonymity=goal.min_anonymity
        )
        assert failure + MARGIN > goal.log_budget


def test_a_share_between_two_whole_numbers_of_committees_is_found():
    plan = plan_round(Goal(100, 1_663_370, dropout=0.1, colluding=0.1, min_anonymity=5))
    assert plan.share == Fraction(3, 11)
    assert (plan.blocks_per_user, plan.blocks_per_stripe, plan.committee_size) == (3, 11, 27)


@settings(max_examples=80, deadline=None)
@given(goals(200))
def test_what_is_called_nearest_is_feasible_and_nothing_nearer_is(goal):
    goal = replace(goal, clip=1.0)
    plan = plan_round(goal)
    assume(not plan.feasible)
    nearest = plan.nearest
    assert plan.privacy_failure_log2 > goal.failure_log2
    if nearest.clients is not None:
        assert plan_round(replace(goal, clients=nearest.clients)).feasible
        assert not plan_round(replace(goal, clients=nearest.clients - 1)).feasible
    if nearest.min_anonymity is not None:
        assert plan_round(replace(goal, min_anonymity=nearest.min_anonymity)).feasible
        assert not plan_round(replace(goal, min_anonymity=nearest.min_anonymity + 1)).feasible
    else:
        assert not plan_round(replace(goal, min_anonymity=1)).feasible
    if nearest.failure_log2 is not None:
        assert plan_round(replace(goal, failure_log2=nearest.failure_log2)).feasible


def test_more_anonymity_never_costs_less():
    plans = plan_each(Goal(500, 100_000, dropout=0.2, colluding=0.1, min_anonymity=1), range(1, 60, 3))
    sizes = [plan.upload_bytes for plan in plans]
    assert all(plan.feasible for plan in plans)
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_small_cohort_sends_more_of_the_model_in_shorter_words():
    small = plan_round(Goal(30, 100_000, dropout=0.1, colluding=0.0, min_anonymity=3, failure_log2=-20))
    large = plan_round(Goal(3000, 100_000, dropout=0.1, colluding=0.1, min_anonymity=60, failure_log2=-20))
    assert small.alpha > large.alpha
    assert small.modulus_bits < large.modulus_bits


def test_a_wider_clip_takes_longer_words_for_the_same_step():
    narrow = plan_round(Goal(1000, 1000, dropout=0.1, colluding=0.1, min_anonymity=5))
    wide = plan_round(Goal(1000, 1000, dropout=0.1, colluding=0.1, min_anonymity=5, clip=50))
    assert wide.modulus_bits > narrow.modulus_bits
    assert wide.quantisation_levels >= 50 * 8


@pytest.mark.parametrize(
    ("clients", "dropout", "colluding", "anonymity"),
    [(60, 0.1, 0.1, 3), (100, 0.3, 1 / 3, 5), (45, 0.2, 0.0, 4)],
)
def test_planned_failure_probability_is_never_below_the_sampled_frequency(clients, dropout, colluding, anonymity):
    """Plans for 2^−8, sampled over whole rounds; a false alarm has probability 10^−6."""
    plan = plan_round(
        Goal(clients, 10_000, dropout=dropout, colluding=colluding, min_anonymity=anonymity, failure_log2=-8)
    )
    draws = 20_000
    arc_of, survives = sampled_rounds(clients, plan.share, plan.stripes, dropout, draws=draws, seed=clients)
    honest = survives & (np.arange(clients) >= plan.goal.colluders)
    failed = np.any([thinnest(of, honest, plan.share) < anonymity for of in arc_of], axis=0)
    assert_not_exceeded(2**plan.privacy_failure_log2, int(failed.sum()), draws)
    aborted = np.any([thinnest(of, survives, plan.share) < plan.min_survivors for of in arc_of], axis=0)
    aborted |= survives.sum(axis=1) < plan.threshold
    assert_not_exceeded(plan.abort_probability, int(aborted.sum()), draws)


@pytest.mark.parametrize(("failure_log2", "share"), [(-12, Fraction(1, 3)), (-20, Fraction(2, 5))])
def test_no_client_needs_to_send_more_than_planned(failure_log2, share):
    """A real round with the planned settings: accepted by the protocol, exact, and of the planned size."""
    plan = plan_round(Goal(40, 3_000, dropout=0.1, colluding=0.1, min_anonymity=4, failure_log2=failure_log2))
    assert plan.share == share
    params = RoundParameters.create(**plan.round_options())
    rng = np.random.default_rng(12)
    outcome = run_round(
        params,
        lambda user: rng.normal(size=3_000),
        drops={3: Stage.UPLOAD, 17: Stage.SHARE_KEYS},
    )
    sizes = set(outcome.result.sent_bytes["UPLOAD"])
    assert outcome.exact
    assert len(sizes) == 1
    assert plan.upload_bytes - 64 < sizes.pop() <= plan.upload_bytes


def test_a_planned_round_with_a_sparse_share_graph_completes():
    plan = plan_round(Goal(150, 400, dropout=0.05, colluding=0.0, min_anonymity=10, failure_log2=-20))
    assert plan.neighbours is not None
    params = RoundParameters.create(**plan.round_options())
    assert params.neighbours == plan.neighbours
    assert params.layout.blocks == plan.blocks_per_stripe * plan.stripes
    outcome = run_round(params, lambda user: np.full(400, 0.5), drops=dict.fromkeys(range(5), Stage.UPLOAD))
    assert outcome.exact
    assert (
        max(outcome.result.sent_bytes["SHARE_KEYS"]) + max(outcome.result.sent_bytes["UNMASK"]) < plan.share_bytes + 256
    )


def test_large_committees_get_sparse_masks_that_stay_connected():
    goal = Goal(10_000, 10_000, dropout=0.3, colluding=0.3, min_anonymity=1000)
    plan = plan_round(goal)
    assert plan.neighbours < plan.committee_size - 1
    apart = graph_tails.log_disconnected(
        math.ceil(goal.clients * plan.share), plan.neighbours, 0.3, goal.colluders, population=goal.clients
    )
    assert apart + math.log(plan.blocks_per_stripe * plan.stripes) <= goal.log_budget
    assert plan.lying_server_failure_log2 == 0  # Who lies about dropouts can tear such masks.


@pytest.mark.parametrize("clients", [1000, 10_000])
def test_planning_takes_less_than_two_seconds(clients):
    start = time.perf_counter()
    for dropout, colluding in [(0.1, 0.1), (0.3, 1 / 3), (0.49, 0.49)]:
        plan_round(Goal(clients, 10**9, dropout=dropout, colluding=colluding, min_anonymity=clients // 10))
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("clients", 2, "from 3 to"),
        ("clients", 10**9, "from 3 to"),
        ("dim", 0, "from 1"),
        ("dropout", 0.5, "below 0.5"),
        ("dropout", -0.1, "at least 0"),
        ("dropout", math.nan, "below 0.5"),
        ("colluding", 0.5, "below 0.5"),
        ("min_anonymity", 0, "from 1 to"),
        ("min_anonymity", 101, "from 1 to the 100 clients"),
        ("failure_log2", 0.0, "below 0"),
        ("failure_log2", 8.0, "below 0"),
        ("clip", 0.0, "positive"),
        ("clip", math.inf, "finite"),
        ("levels", 0, "at least 1"),
        ("stripes", 0, "at least 1"),
    ],
)
def test_contradictory_goals_are_refused_with_the_option_and_its_range(option, value, says):
    goal = {"clients": 100, "dim": 10, "dropout": 0.1, "colluding": 0.1, "min_anonymity": 5}
    with pytest.raises(InvalidInput, match=says) as caught:
        Goal(**goal | {option: value})
    assert caught.value.option == option


@pytest.mark.parametrize(("change", "option"), [({"clip": 1e9}, "clip"), ({"levels": 10**9}, "levels")])
def test_a_resolution_beyond_every_word_names_the_largest_that_fits(change, option):
    goal = Goal(100, 10, dropout=0.1, colluding=0.1, min_anonymity=5, **change)
    with pytest.raises(InvalidInput) as caught:
        plan_round(goal)
    assert caught.value.option == option
    most = int(caught.value.problem.split("at most ")[1].split()[0])
    assert plan_round(replace(goal, **{option: most})).modulus_bits == 32
    with pytest.raises(InvalidInput):
        plan_round(replace(goal, **{option: most + 1}))


def test_the_table_in_the_documentation_is_what_the_planner_says():
    text = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| ") and "," in line]
    checked = 0
    for row in (row for row in rows if len(row) == 10):
        clients, dropout, colluding, anonymity, failure, *figures = (cell.replace("−", "-") for cell in row)
        if not clients.isdigit():
            continue
        goal = Goal(
            int(clients), 1_663_370, float(dropout), float(colluding), int(anonymity), failure_log2=float(failure)
        )
        plan = plan_round(goal)
        assert figures == [
            f"{plan.alpha:.3g}",
            str(plan.committee_size),
            str(plan.modulus_bits),
            f"{plan.upload_bytes:,}",
            f"{plan.compression_vs_secagg:.1f}",
        ]
        checked += 1
    assert checked == 9
