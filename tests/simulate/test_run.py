"""A run in one process: what it tells the caller, and how it ends when clients refuse."""

from __future__ import annotations

import time

import numpy as np
import pytest

from protocol.rounds import LENIENT, grouped, identities, lenient, small, updates, with_roster
from sparsesecagg.simulate import InProcessRun, Observer, Transcript, run_round
from sparsesecagg.simulate.simulation import draw_dropouts, entropy_of_run, seeded_entropy
from sparsesecagg.errors import RoundRefused, ThresholdNotMet
from sparsesecagg.protocol import STAGES, Parameters, Stage
from sparsesecagg.protocol.messages import decode_client_message

DROPS = {0: Stage.ADVERTISE_KEYS, 1: Stage.SHARE_KEYS, 2: Stage.UPLOAD, 3: Stage.UNMASK}
PLAIN = ("SHARE_KEYS", "UPLOAD", "UNMASK")


class Clock:
    """Goes on by one whenever it is read."""

    now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def params() -> Parameters:
    return small(clients=9, dim=20)


class TestWhatIsTold:
    def test_a_user_drops_out_at_its_stage(self, params: Parameters) -> None:
        """Who drops out before UPLOAD is missing from the set-up."""
        transcript = Transcript()
        run_round(params, updates(params), drops=DROPS, policy=LENIENT, observer=transcript)
        sent = {stage: sorted({user for at, user, _ in transcript.sent if at is stage}) for stage in STAGES}
        assert sent[Stage.ADVERTISE_KEYS] == list(range(1, 9))
        assert sent[Stage.SHARE_KEYS] == list(range(2, 9))
        assert sent[Stage.UPLOAD] == list(range(3, 9))
        assert sent[Stage.UNMASK] == list(range(4, 9))

    def test_the_transcript_has_every_message(self, params: Parameters) -> None:
        transcript = Transcript()
        run = InProcessRun(params, policy=LENIENT, observer=transcript)
        transcript.sent.clear()
        transcript.received.clear()
        result = run.round(updates(params)).result
        for stage in (Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK):
            sent = [len(data) for at, _, data in transcript.sent if at is stage]
            received = [len(data) for at, _, data in transcript.received if at is stage]
            assert sorted(sent) == sorted(result.sent_bytes[stage.name])
            assert sorted(received) == sorted(result.received_bytes[stage.name])
        assert all(decode_client_message(data).sender == user for _, user, data in transcript.sent)

    def test_the_set_up_is_counted_apart(self, params: Parameters) -> None:
        run = InProcessRun(params, policy=LENIENT)
        assert set(run.setup_sent) == {"ADVERTISE_KEYS", "DRAW", "SHARE_KEYS"}
        assert len(run.setup_sent["ADVERTISE_KEYS"]) == len(run.setup_received["ADVERTISE_KEYS"]) == 9
        assert not run.setup_sent["DRAW"]
        authenticated = InProcessRun(with_roster(small), policy=LENIENT, identities=identities(5))
        assert authenticated.setup_sent["DRAW"]

    def test_seconds_are_counted_by_stage_and_add_up(self, params: Parameters, monkeypatch: pytest.MonkeyPatch) -> None:
        """By a clock that goes on by one whenever it is read: once per client, once per message and closing."""
        run = InProcessRun(params, policy=LENIENT)
        monkeypatch.setattr(time, "perf_counter", Clock())
        outcome = run.round(updates(params))
        for seconds in (outcome.client_seconds, outcome.server_seconds):
            assert list(seconds) == [*PLAIN, "total"]
            assert seconds["total"] == pytest.approx(sum(seconds[stage] for stage in PLAIN))
        assert [outcome.client_seconds[name] for name in ("SHARE_KEYS", "UNMASK")] == [1, 1]
        assert [outcome.server_seconds[stage] for stage in PLAIN] == [9, 11, 10]

    def test_seconds_of_a_round_with_confirm_have_its_extra_stage(self) -> None:
        outcome = run_round(with_roster(small), updates(small()), policy=LENIENT, identities=identities(5))
        stages = ["SHARE_KEYS", "UPLOAD", "CONFIRM", "UNMASK"]
        assert list(outcome.client_seconds) == [*stages, "total"]
        assert list(outcome.result.sent_bytes) == stages

    def test_updates_may_be_made_when_they_are_needed(
        self, params: Parameters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By those who upload only, and the time that takes is not the client's."""
        made, vectors, clock = [], updates(params), Clock()

        def make(user: int) -> np.ndarray:
            made.append(user)
            clock.now += 1000
            return vectors[user]

        monkeypatch.setattr(time, "perf_counter", clock)
        late = run_round(params, make, drops=DROPS, policy=LENIENT, entropy_of=entropy_of_run(1))
        assert sorted(made) == [3, 4, 5, 6, 7, 8]
        early = run_round(params, vectors, drops=DROPS, policy=LENIENT, entropy_of=entropy_of_run(1))
        assert np.array_equal(early.result.total, late.result.total)
        assert 0 < late.client_seconds["UPLOAD"] == early.client_seconds["UPLOAD"] < 100

    def test_clipped_values_of_survivors_are_counted(self) -> None:
        params = small(pattern="pairwise", alpha=1.0, dim=30)
        vectors = [np.where(np.arange(30) < 3, 2.0, 0.1).astype(np.float32) for _ in range(5)]
        outcome = run_round(params, vectors, drops={4: Stage.UPLOAD}, policy=LENIENT)
        assert outcome.clipped == sum(int(count) for count in outcome.result.contributors[:3])
        assert outcome.result.clipped is None
        full = run_round(small(dim=30), vectors, drops={4: Stage.UPLOAD}, policy=LENIENT)
        assert (full.clipped, full.result.clipped) == (12, 12)

    def test_an_observer_need_not_override_anything(self, params: Parameters) -> None:
        assert run_round(params, updates(params), policy=LENIENT, observer=Observer()).exact

    def test_a_seed_repeats_a_run_bit_for_bit(self) -> None:
        runs = [InProcessRun(grouped(), entropy_of=entropy_of_run(seed), policy=LENIENT) for seed in (1, 1, 2)]
        totals = [run.round(updates(grouped())).result.total for run in runs]
        assert (totals[0] == totals[1]).all()
        assert runs[0].params.session != runs[2].params.session


class TestRefusals:
    def test_clients_that_refuse_to_open_the_sum_end_the_round(self) -> None:
        """With the number of refusals and the first one's reason."""
        params = grouped(clients=9, committees=3, pods=1, min_survivors=1)
        run = InProcessRun(params, policy=lenient(min_survivors=3))
        committees = [pod.users[places].tolist() for pod in run.server.groups.pods for places in pod.committees]
        drops = {committee[0]: Stage.UPLOAD for committee in committees}
        with pytest.raises(RoundRefused, match="no committee has enough survivors") as refusal:
            run.round(updates(params), drops=drops)
        assert (refusal.value.refusals, refusal.value.stage) == (6, "UNMASK")

    def test_a_round_that_nobody_refused_keeps_its_own_error(self) -> None:
        params = small()
        with pytest.raises(ThresholdNotMet, match="at UNMASK"):
            run_round(params, updates(params), drops=dict.fromkeys(range(3), Stage.UNMASK), policy=LENIENT)

    def test_a_single_refusal_is_a_dropout(self) -> None:
        """One client wants less exposure than its weight would mean; the others go on without it."""
        params = small(max_weight=10)
        outcome = run_round(params, updates(params), weights=[1, 2, 9, 3, 4], policy=lenient(max_exposure=5))
        assert outcome.result.survivors == (0, 1, 3, 4)
        assert outcome.exact
        assert outcome.result.dropped["UPLOAD"] == 1


class TestSimulation:
    def test_the_same_names_give_the_same_randomness_and_others_another(self) -> None:
        drawn = {
            names: seeded_entropy(*names)(32)
            for names in ((1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (1, 23), (12, 3), (1, 2))
        }
        assert len(set(drawn.values())) == len(drawn)
        assert all(seeded_entropy(*names)(32) == value for names, value in drawn.items())
        assert entropy_of_run(1)(2)(32) == drawn[1, 2]

    def test_a_source_goes_on_where_it_was(self) -> None:
        source = seeded_entropy(5)
        assert source(16) + source(16) == seeded_entropy(5)(32)

    def test_users_drop_out_independently_at_the_rate_asked_for(self) -> None:
        """The number varies from round to round and is right on average."""
        counts = [len(draw_dropouts(100, 0.3, [Stage.UPLOAD], np.random.default_rng(seed))) for seed in range(200)]
        assert sum(counts) / 200 == pytest.approx(30, abs=1.5)
        assert len(set(counts)) > 10
        assert draw_dropouts(200, 0.0, STAGES, np.random.default_rng(0)) == {}

    def test_dropouts_happen_at_all_stages_asked_for_and_no_other(self) -> None:
        for stages in (STAGES, (Stage.SHARE_KEYS, Stage.UNMASK)):
            assert set(draw_dropouts(200, 0.4, stages, np.random.default_rng(0)).values()) == set(stages)

    def test_after_the_first_round_nobody_drops_out_before_advertising_a_key(self) -> None:
        """Keys are advertised once; who has not is in no round at all."""
        rng = np.random.default_rng(0)
        later = draw_dropouts(200, 0.4, STAGES, rng, first_round=False)
        assert set(later.values()) == set(STAGES) - {Stage.ADVERTISE_KEYS}
        assert draw_dropouts(200, 0.4, [Stage.ADVERTISE_KEYS], rng, first_round=False) == {}
