"""The planner keeps what it promises, says what it costs, and tells privacy from availability where it can't."""

import math
import re
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import Word
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.message_sizes import default_levels, message_bytes, secagg_upload, shortest_word
from sparsesecagg.planning.planner import LOST_ROUNDS, PAIRWISE_WARNING, Goal, Plan, advice, plan_round
from sparsesecagg.privacy.anonymity import (
    MAX_FAILED,
    ServerModel,
    availability,
    default_threshold,
    excess_log2,
    failed_rounds,
    honest_in_sum,
)
from sparsesecagg.protocol import Parameters, Policy, RoundOptions
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.simulate import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import (
    RandomUpdate,
    draw_dropouts,
    entropy_of_run,
    make_identities,
    seeded_entropy,
)

MODEL = 1_663_370
LENIENT = Policy(min_anonymity=1, colluding=0.0, server="semi-honest", patterns=frozenset(PATTERNS))


def goals(most: int, hard: bool = False) -> st.SearchStrategy[Goal]:
    """Return goals; hard ones are missed more often than not."""
    return st.integers(3, most).flatmap(
        lambda n: st.builds(
            Goal,
            clients=st.just(n),
            dim=st.integers(100, 10**6),
            dropout=st.floats(0.2 * hard, 0.4 + 0.09 * hard),
            colluding=st.floats(0.0, 0.4),
            min_anonymity=st.integers(n // 3, n) if hard else st.integers(1, max(1, n // 3)),
            failure_log2=st.floats(-60, -2),
            server=st.sampled_from(["malicious", "semi-honest"]),
            alpha=st.one_of(st.none(), st.floats(0.01, 1)),
            group_size=st.one_of(st.none(), st.just(n), st.just(-(-n // 2) if n > 5 else n)),
        )
    )


def planned(goal: Goal) -> Any:
    """Return the plan. Which of its figures are there depends on the goal, and each test knows."""
    return plan_round(goal)


def parameters(plan: Plan) -> Parameters:
    return Parameters.create(plan.goal.clients, plan.goal.dim, plan.options)


@pytest.mark.parametrize(
    ("clients", "groups", "size", "threshold", "colluders", "anonymity"),
    [
        (5, 1, 5, 4, 1, 3),
        (10, 1, 10, 7, 1, 5),
        (25, 1, 25, 19, 3, 14),
        (50, 1, 50, 40, 5, 33),
        (100, 1, 100, 82, 10, 68),
        (300, 3, 100, 82, 28, 48),
        (1000, 10, 100, 82, 36, 39),
        (10_000, 100, 100, 82, 40, 35),
    ],
)
def test_the_table_of_the_design(
    clients: int, groups: int, size: int, threshold: int, colluders: int, anonymity: int
) -> None:
    plan = planned(Goal(clients, MODEL, dropout=0.1, colluding=0.1, min_anonymity=min(5, anonymity)))
    assert plan.feasible
    assert (plan.groups, plan.group_size, plan.threshold) == (groups, size, threshold)
    assert (plan.colluders, plan.anonymity) == (colluders, anonymity)


@settings(max_examples=150, deadline=None)
@given(goals(600))
def test_every_plan_keeps_its_promises(goal) -> None:
    plan = planned(goal)
    assume(plan.feasible)
    params = parameters(plan)
    sizes, most = params.sizes, plan.colluders
    assert (params.groups, max(sizes), params.threshold) == (plan.groups, plan.group_size, plan.threshold)
    # Privacy: the bound with as many colluders as a group has, except with the allowed probability.
    assert plan.anonymity == min(honest_in_sum(size, plan.threshold, min(most, size), goal.server) for size in sizes)
    assert plan.anonymity >= goal.min_anonymity
    assert excess_log2(sizes, goal.colluders, most) <= goal.failure_log2
    assert plan.privacy_failure_log2 <= goal.failure_log2
    # A client that computes the promise from the parameters comes to no less.
    assert kept_by(params, goal.server, goal.colluding, goal.failure_log2).anonymity >= plan.anonymity
    # Availability.
    assert plan.abort_probability == pytest.approx(failed_rounds(min(sizes), plan.threshold, goal.dropout))
    assert plan.abort_probability <= LOST_ROUNDS[-1]
    # Words: the shortest that hold the sum at so many levels.
    levels = default_levels(min(sizes))
    assert params.word.largest // max(sizes) >= levels
    assert params.modulus_bits == 4 or Word.of(params.modulus_bits - 1).largest // max(sizes) < levels
    assert plan.options.alpha == (DEFAULT_ALPHA if goal.alpha is None else goal.alpha)


@settings(max_examples=60, deadline=None)
@given(goals(300, hard=True))
def test_a_remedy_is_feasible_and_a_reason_names_its_kind(goal) -> None:
    plan = planned(goal)
    assume(not plan.feasible)
    assert re.match("(privacy|availability): ", plan.reason)
    assert plan.options is plan.anonymity is plan.upload_bytes is plan.abort_probability is None
    kinds = {"dropout": float, "min-anonymity": int, "clients": int, "server": str}
    found = re.findall(r"--(server|dropout|min-anonymity|clients) (\S+)", plan.reason)
    for option, value in found:
        name = option.replace("-", "_")
        assert planned(replace(goal, **{name: kinds[option](value)})).feasible
    if (higher := dict(found).get("min-anonymity")) is not None:
        assert not planned(replace(goal, min_anonymity=int(higher) + 1)).feasible


def test_privacy_is_blamed_only_if_everybody_staying_would_not_help() -> None:
    """Against a semi-honest server without colluders nothing but availability can be missing."""
    plan = planned(Goal(100, 165_000, dropout=0.3, colluding=0.0, min_anonymity=1, server="semi-honest"))
    assert plan.feasible
    assert plan.abort_probability <= MAX_FAILED
    missing = planned(Goal(100, 165_000, dropout=0.3, colluding=0.0, min_anonymity=90, server="semi-honest"))
    assert missing.reason.startswith("availability: too few users stay, about 63 of 100")
    honest = planned(Goal(100, 165_000, dropout=0.3, colluding=0.3, min_anonymity=71))
    assert honest.reason.startswith("privacy: only 70 of 100 users are honest")
    drawn = planned(Goal(1000, 165_000, dropout=0.0, colluding=0.4, min_anonymity=50, group_size=50))
    assert drawn.reason.startswith("privacy: even if all users of a group stay, a sum has 4 honest users, since")


def test_the_papers_dropouts_and_a_malicious_server() -> None:
    """Two thirds stay: enough for some privacy in large groups only, and the answer says what is short."""
    small = planned(Goal(100, 165_000, dropout=0.3, colluding=0.1, min_anonymity=20))
    assert not small.feasible
    assert small.reason.startswith("availability: too few users stay, about 63 of 100 at a dropout of 0.3")
    assert "--server semi-honest" in small.reason
    assert "--dropout 0.2" in small.reason
    few = planned(Goal(100, 165_000, dropout=0.3, colluding=0.1, min_anonymity=5))
    assert few.feasible
    assert 0.05 < few.abort_probability < 0.1
    assert "a semi-honest server lose fewer" in few.reason
    large = planned(Goal(1000, 165_000, dropout=0.3, colluding=0.1, min_anonymity=5))
    assert large.feasible
    assert large.group_size >= 300
    assert large.abort_probability <= LOST_ROUNDS[0]


def test_larger_groups_are_taken_only_where_the_anonymity_needs_them() -> None:
    sizes = [planned(Goal(1000, MODEL, 0.1, 0.1, wanted)).group_size for wanted in (1, 39, 60, 200, 500)]
    assert sizes[0] == sizes[1] == 100
    assert 100 < sizes[2] < sizes[3] < sizes[4] <= 1000


def test_the_threshold_is_raised_where_the_anonymity_needs_it() -> None:
    usual, more = (planned(Goal(100, MODEL, 0.1, 0.1, wanted)) for wanted in (5, 70))
    assert usual.threshold == default_threshold(100, 100, 0.1, 0.1)
    assert more.threshold > usual.threshold
    assert more.anonymity >= 70
    assert more.abort_probability > usual.abort_probability


def test_the_kinds_of_server_differ_in_the_bound_only() -> None:
    malicious, other = (planned(Goal(1000, MODEL, 0.1, 0.1, 5, server=s)) for s in ("malicious", "semi-honest"))
    assert malicious.anonymity < other.anonymity == other.threshold - other.colluders
    assert malicious.upload_bytes == other.upload_bytes
    assert planned(Goal(3, 100, 0.1, 0.1, 1, server="semi-honest")).threshold == 2


def test_alpha_costs_bytes_and_no_anonymity() -> None:
    plans = [planned(Goal(25, MODEL, 0.1, 0.1, 5, alpha=alpha)) for alpha in (1, 0.2, 0.037, 0.01)]
    assert len({plan.anonymity for plan in plans}) == 1
    for plan in plans:
        assert plan.upload_bytes == pytest.approx(plan.options.alpha * MODEL * 8 / 8, rel=0.02)
        assert plan.compression_vs_secagg == secagg_upload(MODEL) / plan.upload_bytes


@pytest.mark.parametrize(
    ("clients", "options", "roster"),
    [
        (10, RoundOptions(alpha=0.1, modulus_bits=7), False),
        (40, RoundOptions(alpha=0.2, modulus_bits=8, dropout=0.1), True),
        (90, RoundOptions(alpha=0.1, modulus_bits=8, group_size=30, dropout=0.05), True),
        (60, RoundOptions(alpha=0.05, modulus_bits=32, dropout=0.2), False),
        (40, RoundOptions(alpha=0.3, modulus_bits=9, neighbours=20, dropout=0.1), False),
        (30, RoundOptions(pattern="full", dropout=0.1), False),
        (30, RoundOptions(pattern="pairwise", alpha=0.3, dropout=0.1), False),
    ],
    ids=str,
)
def test_bytes_are_those_of_real_rounds(clients: int, options: RoundOptions, roster: bool) -> None:
    """Within two per cent of the mean of eight rounds, stage by stage; key packages count from the third on."""
    people = make_identities(clients, "bytes", seeded_entropy(1), group_size=options.group_size) if roster else None
    if not options.neighbours:  # Low, so that no round fails.
        options = replace(options, threshold=(options.group_size or clients) // 2 + 2)
    cohort = Cohort(identities=people, entropy_of=entropy_of_run(1))  # Which coordinates pairs draw is random.
    params = Parameters.create(clients, 6000, options, session=bytes(32), roster=cohort.roster)
    run = InProcessRun(params, replace(cohort, policy=LENIENT))
    sizes: dict[str, list[float]] = {}
    for number in range(8):
        drops = draw_dropouts(clients, options.dropout, [Stage.UPLOAD], np.random.default_rng([7, number]))
        result = run.round(partial(RandomUpdate, 1, number, 6000, 0.1), drops=drops).result
        for way, by_stage in (("sent", result.sent_bytes), ("received", result.received_bytes)):
            for stage, mean in result.mean_bytes(by_stage).items():
                if number > 1 and stage != "total":
                    sizes.setdefault(f"{way} {stage}", []).append(mean)
    expected = message_bytes(params)
    found = {name: float(np.mean(values)) for name, values in sizes.items() if any(values)}
    formula = {f"sent {stage}": size for stage, size in expected.sent.items()}
    formula |= {f"received {stage}": size for stage, size in expected.received.items()}
    assert found.keys() == formula.keys()
    for way, total in (("sent", expected.all_sent), ("received", expected.all_received)):
        assert sum(size for name, size in found.items() if name.startswith(way)) == pytest.approx(total, rel=0.02)
    assert found["sent UPLOAD"] == pytest.approx(expected.upload, rel=0.02)


@pytest.mark.parametrize(("users", "levels", "bits"), [(36, 2, 8), (36, 8, 10), (7, 1, 4), (10, 12, 8), (100, 2, 9)])
def test_the_shortest_word_holds_the_sum_of_a_group(users: int, levels: int, bits: int) -> None:
    assert shortest_word(users, levels) == bits


def test_large_groups_get_few_levels() -> None:
    assert [default_levels(users) for users in (2, 19, 20, 49, 50, 1000)] == [8, 8, 4, 4, 2, 2]


def assert_not_exceeded(chance: float, failures: int, draws: int) -> None:
    """Six standard deviations above the mean, and a few for the rarest."""
    assert failures <= chance * draws + 6 * math.sqrt(chance * draws) + 3


@pytest.mark.parametrize(("clients", "colluding", "size"), [(60, 0.15, 20), (100, 0.2, 25), (45, 0.1, 15)])
@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_planned_chances_are_never_below_the_sampled_frequency(
    clients: int, colluding: float, size: int, server: ServerModel
) -> None:
    """Plans for 2^−6 per run; one draw of the sixteen is sampled, and the survivors of one round of each group."""
    plan = planned(Goal(clients, 10_000, 0.1, colluding, 1, failure_log2=-6, server=server, group_size=size))
    assert plan.feasible
    draws, rng = 20_000, np.random.default_rng(clients)
    colludes = rng.permuted(np.tile(np.arange(clients) < plan.goal.colluders, (draws, 1)), axis=1)
    inside = colludes.reshape(draws, plan.groups, size).sum(axis=2)
    assert_not_exceeded(2 ** (plan.privacy_failure_log2 - 4), int((inside > plan.colluders).any(axis=1).sum()), draws)
    staying = rng.binomial(size, availability(0.1), draws)
    assert_not_exceeded(plan.abort_probability, int((staying < plan.threshold).sum()), draws)


@pytest.mark.parametrize(("clients", "limit"), [(1000, 3.0), (10_000, 4.0)])
@pytest.mark.parametrize(("dropout", "colluding"), [(0.1, 0.1), (0.1, 0.3), (0.3, 1 / 3), (0.49, 0.49)])
def test_planning_is_quick(clients: int, limit: float, dropout: float, colluding: float) -> None:
    start = time.process_time()
    planned(Goal(clients, 10**9, dropout=dropout, colluding=colluding, min_anonymity=5))
    assert time.process_time() - start < limit


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("clients", 2, "from 3 to 1048576, got 2"),
        ("clients", 10**9, "from 3 to"),
        ("dim", 0, "from 1"),
        ("dim", 2**41, "from 1"),
        ("dropout", 0.5, "in"),
        ("dropout", math.nan, "in"),
        ("colluding", -0.1, "in"),
        ("min_anonymity", 0, "from 1 to the 100"),
        ("min_anonymity", 101, "from 1 to the 100"),
        ("failure_log2", 0.0, "below 0"),
        ("failure_log2", -math.inf, "at least -1000"),
        ("server", "lying", "one of malicious, semi-honest"),
    ],
)
def test_goals_that_no_plan_can_be_made_for_are_refused(option: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refusal:
        Goal(**{**{"clients": 100, "dim": 10, "dropout": 0.1, "colluding": 0.1, "min_anonymity": 5}, option: value})
    assert refusal.value.option == option


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("alpha", 0.0),
        ("alpha", 1.1),
        ("alpha", 0.01),
        ("group_size", 2),
        ("group_size", 101),
    ],
)
def test_options_that_no_round_could_have_are_refused(option: str, value: Any) -> None:
    goal = Goal(100, 50, 0.1, 0.1, 5)
    with pytest.raises(InvalidInput) as refusal:
        plan_round(replace(goal, **{option: value}))
    assert refusal.value.option == option


def test_settings_that_fail_often_or_reveal_are_noted() -> None:
    assert advice(Parameters.create(100, 1000, RoundOptions(alpha=0.1))) == []
    (often,) = advice(Parameters.create(5, 1000, RoundOptions(alpha=0.1)))
    assert often == "about 9% of the rounds fail, with fewer than 4 of 5 users left: lower --dropout or --threshold"
    roster = make_identities(5, "advice", seeded_entropy(1))[0].roster
    (least,) = advice(Parameters.create(5, 1000, RoundOptions(alpha=0.1), roster=roster))
    assert least.endswith("users left: lower --dropout"), "users of a roster take no threshold below 4"
    groups = make_identities(40, "advice", seeded_entropy(1), group_size=5)[0].roster
    _, thin = advice(Parameters.create(40, 1000, RoundOptions(alpha=0.1, dropout=0.2), roster=groups))
    assert thin.endswith("protect nobody from a malicious server: raise --group-size"), "all five may collude"
    (lost,) = advice(Parameters.create(40, 1000, RoundOptions(alpha=0.1, group_size=5)))
    assert "lose a given group" in lost
    assert advice(Parameters.create(40, 1000, RoundOptions(pattern="pairwise", alpha=0.1))) == [PAIRWISE_WARNING]
