"""The aggregate equals the plain sum of the survivors' quantised values, or the round fails with a typed error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sparsesecagg.protocol.simulation import entropy_of_round

from protocol.rounds import LENIENT, identities, updates
from sparsesecagg.errors import RoundRefused, ThresholdNotMet
from sparsesecagg.protocol import STAGES, RoundParameters, Stage, run_round


@st.composite
def rounds(draw: st.DrawFn) -> tuple[RoundParameters, dict[int, Stage], int]:
    """Draw parameters and dropouts that the threshold allows, spread over all stages."""
    clients = draw(st.integers(3, 20))
    pattern = draw(st.sampled_from(["full", "pairwise", "committee"]))
    least_alpha = 3 / clients if pattern == "committee" else 0.01
    params = RoundParameters.create(
        clients=clients,
        dim=draw(st.one_of(st.integers(1, 30), st.integers(1, 3000))),
        pattern=pattern,
        alpha=draw(st.floats(least_alpha, 1.0)),
        modulus_bits=draw(st.sampled_from([8, 12, 16, 24, 32])),
        neighbours=draw(st.one_of(st.none(), st.integers(2, 19))),
        stripes=draw(st.integers(1, 5)),
        clip=draw(st.floats(0.01, 100.0)),
        max_weight=0 if pattern == "pairwise" else draw(st.sampled_from([0, 1, 7, 100_000])),
        min_survivors=1,
        round_number=draw(st.integers(0, 2**40)),
    )
    gone = draw(st.lists(st.integers(0, clients - 1), unique=True, max_size=clients - params.threshold))
    drops = {user: draw(st.sampled_from(STAGES)) for user in gone}
    return params, drops, draw(st.integers(0, 2**32))


@settings(max_examples=200)
@given(rounds())
def test_the_sum_is_exact_whatever_the_settings_and_the_dropouts(
    drawn: tuple[RoundParameters, dict[int, Stage], int],
) -> None:
    """A complete graph repairs every dropout up to N − t; a sparse one may fail, but never with a wrong sum."""
    params, drops, seed = drawn
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
    try:
        outcome = run_round(
            params,
            updates(params, seed),
            weights=weights,
            drops=drops,
            policy=LENIENT,
            entropy_of=entropy_of_round(seed, 0),
        )
    except ThresholdNotMet:
        assert params.neighbours, "a complete graph repairs every dropout that the threshold allows"
        event("neighbourhood below the threshold")
        return
    except RoundRefused:
        assert params.pattern == "committee" or params.neighbours
        event("a committee without survivors, or too few users for a policy where the graph is sparse")
        return
    event(f"{params.pattern}, exact")
    assert outcome.exact
    silent_before_unmask = {user for user, stage in drops.items() if stage is not Stage.UNMASK}
    assert set(outcome.result.survivors) == set(range(params.clients)) - silent_before_unmask
    if weights is not None and params.pattern == "full":
        assert (outcome.result.weight_per_block == sum(weights[user] for user in outcome.result.survivors)).all()
    if outcome.result.clipped is not None:
        assert outcome.result.clipped == outcome.clipped


@settings(max_examples=25)
@given(st.data())
def test_committees_of_ten_among_25_users_are_exact_under_dropouts(data: st.DataObject) -> None:
    """α = 0.4: pairs share several blocks of a stripe, and users drop out at any stage."""
    params = RoundParameters.create(clients=25, dim=203, alpha=0.4, modulus_bits=16, min_survivors=1)
    assert (params.contributors, params.layout.blocks) == (10, 20)
    gone = data.draw(st.sets(st.integers(0, 24), max_size=9))
    drops = {user: data.draw(st.sampled_from(STAGES)) for user in gone}
    outcome = run_round(params, updates(params), drops=drops, policy=LENIENT)
    assert outcome.exact
    assert len(set(outcome.result.sent_bytes[Stage.UPLOAD.name])) == 1
    contributors = outcome.result.contributors_per_block
    assert contributors.sum() == 8 * len(outcome.result.survivors)
    if not gone:
        assert (contributors == 10).all()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
@pytest.mark.parametrize("clients", [4, 9])
def test_exactly_n_minus_t_may_go_and_one_more_fails(clients: int, pattern: str, stage: Stage) -> None:
    """At the threshold the sum is exact; one user fewer and there is no sum at all."""
    params = RoundParameters.create(clients=clients, dim=50, pattern=pattern, alpha=1.0, min_survivors=1)
    allowed = clients - params.threshold
    outcome = run_round(params, updates(params), drops=dict.fromkeys(range(allowed), stage), policy=LENIENT)
    assert outcome.exact
    with pytest.raises(ThresholdNotMet) as failure:
        run_round(params, updates(params), drops=dict.fromkeys(range(allowed + 1), stage), policy=LENIENT)
    assert (failure.value.stage, failure.value.survivors) == (stage.name, params.threshold - 1)


@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
def test_authenticated_rounds_are_exact_too(pattern: str) -> None:
    """The extra stage changes nothing in the sum, and its dropouts are counted."""
    people = identities(10)
    params = RoundParameters.create(
        clients=10, dim=100, pattern=pattern, alpha=0.5, min_survivors=1, roster_digest=people[0].roster.digest
    )
    drops = {1: Stage.SHARE_KEYS, 5: Stage.CONFIRM, 8: Stage.UNMASK}
    outcome = run_round(params, updates(params), drops=drops, policy=LENIENT, identities=people)
    assert outcome.exact
    assert outcome.result.dropped == {"ADVERTISE_KEYS": 0, "SHARE_KEYS": 1, "UPLOAD": 0, "CONFIRM": 1, "UNMASK": 1}
    assert params.threshold == 7


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([8, 12, 16, 24, 32]), st.sampled_from(["full", "committee"]))
def test_the_weighted_mean_is_right_to_quantisation_error(seed: int, bits: int, pattern: str) -> None:
    """mean = Σ w·y / Σ w over each block's survivors, off by at most one quantisation step per contributor."""
    rng = np.random.default_rng(seed)
    params = RoundParameters.create(
        clients=9, dim=60, pattern=pattern, alpha=0.34, modulus_bits=bits, max_weight=500, min_survivors=1, clip=2.0
    )
    weights = rng.integers(1, 501, 9).tolist()
    vectors = [rng.uniform(-2, 2, 60).astype(np.float32) for _ in range(9)]
    result = run_round(params, vectors, weights=weights, entropy_of=entropy_of_round(seed, 0), policy=LENIENT).result
    total = result.params.layout.spread(result.weight_per_block)
    # One rounding step is 1/c in units of weight/max_weight · y.
    bound = result.contributors * 500 / params.quantizer.scale / total + 1e-6
    if pattern == "full":
        expected = np.average(np.stack(vectors), axis=0, weights=weights)
        assert (np.abs(result.mean() - expected) <= bound).all()
    else:
        assert (np.abs(result.mean()) <= 2.0 + bound).all()
    assert total.min() > 0
