"""A round in one process: what it tells the caller, and how it ends when clients refuse."""

from __future__ import annotations

import time

import numpy as np
import pytest

from protocol.rounds import LENIENT, identities, small, updates
from sparsesecagg import secure_sum
from sparsesecagg.errors import InvalidInput, MalformedMessage, RoundRefused, ThresholdNotMet
from sparsesecagg.protocol import STAGES, Policy, RoundParameters, Stage, Transcript, run_round
from sparsesecagg.protocol.messages import decode_client_message
from sparsesecagg.protocol.simulation import draw_drops, entropy_of_round, seeded_entropy
from sparsesecagg.protocol.stages import STAGES_WITH_ROSTER

DROPS = {0: Stage.ADVERTISE_KEYS, 1: Stage.SHARE_KEYS, 2: Stage.UPLOAD, 3: Stage.UNMASK}


class Clock:
    """Goes on by one whenever it is read."""

    now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


class TestWhatIsTold:
    @pytest.fixture
    def params(self) -> RoundParameters:
        return small(clients=9, dim=20)

    def test_a_user_is_silent_from_its_stage_on(self, params: RoundParameters) -> None:
        """Progress is told after each message, in the order of the stages."""
        told: list[tuple[Stage, int]] = []
        run_round(params, updates(params), drops=DROPS, policy=LENIENT, progress=lambda *what: told.append(what))
        present = [set(range(9)) - set(range(gone)) for gone in (1, 2, 3, 4)]
        assert told == [(stage, user) for stage, those in zip(STAGES, present, strict=True) for user in sorted(those)]

    def test_the_transcript_has_every_message(self, params: RoundParameters) -> None:
        transcript = Transcript()
        outcome = run_round(params, updates(params), drops=DROPS, policy=LENIENT, transcript=transcript)
        sent = {stage.name: [len(data) for at, _, data in transcript.to_server if at is stage] for stage in STAGES}
        assert sent == {stage: list(sizes) for stage, sizes in outcome.result.sent_bytes.items()}
        assert {stage: len(sizes) for stage, sizes in sent.items()} == dict(
            zip((stage.name for stage in STAGES), (8, 7, 6, 5), strict=True)
        )
        assert all(decode_client_message(data).sender == user for _, user, data in transcript.to_server)
        # Who falls silent at a stage was asked in it, but has no part in what clients were given to answer.
        assert [(at, user) for at, user, _ in transcript.to_clients] == [
            (at, user) for at, user, _ in transcript.to_server
        ]

    def test_sizes_received_are_those_of_the_servers_messages(self, params: RoundParameters) -> None:
        transcript = Transcript()
        result = run_round(params, updates(params), policy=LENIENT, transcript=transcript).result
        for stage in STAGES[1:]:
            sizes = [len(data) for at, _, data in transcript.to_clients if at is stage]
            assert list(result.received_bytes[stage.name]) == sizes
        assert result.received_bytes["ADVERTISE_KEYS"] == (len(params.encode()),)

    def test_mean_sizes_are_over_those_who_took_part(self, params: RoundParameters) -> None:
        result = run_round(params, updates(params), policy=LENIENT).result
        assert result.mean_bytes({"a": (1, 2, 6), "b": (), "c": (5,)}) == {"a": 3.0, "b": 0.0, "c": 5.0, "total": 8.0}

    def test_seconds_are_counted_by_stage_and_add_up(
        self, params: RoundParameters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a clock that goes on by one whenever it is read: once per client, once per message and closing."""
        monkeypatch.setattr(time, "perf_counter", Clock())
        outcome = run_round(params, updates(params), policy=LENIENT)
        for seconds in (outcome.client_seconds, outcome.server_seconds):
            assert list(seconds) == [*(stage.name for stage in STAGES), "total"]
            assert seconds["total"] == pytest.approx(sum(seconds[stage.name] for stage in STAGES))
        assert [outcome.client_seconds[name] for name in ("ADVERTISE_KEYS", "SHARE_KEYS", "UNMASK")] == [1, 1, 1]
        assert [outcome.server_seconds[stage.name] for stage in STAGES] == [10, 10, 10, 10]

    def test_seconds_of_an_authenticated_round_have_its_extra_stage(self) -> None:
        people = identities(5)
        params = small(roster_digest=people[0].roster.digest)
        outcome = run_round(params, updates(params), policy=LENIENT, identities=people)
        assert list(outcome.client_seconds) == [*(stage.name for stage in STAGES_WITH_ROSTER), "total"]
        assert list(outcome.result.sent_bytes) == [stage.name for stage in STAGES_WITH_ROSTER]

    def test_updates_may_be_made_when_they_are_needed(
        self, params: RoundParameters, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By those who upload only, and the time that takes is not the client's."""
        made, vectors, clock = [], updates(params), Clock()

        def make(user: int) -> np.ndarray:
            made.append(user)
            clock.now += 1000
            return vectors[user]

        monkeypatch.setattr(time, "perf_counter", clock)
        entropy = entropy_of_round(1, 1)
        late = run_round(params, make, drops=DROPS, policy=LENIENT, entropy_of=entropy)
        assert made == [3, 4, 5, 6, 7, 8]
        early = run_round(params, vectors, drops=DROPS, policy=LENIENT, entropy_of=entropy)
        assert np.array_equal(early.result.total, late.result.total)
        assert 0 < late.client_seconds["UPLOAD"] == early.client_seconds["UPLOAD"] < 100

    def test_clipped_values_of_survivors_are_counted(self) -> None:
        params = small(pattern="pairwise", alpha=1.0, dim=30)
        vectors = [np.where(np.arange(30) < 3, 2.0, 0.1).astype(np.float32) for _ in range(5)]
        outcome = run_round(params, vectors, drops={4: Stage.UPLOAD}, policy=LENIENT)
        sent = [int(count) for count in outcome.result.contributors[:3]]
        assert outcome.clipped == sum(sent)
        assert outcome.result.clipped is None
        full = run_round(small(dim=30), vectors, drops={4: Stage.UPLOAD}, policy=LENIENT)
        assert (full.clipped, full.result.clipped) == (12, 12)


class TestRefusals:
    def test_clients_that_refuse_to_open_the_sum_end_the_round(self) -> None:
        """With the number of refusals and the first one's reason."""
        params = RoundParameters.create(clients=9, dim=90, alpha=1 / 3, stripes=1)
        silent = dict.fromkeys(range(4), Stage.UPLOAD)  # Some committee of three has lost one.
        with pytest.raises(RoundRefused, match="survivors, 3 are the least") as refusal:
            run_round(params, updates(params), drops=silent, policy=Policy(min_survivors=3))
        assert refusal.value.refusals == 5

    def test_a_round_that_nobody_refused_keeps_its_own_error(self) -> None:
        params = small()
        with pytest.raises(ThresholdNotMet, match="at UNMASK"):
            run_round(params, updates(params), drops=dict.fromkeys(range(3), Stage.UNMASK), policy=LENIENT)

    def test_a_single_refusal_is_a_dropout(self) -> None:
        """One client wants less exposure than its weight would mean; the others go on without it."""
        params = small(max_weight=10)
        outcome = run_round(
            params, updates(params), weights=[1, 2, 9, 3, 4], policy=Policy(min_survivors=1, max_exposure=5)
        )
        assert outcome.result.survivors == (0, 1, 3, 4)
        assert outcome.exact
        assert outcome.result.dropped["UPLOAD"] == 1


class TestSecureSum:
    def test_the_largest_magnitude_is_the_clip_by_default(self) -> None:
        result = secure_sum([np.array([0.5, -4.0]), np.array([1.0, 2.0]), np.array([0.0, 0.0])])
        assert result.params.clip == 4.0
        assert result.clipped == 0
        assert secure_sum([np.array([0.25, -0.5])] * 3).params.clip == 0.5
        assert secure_sum([np.zeros(2, np.float32)] * 3).params.clip == 1.0

    def test_a_given_clip_counts(self) -> None:
        result = secure_sum([np.array([3.0, -4.0])] * 3, clip=0.5)
        assert result.sum() == pytest.approx([1.5, -1.5])
        assert result.clipped == 6

    def test_weights_set_the_largest_weight(self) -> None:
        result = secure_sum([np.ones(2, np.float32)] * 4, weights=[3, 1, 2, 3])
        assert result.params.max_weight == 3
        assert secure_sum([np.ones(2, np.float32)] * 4).params.max_weight == 0

    @pytest.mark.parametrize("bad", [np.array([1.0, np.inf]), np.array([np.nan, 1.0]), np.array([1, 2]), np.array([])])
    def test_updates_that_can_not_be_added_are_refused_by_name(self, bad: np.ndarray) -> None:
        with pytest.raises(InvalidInput, match="update"):
            secure_sum([bad, bad, bad])


class TestSimulation:
    def test_the_same_names_give_the_same_randomness_and_others_another(self) -> None:
        drawn = {
            names: seeded_entropy(*names)(32)
            for names in ((1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (1, 23), (12, 3), (1, 2))
        }
        assert len(set(drawn.values())) == len(drawn)
        assert all(seeded_entropy(*names)(32) == value for names, value in drawn.items())
        assert entropy_of_round(1, 2)(3)(32) == drawn[1, 2, 3]

    def test_a_source_goes_on_where_it_was(self) -> None:
        source = seeded_entropy(5)
        assert source(16) + source(16) == seeded_entropy(5)(32)

    @pytest.mark.parametrize(("clients", "dropout", "gone"), [(10, 0.3, 3), (9, 0.3, 2), (5, 0.0, 0)])
    def test_the_given_fraction_of_users_drops_out(self, clients: int, dropout: float, gone: int) -> None:
        drops = draw_drops(clients, dropout, STAGES, np.random.default_rng(0))
        assert len(drops) == gone
        assert set(drops) <= set(range(clients))
        assert set(drops.values()) <= set(STAGES)

    def test_dropouts_happen_at_all_stages(self) -> None:
        drops = draw_drops(200, 0.4, STAGES, np.random.default_rng(0))
        assert len(drops) == 80
        assert set(drops.values()) == set(STAGES)


def test_parameters_off_the_wire_must_be_parameters() -> None:
    for data in (b"", b"\x00", b"\x91\xa1\xff", small().encode() + b"\x00"):
        with pytest.raises(MalformedMessage):
            RoundParameters.decode(data)
