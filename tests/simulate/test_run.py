"""A run in one process: exact for every pattern and dropout, and honest about what it tells the caller."""

from __future__ import annotations

import time

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from simulate.runs import CLIENTS, DIM, KINDS, LENIENT, start, updates
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.patterns.groups import Group
from sparsesecagg.protocol import STAGES, Parameters, Server, Stage
from sparsesecagg.protocol.messages import UnmaskRequest, decode_client_message, decode_server_message, encode
from sparsesecagg.simulate import Cohort, InProcessRun, Observer, Transcript, run_round
from sparsesecagg.simulate.simulation import (
    RandomUpdate,
    draw_dropouts,
    entropy_of_run,
    make_identities,
    seeded_entropy,
)

ROUND = ("SHARE_KEYS", "UPLOAD", "UNMASK")
ONE_EACH = {0: Stage.ADVERTISE_KEYS, 1: Stage.SHARE_KEYS, 2: Stage.UPLOAD, 3: Stage.UNMASK}


class Ticking:
    """A clock that goes on by one whenever it is read."""

    now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


# Exactness


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", [None, *STAGES], ids=lambda stage: stage.name if stage else "nobody")
def test_the_sum_is_that_of_those_who_uploaded(kind: str, stage: Stage | None) -> None:
    """Whoever drops out, wherever: compared with the plain sum of the updates, to a level of rounding each."""
    params, cohort, _ = start(kind)
    gone = {2, 7} if stage else set()
    weights = [7 * user % 100 + 1 for user in range(CLIENTS)] if params.max_weight else None
    outcome = run_round(params, updates(), cohort, weights=weights, drops={user: stage for user in gone if stage})
    assert outcome.exact
    inside = set(range(CLIENTS)) - (gone if stage is not Stage.UNMASK else set())
    result = outcome.result
    assert set(result.survivors) == inside
    assert result.lost == {}
    assert (result.contributors > 0).tolist() == result.updated.tolist()
    assert result.coordinates_updated == pytest.approx(params.shape.coverage, abs=0.2)
    if not params.shape.protects:
        return  # Everybody has drawn coordinates of its own; `exact` compares those.
    members = {user: group.users for group in draw(params, cohort) for user in group.users.tolist()}
    reached = np.zeros(DIM, np.int64)
    expected = np.zeros(DIM)
    for user in inside:
        sent = result.contributors > 0 if params.slices == 1 else sent_by(params, cohort, members[user])
        reached[sent] += 1
        expected[sent] += updates()[user][sent] * (weights[user] if weights else 1)
    assert result.contributors.tolist() == reached.tolist()
    level = max(1, params.max_weight) / params.quantizer.scale
    assert np.abs(result.sum() - expected).max() <= CLIENTS * level * 1.01


def draw(params: Parameters, cohort: Cohort) -> tuple[Group, ...]:
    return params.draw(params.epoch_seed(1, cohort.roster)).groups


