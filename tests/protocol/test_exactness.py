"""The aggregate equals the plain sum of the survivors' quantised values, or the round fails with a typed error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from protocol.rounds import LENIENT, identities, make, updates
from sparsesecagg.errors import InvalidInput, RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.protocol import STAGES, Parameters, RoundOptions, Stage
from sparsesecagg.simulate import Cohort, InProcessRun, Outcome, run_round
from sparsesecagg.simulate.simulation import entropy_of_run

TYPED = (ThresholdNotMet, TooLittleOpened, RoundRefused)


def cohort(seed: int) -> Cohort:
    return Cohort(LENIENT, entropy_of_run(seed))


@st.composite
def runs(draw: st.DrawFn) -> Parameters:
    """Draw parameters of a run: any pattern, any groups, any word."""
    clients = draw(st.integers(3, 14))
    pattern = draw(st.sampled_from(["full", "pairwise", "sliced", "sliced"]))
    options: dict[str, Any] = {
        "pattern": pattern,
        "modulus_bits": draw(st.integers(4, 32)),
        "clip": draw(st.floats(0.01, 100.0)),
        "max_weight": draw(st.sampled_from([0, 1, 7, 100_000])),
    }
    if pattern == "sliced":
        sizes = [size for size in range(3, clients + 1) if clients // -(-clients // size) >= 3]
        options |= {"group_size": draw(st.sampled_from(sizes)), "same_slices": draw(st.booleans())}
    if pattern != "full":
        options["alpha"] = draw(st.sampled_from([1.0, 0.5, 0.25, 0.7]))
    if options.get("group_size") in (None, clients):
        options["neighbours"] = draw(st.one_of(st.none(), st.integers(2, 17)))
    dim = draw(st.one_of(st.integers(10, 30), st.integers(10, 1500)))
    session = draw(st.binary(min_size=32, max_size=32))
    try:
        return make(clients, dim, session=session, **options)
    except InvalidInput as problem:
        assert problem.option == "modulus_bits"
        return make(clients, dim, session=session, **{**options, "modulus_bits": 32})


def check(run: InProcessRun, outcome: Outcome, weights: list[int] | None) -> None:
    """Assert that a result says what is true about who is in it."""
    params, result = run.params, outcome.result
    assert outcome.exact
    assert not result.total[~result.updated].any()
    if not params.shape.protects:
        return
    contributors, weight = np.zeros((2, params.dim), np.int64)
    for each in run.server.rounds:
        users = set(each.epoch.group.users.tolist()) & set(result.survivors)
        assert bool(users) == (each.epoch.group.number not in result.lost)
        for index in each.header.masked_sum().indices():
            contributors[index] += len(users)
            weight[index] += sum(weights[user] for user in users) if weights else 0
    assert np.array_equal(result.contributors, contributors)
    if weights is not None:
        assert np.array_equal(result.combined.weights, weight)  # type: ignore[arg-type]
    if not result.lost:
        assert result.clipped == outcome.clipped


@pytest.mark.slow
@settings(max_examples=60)
@given(runs(), st.data())
def test_every_round_of_a_run_is_exact_or_fails_with_a_typed_error(params: Parameters, data: st.DataObject) -> None:
    """Whatever the settings, and whoever drops out at whatever stage of whatever round."""
    seed = data.draw(st.integers(0, 2**32))
    users = st.integers(0, params.clients - 1)
    spare = params.clients - params.threshold if params.groups == 1 and not params.neighbours else params.clients // 3
    rng = np.random.default_rng(seed)
    gone = data.draw(st.dictionaries(users, st.sampled_from(STAGES[:2]), max_size=spare))
    try:
        run = InProcessRun(params, cohort(seed), drops=gone)
    except ThresholdNotMet:
        event("set-up failed")
        return
    for number in range(data.draw(st.integers(1, 4))):
        drops = data.draw(st.dictionaries(users, st.sampled_from(STAGES[2:]), max_size=spare))
        weights = rng.integers(0, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
        try:
            outcome = run.round(updates(params, seed + number), weights=weights, drops=drops)
        except TYPED as failure:
            event(type(failure).__name__)
            assert run.server.result is None
            continue
        event(f"{params.pattern}, exact")
        check(run, outcome, weights)


@pytest.mark.parametrize("bits", range(4, 33))
def test_words_of_every_width_are_exact(bits: int) -> None:
    params = make(12, 101, group_size=6, alpha=0.3, threshold=4, modulus_bits=bits)
    run = InProcessRun(params, cohort(bits))
    for _ in range(2):
        assert run.round(updates(params, bits), drops={3: Stage.UPLOAD, 7: Stage.UNMASK}).exact


@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
@pytest.mark.parametrize("pattern", ["full", "pairwise", "sliced"])
@pytest.mark.parametrize("clients", [4, 9])
def test_exactly_n_minus_t_may_go_and_one_more_fails(clients: int, pattern: str, stage: Stage) -> None:
    """At the threshold the sum is exact; one user fewer and there is no sum at all."""
    params = make(clients, 50, pattern=pattern)
    allowed = clients - params.threshold
    outcome = run_round(params, updates(params), Cohort(LENIENT), drops=dict.fromkeys(range(allowed), stage))
    assert outcome.exact
    with pytest.raises(ThresholdNotMet) as failure:
        run_round(params, updates(params), Cohort(LENIENT), drops=dict.fromkeys(range(allowed + 1), stage))
    assert failure.value.survivors <= params.threshold - 1
    assert failure.value.needed == params.threshold


@pytest.mark.parametrize("group_size", [None, 6])
def test_authenticated_rounds_are_exact_too(group_size: int | None) -> None:
    people = identities(12, group_size)
    options = RoundOptions(alpha=0.5, threshold=4 if group_size else 9)
    params = Parameters.create(12, 100, options, roster=people[0].roster)
    run = InProcessRun(params, Cohort(LENIENT, identities=people))
    outcome = run.round(updates(params), drops={1: Stage.UPLOAD, 8: Stage.UNMASK})
    assert outcome.exact
    assert outcome.result.dropped == {"SHARE_KEYS": 0, "UPLOAD": 1, "UNMASK": 1}
    outcome = run.round(updates(params))
    assert outcome.exact
    assert outcome.result.survivors == tuple(range(12))


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([12, 16, 24, 32]), st.sampled_from([1.0, 0.5]))
def test_the_weighted_mean_is_right_to_rounding_error(seed: int, bits: int, alpha: float) -> None:
    """mean = Σ w·y / Σ w over the survivors, off by at most one rounding step per contributor."""
    rng = np.random.default_rng(seed)
    params = make(9, 60, alpha=alpha, modulus_bits=bits, max_weight=500, clip=2.0, threshold=5)
    weights = rng.integers(1, 501, 9).tolist()
    vectors = [rng.uniform(-2, 2, 60).astype(np.float32) for _ in range(9)]
    result = InProcessRun(params, cohort(seed)).round(vectors, weights=weights).result
    # One rounding step is 1/c in units of weight/max_weight · y.
    bound = 9 * 500 / params.quantizer.scale / sum(weights) + 1e-5
    expected = np.average(np.stack(vectors), axis=0, weights=weights)
    assert np.abs(result.mean() - expected)[result.updated].max() <= bound


def test_groups_of_ten_with_thirty_per_cent_dropouts() -> None:
    """Some groups are thin in some rounds; the others' sums are exact, and everything is updated in the end."""
    params = make(50, 200, alpha=0.2, group_size=10, dropout=0.3, threshold=6)
    run = InProcessRun(params, cohort(1))
    rng = np.random.default_rng(1)
    lost, covered = 0, np.zeros(200, np.bool_)
    for number in range(4):
        silent = rng.choice(50, 15, replace=False).tolist()
        outcome = run.round(updates(params, number), drops=dict.fromkeys(silent, Stage.UPLOAD))
        check(run, outcome, None)
        lost += len(outcome.result.lost)
        covered |= outcome.result.updated
    assert 0 < lost < 10
    assert covered.mean() > 0.9