def sent_by(params: Parameters, cohort: Cohort, users: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which coordinates a group sends in the first round."""
    seed = params.epoch_seed(1, cohort.roster)
    group = params.draw(seed).of(int(users[0]))
    sent = np.zeros(params.dim, np.bool_)
    for index in params.shape.masked_sum(group.number, 1, seed, bytes(32)).indices():
        sent[index] = True
    return sent


def test_users_drop_out_at_every_stage_of_one_round() -> None:
    params, cohort, _ = start("one group")
    transcript = Transcript()
    outcome = run_round(params, updates(), cohort, drops=ONE_EACH, observer=transcript)
    assert outcome.exact
    assert outcome.result.survivors == tuple(range(3, CLIENTS))
    sent = {stage: sorted({user for at, user, _ in transcript.sent if at is stage}) for stage in STAGES}
    for gone, stage in enumerate(STAGES):
        assert sent[stage] == list(range(gone + 1, CLIENTS))


@pytest.mark.parametrize("kind", ["two groups", "pairwise"])
def test_many_rounds_with_dropouts_by_chance_are_exact(kind: str) -> None:
    """Also those in which a group is lost; a round that is lost altogether says so."""
    params, cohort, entropy = start(kind)
    run, rng = InProcessRun(params, cohort), np.random.default_rng(5)
    opened = lost = 0
    for number in range(1, 15):
        entropy.begin(number)
        drops = draw_dropouts(CLIENTS, 0.25, STAGES, rng, first_round=False)
        try:
            outcome = run.round(updates(seed=number), drops=drops)
        except (ThresholdNotMet, TooLittleOpened):
            lost += 1
            continue
        assert outcome.exact
        assert outcome.result.groups_opened == params.groups - len(outcome.result.lost)
        opened += outcome.result.groups_opened
    assert opened > 5
    assert lost < 14


def test_a_lost_group_leaves_the_others_their_sum() -> None:
    params, cohort, _ = start("two groups")
    run = InProcessRun(params, cohort)
    gone = run.server.groups.groups[0].users[:3].tolist()
    result = run.round(updates(), drops=dict.fromkeys(gone, Stage.UPLOAD)).result
    assert list(result.lost) == [0]
    assert result.survivors == tuple(run.server.groups.groups[1].users.tolist())


def test_who_missed_a_round_shares_keys_for_the_next_and_is_back() -> None:
    """Packages are sent two rounds ahead: who misses two rounds in a row misses the one behind them too."""
    for back in (False, True):
        params, cohort, entropy = start("one group")
        run = InProcessRun(params, cohort)
        for number in (1, 2):
            entropy.begin(number)
            run.round(updates(), drops={4: Stage.UPLOAD})
        if back:
            run.share_keys([4])
        entropy.begin(3)
        assert (4 in run.round(updates()).result.survivors) == back


def test_some_groups_may_stand_for_all() -> None:
    """Only these are simulated; all others drop out behind ADVERTISE_KEYS."""
    params, cohort, _ = start("two groups")
    run = InProcessRun(params, cohort, groups=[1])
    users = run.server.groups.groups[1].users.tolist()
    assert sorted(run.clients) == users
    outcome = run.round(updates())
    assert outcome.exact
    assert outcome.result.survivors == tuple(users)


# What is told


@pytest.fixture
def params() -> Parameters:
    return start("one group")[0]


def test_the_transcript_has_every_message(params: Parameters) -> None:
    transcript = Transcript()
    run = InProcessRun(params, Cohort(LENIENT), observer=transcript)
    transcript.sent.clear()
    transcript.received.clear()
    result = run.round(updates()).result
    for name in ROUND:
        sent = [len(data) for at, _, data in transcript.sent if at is Stage[name]]
        received = [len(data) for at, _, data in transcript.received if at is Stage[name]]
        assert sorted(sent) == sorted(result.sent_bytes[name])
        assert sorted(received) == sorted(result.received_bytes[name])
    assert all(decode_client_message(data).sender == user for _, user, data in transcript.sent)


def test_an_observer_need_not_override_anything(params: Parameters) -> None:
    assert run_round(params, updates(), Cohort(LENIENT), observer=Observer()).exact


def test_the_set_up_is_counted_apart(params: Parameters) -> None:
    run = InProcessRun(params, Cohort(LENIENT))
    assert set(run.setup_sent) >= {"ADVERTISE_KEYS", "SHARE_KEYS"}
    assert len(run.setup_sent["ADVERTISE_KEYS"]) == len(run.setup_received["ADVERTISE_KEYS"]) == CLIENTS
    assert list(run.round(updates()).result.sent_bytes) == list(ROUND)


def test_seconds_are_counted_by_stage_and_add_up(params: Parameters, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that ticks whenever it is read: once per client, once per message, beginning and closing."""
    run = InProcessRun(params, Cohort(LENIENT))
    monkeypatch.setattr(time, "perf_counter", Ticking())
    outcome = run.round(updates())
    for seconds in (outcome.client_seconds, outcome.server_seconds):
        assert list(seconds) == [*ROUND, "total"]
        assert seconds["total"] == pytest.approx(sum(seconds[stage] for stage in ROUND))
    assert [outcome.client_seconds[name] for name in ("SHARE_KEYS", "UNMASK")] == [1, 1]
    assert [outcome.server_seconds[stage] for stage in ROUND] == [CLIENTS, CLIENTS + 2, CLIENTS + 1]


def test_updates_may_be_made_when_they_are_needed(params: Parameters, monkeypatch: pytest.MonkeyPatch) -> None:
    """By those who upload only, and the time that takes is not the client's."""
    made, clock = [], Ticking()
    monkeypatch.setattr(time, "perf_counter", clock)

    def make(user: int) -> NDArray[np.float64]:
        made.append(user)
        clock.now += 1000
        return updates()[user]

    cohort = Cohort(LENIENT, entropy_of_run(1))
    late = run_round(params, make, cohort, drops=ONE_EACH)
    assert sorted(made) == list(range(3, CLIENTS))
    early = run_round(params, updates(), Cohort(LENIENT, entropy_of_run(1)), drops=ONE_EACH)
    assert np.array_equal(early.result.total, late.result.total)
    assert 0 < late.client_seconds["UPLOAD"] == early.client_seconds["UPLOAD"] < 200


def test_clipped_values_of_survivors_are_counted() -> None:
    """By the survivors themselves; the server learns the number only where it travels beside the values."""
    vectors = [np.where(np.arange(DIM) < 3, 2.0, 0.1)] * CLIENTS
    for kind in ("full", "pairwise"):
        params, cohort, _ = start(kind)
        outcome = run_round(params, vectors, cohort, drops={4: Stage.UPLOAD})
        assert outcome.clipped == outcome.result.contributors[:3].sum()
        assert outcome.result.clipped == (33 if kind == "full" else None)


def test_a_seed_repeats_a_run_bit_for_bit() -> None:
    totals = []
    for seed in (1, 1, 2):
        params, cohort, _ = start("two groups", seed)
        transcript = Transcript()
        run_round(params, updates(), cohort, observer=transcript)
        totals.append([data for _, _, data in transcript.sent])
    assert totals[0] == totals[1] != totals[2]


# Refusals


class Garbling(Server):
    """Hands out survivors' tags that nobody made."""

    def close_stage(self) -> dict[int, bytes]:
        found = {}
        for user, data in super().close_stage().items():
            message = decode_server_message(data)
            if isinstance(message, UnmaskRequest):
                data = encode(msgspec.structs.replace(message, tags=bytes(len(message.tags))))  # noqa: PLW2901
            found[user] = data
        return found


def garbling(params: Parameters, roster: Roster | None) -> Server:
    return Garbling(params, roster)


def test_clients_that_refuse_to_open_the_sum_end_the_round(params: Parameters) -> None:
    """With the number of refusals and the first one's reason."""
    run = InProcessRun(params, Cohort(LENIENT), make_server=garbling)
    with pytest.raises(RoundRefused) as refusal:
        run.round(updates())
    assert (refusal.value.refusals, refusal.value.stage) == (CLIENTS, "UNMASK")


def test_a_round_that_nobody_refused_keeps_its_own_error(params: Parameters) -> None:
    with pytest.raises(ThresholdNotMet, match="at UNMASK"):
        run_round(params, updates(), Cohort(LENIENT), drops=dict.fromkeys(range(5), Stage.UNMASK))


# Randomness, dropouts, identities, updates


def test_the_same_names_give_the_same_randomness_and_others_another() -> None:
    drawn = {
        names: seeded_entropy(*names)(32)
        for names in ((1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (1, 23), (12, 3), (1, 2))
    }
    assert len(set(drawn.values())) == len(drawn)
    assert all(seeded_entropy(*names)(32) == value for names, value in drawn.items())
    assert entropy_of_run(1)(2)(32) == drawn[1, 2]
    source = seeded_entropy(1, 2)
    assert source(16) + source(16) == drawn[1, 2], "a source goes on where it was"


def test_users_drop_out_independently_at_the_rate_asked_for() -> None:
    """The number varies from round to round and is right on average."""
    counts = [len(draw_dropouts(100, 0.3, [Stage.UPLOAD], np.random.default_rng(seed))) for seed in range(200)]
    assert sum(counts) / 200 == pytest.approx(30, abs=1.5)
    assert len(set(counts)) > 10
    assert draw_dropouts(200, 0.0, STAGES, np.random.default_rng(0)) == {}


def test_dropouts_happen_at_all_stages_asked_for_and_no_other() -> None:
    """Keys are advertised once: after the first round nobody drops out there."""
    rng = np.random.default_rng(0)
    for stages in (STAGES, (Stage.SHARE_KEYS, Stage.UNMASK)):
        assert set(draw_dropouts(200, 0.4, stages, rng).values()) == set(stages)
    later = draw_dropouts(200, 0.4, STAGES, rng, first_round=False)
    assert set(later.values()) == set(STAGES) - {Stage.ADVERTISE_KEYS}
    assert draw_dropouts(200, 0.4, [Stage.ADVERTISE_KEYS], rng, first_round=False) == {}


def test_simulated_users_share_one_roster_with_its_rules() -> None:
    identities = make_identities(7, "run", seeded_entropy(1), group_size=3, colluding=0.2)
    roster = identities[0].roster
    assert [identity.user for identity in identities] == list(range(7))
    assert all(identity.roster is roster for identity in identities)
    assert (roster.run, roster.group_size, roster.colluding, len(roster.seed or b"")) == ("run", 3, 0.2, 32)
    assert make_identities(7, "run", seeded_entropy(2))[0].roster.seed != roster.seed


def test_a_random_update_is_the_same_however_it_is_read() -> None:
    """Only what is asked for is drawn."""
    dim = (1 << 14) * 2 + 100
    update = RandomUpdate(1, 2, dim, 0.5, 3)
    whole = update.read(0, dim)
    assert len(whole) == dim
    assert whole.std() == pytest.approx(0.5, rel=0.05)
    for start_at, stop in ((0, 0), (5, 9), ((1 << 14) - 1, (1 << 14) + 1), (dim - 1, dim)):
        assert np.array_equal(update.read(start_at, stop), whole[start_at:stop])
    some = np.array([0, 77, 1 << 14, dim - 1])
    assert np.array_equal(update.take(some), whole[some])
    assert not np.array_equal(RandomUpdate(1, 2, dim, 0.5, 4).read(0, 9), whole[:9])
