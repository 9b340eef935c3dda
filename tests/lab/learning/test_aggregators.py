"""Every aggregator passes the same suite: one inherited class each."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput, ProtocolError, WrongRound
from sparsesecagg.lab.learning import DenseNetwork, FederatedRun, Task, TrainingConfig, secure
from sparsesecagg.lab.learning.aggregation import uploaders
from sparsesecagg.lab.learning.aggregators import AGGREGATORS, default_neighbours, make_aggregator
from sparsesecagg.lab.learning.models import Layer
from sparsesecagg.protocol import RoundOptions, Stage
from sparsesecagg.ranges import Ranges
from sparsesecagg.simulate import InProcessRun

from .support import blobs

CLIENTS = 12
MODEL = DenseNetwork(20, 4, (10,))
RANDOM = np.random.default_rng(0)
COMMON = 0.05 * RANDOM.standard_normal(MODEL.dim)
UPDATES = {user: (COMMON + 0.02 * RANDOM.standard_normal(MODEL.dim)).astype(np.float32) for user in range(CLIENTS)}
DROPS = {3: Stage.UPLOAD, 7: Stage.UNMASK, 8: Stage.SHARE_KEYS}


def aggregator(name: str, **options):
    """Make an aggregator for twelve users, of whom each sends about half."""
    chosen = {"clients": CLIENTS, "alpha": 0.5, "dropout": 0.1, "aggregator": name, "gain": 1}
    return make_aggregator(TrainingConfig.create("digits", **(chosen | options)), MODEL, MODEL.initial(0))


def aggregate(name: str, drops=DROPS, weights=None, number: int = 1, **options):
    """Run one round."""
    sent = {user: UPDATES[user] for user in uploaders(CLIENTS, drops)}
    return aggregator(name, **options).aggregate(sent, weights, drops, number, bytes(32))


class AggregatorSuite:
    """What holds for all of them."""

    name: str
    tolerance = 0.05  # of the mean, where everybody's values differ by 0.02 and half of them are sent
    covered = 0.9  # of the coordinates, at least

    def test_identical_updates_come_back_as_they_were(self) -> None:
        """The mean of equal vectors is that vector, up to rounding, wherever anybody sent a value."""
        same = dict.fromkeys(range(CLIENTS), UPDATES[0])
        # Weights with a wide first clip: what is tested is the mean, not the clip.
        done = aggregator(self.name, first_clip=1.0, alpha=1.0).aggregate(same, None, {}, 1, bytes(32))
        assert done.step.dtype == np.float32
        arrived = done.step != 0
        assert arrived.mean() > 0.95
        assert np.allclose(done.step[arrived], UPDATES[0][arrived], atol=2e-3)

    def test_the_mean_is_that_of_the_survivors(self) -> None:
        """Those silent by UPLOAD are not in it, those silent after it are."""
        done = aggregate(self.name)
        alive = [user for user in range(CLIENTS) if user not in (3, 8)]
        assert done.survivors == done.uploads == len(alive)
        assert done.coordinates_updated > self.covered
        arrived = done.step != 0
        expected = np.mean([UPDATES[user] for user in alive], axis=0)
        assert np.abs(done.step - expected)[arrived].mean() < self.tolerance
        assert done.dropped == {"ADVERTISE_KEYS": 0, "SHARE_KEYS": 1, "UPLOAD": 1, "UNMASK": 1}

    def test_whoever_takes_part_is_there_at_upload(self) -> None:
        """Before anything was aggregated that is everybody who did not drop out by then."""
        assert aggregator(self.name).taking_part(CLIENTS, DROPS) == uploaders(CLIENTS, DROPS)

    def test_a_seed_decides(self) -> None:
        """Same seed and round, same bits; another round draws afresh."""
        one, same = aggregate(self.name), aggregate(self.name)
        assert np.array_equal(one.step, same.step)

    def test_costs_add_up(self) -> None:
        """Totals are sums, the upload is one of the stages, contributors are a distribution."""
        done = aggregate(self.name)
        for by_stage in (done.sent_bytes, done.received_bytes, done.client_seconds, done.server_seconds):
            stages = sum(value for stage, value in by_stage.items() if stage != "total")
            assert by_stage["total"] == pytest.approx(stages)
        assert done.sent_bytes["UPLOAD"] == done.upload_bytes > 0
        assert sum(done.contributors_histogram.values()) == pytest.approx(1)
        assert done.contributors["min"] <= done.contributors["mean"] <= CLIENTS - 2

    def test_a_round_without_survivors_fails_and_says_why(self) -> None:
        """No mean, a reason, and no exception: training goes on."""
        done = aggregate(self.name, dict.fromkeys(range(CLIENTS), Stage.UPLOAD))
        assert done.step is None and done.reason and done.uploads == 0
        assert done.contributors == {} and done.dropped["UPLOAD"] == CLIENTS

    def test_weights_count(self) -> None:
        """A user of weight 10 among ones of weight 1 pulls the mean."""
        weights = [10 if user == 0 else 1 for user in range(CLIENTS)]
        apart = dict.fromkeys(range(CLIENTS), np.full(MODEL.dim, -0.1, np.float32))
        apart[0] = np.full(MODEL.dim, 0.1, np.float32)
        done = aggregator(self.name, weights="examples", alpha=1.0).aggregate(apart, weights, {}, 1, bytes(32))
        assert done.step.mean() == pytest.approx((10 - 11) / 21 * 0.1, abs=2e-3)


class TestPlain(AggregatorSuite):
    name = "plain"

    def test_it_is_the_exact_mean(self) -> None:
        """Nothing is lost but the last bit."""
        alive = [user for user in range(CLIENTS) if user not in (3, 8)]
        done = aggregate("plain")
        assert np.allclose(done.step, np.mean([UPDATES[user] for user in alive], axis=0), atol=1e-8)
        assert done.upload_bytes == 4 * MODEL.dim


class SecureSuite(AggregatorSuite):
    """What holds for all that run the protocol."""

    def test_the_sum_is_exact(self) -> None:
        """In the field, the aggregate is the sum of the survivors' quantised values."""
        assert aggregate(self.name).exact

    def test_a_sum_that_is_not_exact_is_never_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wrong aggregate would spoil the model unseen."""
        whole = InProcessRun.round
        monkeypatch.setattr(
            InProcessRun, "round", lambda *given, **named: dataclasses.replace(whole(*given, **named), exact=False)
        )
        with pytest.raises(ProtocolError, match="sum opened in round 1"):
            aggregate(self.name)

    def test_it_talks_twice_per_round_and_twice_more_before_the_first(self) -> None:
        """Keys are advertised once; packages ride along. Every stage has bytes and seconds."""
        one = aggregator(self.name)
        first, second = (one.aggregate(UPDATES, None, {}, number, bytes(32)) for number in (1, 2))
        assert (one.exchanges, first.exchanges, second.exchanges) == (2, 4, 2)
        steady = {"SHARE_KEYS", "UPLOAD", "UNMASK"}
        for done, stages in ((first, {"ADVERTISE_KEYS"} | steady), (second, steady)):
            assert set(done.sent_bytes) == set(done.client_seconds) == stages | {"total"}
            for stage in stages:
                assert done.sent_bytes[stage] > 0 and done.client_seconds[stage] > 0
        # Before the first round two packages are dealt, and one more in each round.
        assert first.sent_bytes["SHARE_KEYS"] == 3 * second.sent_bytes["SHARE_KEYS"]

    def test_another_round_rounds_afresh(self) -> None:
        """Everything random is drawn by round."""
        one = aggregator(self.name, alpha=1.0, first_clip=1.0, modulus_bits=12)
        clips = one.state()["clips"].copy()
        means = []
        for number in (1, 2):
            one._clip.ranges = Ranges.restore(clips.tobytes())  # The same clip, so that only the rounding differs.
            means.append(one.aggregate(UPDATES, None, {}, number, bytes(32)).step)
        assert not np.array_equal(*means)

    def test_who_misses_two_rounds_in_a_row_misses_the_third(self) -> None:
        """Packages travel two rounds ahead: after one missed round a user is back, after two it first has to deal."""
        one = aggregator(self.name)
        for number, drops, expected in (
            (1, {5: Stage.UPLOAD}, {}),
            (2, {6: Stage.UPLOAD, 7: Stage.UPLOAD}, {}),
            (3, {7: Stage.UPLOAD}, {}),
            (4, {}, {7}),
            (5, {}, {}),
        ):
            users = one.taking_part(CLIENTS, drops)
            assert users == [user for user in range(CLIENTS) if user not in drops and user not in expected]
            done = one.aggregate({user: UPDATES[user] for user in users}, None, drops, number, bytes(32))
            assert done.survivors == len(users) and done.dropped["SHARE_KEYS"] == len(expected)

    def test_who_advertised_no_key_is_out_for_the_whole_run(self) -> None:
        """The set-up happens once."""
        one = aggregator(self.name)
        first = one.aggregate(UPDATES, None, {4: Stage.ADVERTISE_KEYS}, 1, bytes(32))
        second = one.aggregate(UPDATES, None, {}, 2, bytes(32))
        assert first.survivors == second.survivors == CLIENTS - 1
        assert second.dropped["ADVERTISE_KEYS"] == 1

    def test_rounds_come_in_order(self) -> None:
        """A round is never repeated, and none is left out."""
        one = aggregator(self.name)
        with pytest.raises(WrongRound):
            one.aggregate(UPDATES, None, {}, 2, bytes(32))

    def test_a_failed_round_has_cost_its_bytes_and_leaves_the_clip(self) -> None:
        """Those who uploaded before too many were lost have sent their message."""
        drops = dict.fromkeys(range(8), Stage.UNMASK)
        one = aggregator(self.name)
        before = one.state()["clips"].copy()
        done = one.aggregate(UPDATES, None, drops, 1, bytes(32))
        assert done.step is None and "UNMASK" in done.reason
        assert done.uploads == CLIENTS and done.upload_bytes > 100
        assert np.array_equal(one.state()["clips"], before)

    def test_the_state_carries_over(self) -> None:
        """A restored aggregator goes on as the first one would have."""
        first, second = aggregator(self.name), aggregator(self.name)
        first.aggregate(UPDATES, None, {}, 1, bytes(32))
        second.restore(first.state())
        a, b = (one.aggregate(UPDATES, None, {}, 2, bytes(32)) for one in (first, second))
        assert np.array_equal(a.step, b.step)
        assert np.array_equal(first.state()["clips"], second.state()["clips"])


class TestSecAgg(SecureSuite):
    name = "secagg"
    tolerance = 1e-6


class TestSecAggPlus(SecureSuite):
    name = "secagg-plus"
    tolerance = 1e-6


class TestPairwise(SecureSuite):
    name = "pairwise"
    covered = 0.85  # Users draw their own coordinates.

    def test_weights_count(self) -> None:
        """Users scale by their weight, the server divides by the public total: right on average over coordinates."""
        weights = [10 if user == 0 else 1 for user in range(CLIENTS)]
        same = dict.fromkeys(range(CLIENTS), np.full(MODEL.dim, 0.1, np.float32))
        same[0] = np.full(MODEL.dim, -0.1, np.float32)
        done = aggregator(self.name, weights="examples", alpha=1.0, dropout=0).aggregate(
            same, weights, {}, 1, bytes(32)
        )
        assert done.step.mean() == pytest.approx((11 - 10) / 21 * 0.1, abs=5e-3)
        with pytest.raises(InvalidInput, match="must be expected"):
            aggregator(self.name, weights="examples", normalisation="observed")


class TestSliced(SecureSuite):
    name = "sliced"
    covered = 0.49

    def test_every_coordinate_has_its_turn(self) -> None:
        """Half of the model in one round, the other half in the next; what was not sent stays."""
        one = aggregator(self.name)
        steps = [one.aggregate(UPDATES, None, {}, number, bytes(32)).step for number in (1, 2, 3)]
        assert [np.count_nonzero(step) / MODEL.dim for step in steps] == pytest.approx([0.5] * 3, abs=0.05)
        assert np.count_nonzero(steps[0] + steps[1]) > 0.95 * MODEL.dim
        assert np.array_equal(steps[0] != 0, steps[2] != 0)

    def test_the_step_is_the_gain_times_the_mean(self) -> None:
        """A fixed one; one that adapts starts at half of the largest; both are recorded."""
        plain, doubled = (aggregate(self.name, gain=gain) for gain in (1, 2))
        assert np.allclose(doubled.step, 2 * plain.step) and (plain.gain, doubled.gain) == (1, 2)
        assert aggregate(self.name, alpha=0.1, gain="auto").gain == 5
        with pytest.raises(InvalidInput, match=r"must be in \[1, 2\]"):
            aggregator(self.name, gain=3)

    def test_a_gain_that_adapts_is_part_of_the_state(self) -> None:
        """After a restart it continues where it was."""
        first, second = (aggregator(self.name, alpha=0.1, gain="auto") for _ in range(2))
        for number in (1, 2, 3):
            first.aggregate(UPDATES, None, {}, number, bytes(32))
        second.restore(first.state())
        a, b = (one.aggregate(UPDATES, None, {}, 4, bytes(32)) for one in (first, second))
        assert a.gain == b.gain != 5 and np.array_equal(a.step, b.step)

    def test_groups_open_their_own_sums(self) -> None:
        """Two groups of six; most of one are lost, which is its own loss: its slice stays as it was."""
        one = aggregator(self.name, group_size=6)
        assert one.describe()["groups"] == 2 and one.describe()["coverage"] == 1
        assert one.aggregate(UPDATES, None, {}, 1, bytes(32)).groups_opened == 2
        lost = one._run.server.groups.groups[0].users[:4].tolist()
        done = one.aggregate(UPDATES, None, dict.fromkeys(lost, Stage.UNMASK), 2, bytes(32))
        assert done.groups_opened == 1 and sum(done.lost.values()) == 1
        assert np.count_nonzero(done.step) / MODEL.dim == pytest.approx(0.5, abs=0.05)

    def test_what_is_asked_and_what_is_used_is_told(self) -> None:
        """With the honest users that every sum has."""
        described = aggregator(self.name, alpha=0.3333).describe()
        assert described["alpha"] == pytest.approx(1 / 3) and described["alpha_asked"] == pytest.approx(0.3333)
        assert described["group_size"] == {"min": 12, "max": 12}
        assert described["anonymity"] == described["threshold"] > 6

    def test_words_of_8_bits_are_enough_once_the_clip_has_followed(self) -> None:
        """Ten steps on either side of a clip of 1 are too coarse for one round."""
        same = dict.fromkeys(range(CLIENTS), UPDATES[0])
        one = aggregator(self.name, modulus_bits=8, alpha=0.5)
        for number in range(1, 8):
            done = one.aggregate(same, None, {}, number, bytes(32))
        arrived = done.step != 0
        assert np.corrcoef(done.step[arrived], UPDATES[0][arrived])[0, 1] > 0.98


class TestAuthenticated:
    """Rounds with a roster, through the aggregators that have them."""

    @pytest.mark.parametrize("name", ["sliced", "pairwise", "secagg"])
    def test_a_roster_costs_no_exchange(self, name: str) -> None:
        """Two per round, as without."""
        one = aggregator(name, authenticated=True)
        done = one.aggregate(UPDATES, None, {3: Stage.UPLOAD, 8: Stage.UNMASK}, 1, bytes(32))
        assert (one.exchanges, done.exchanges) == (2, 4)
        assert done.exact and done.survivors == CLIENTS - 1

    def test_the_sum_is_that_of_a_round_without_identities(self) -> None:
        """A roster changes who is believed, not what is added; the mean differs by the rounding alone."""
        plain, signed = (aggregate("secagg", authenticated=yes).step for yes in (False, True))
        assert np.allclose(plain, signed, atol=1e-6)

    def test_a_seed_gives_the_same_identities_and_the_same_bits(self) -> None:
        """So that a resumed run goes on under the roster that it began with."""
        one, same = (aggregator("sliced", authenticated=True, seed=5) for _ in range(2))
        other = aggregator("sliced", authenticated=True, seed=6)
        assert one.parameters.roster_digest == same.parameters.roster_digest != other.parameters.roster_digest
        assert np.array_equal(*(run.aggregate(UPDATES, None, {}, 1, bytes(32)).step for run in (one, same)))

    @pytest.mark.parametrize("name", ["plain", "secagg-plus"])
    def test_aggregators_without_identities_say_so_and_name_the_others(self, name: str) -> None:
        """An option that would be ignored is refused."""
        with pytest.raises(InvalidInput, match=f"with {name}, wh.*use one of secagg, pairwise, sliced") as caught:
            aggregator(name, authenticated=True)
        assert caught.value.option == "authenticated"


def test_the_suites_cover_every_name() -> None:
    """A new aggregator needs a suite."""
    tested = {
        suite.name
        for suite in AggregatorSuite.__subclasses__() + SecureSuite.__subclasses__()
        if hasattr(suite, "name")
    }
    assert tested == set(AGGREGATORS)


def test_unknown_names_list_the_known_ones() -> None:
    """A typing error is answered with the choice."""
    with pytest.raises(InvalidInput, match="plain, secagg, secagg-plus, pairwise, sliced"):
        aggregator("secag")


@pytest.mark.parametrize("name", ["pairwise", "sliced"])
def test_a_fraction_that_sends_nothing_is_refused(name: str) -> None:
    """α·d below one value: the error names the least α."""
    with pytest.raises(InvalidInput, match=r"alpha of 0.001 sends nothing.*use 0.00394 or more"):
        aggregator(name, alpha=0.001)


def test_words_are_short_for_slices_and_as_published_for_others() -> None:
    """Unless told otherwise."""
    bits = {name: aggregator(name).describe().get("modulus_bits") for name in AGGREGATORS}
    assert bits["sliced"] == 16 and bits["secagg"] == bits["pairwise"] == 32 and bits["plain"] is None
    assert aggregator("secagg", modulus_bits=24).describe()["modulus_bits"] == 24


def test_secagg_plus_takes_few_neighbours_where_few_drop_out() -> None:
    """A sparse graph for many users; a complete one where dropouts leave no choice."""
    few, many = default_neighbours(200, 0.05), default_neighbours(200, 0.3)
    assert few is not None and 16 <= few < 60
    assert many is not None and many > few
    assert default_neighbours(20, 0.3) is None


def test_the_expected_normalisation_is_the_papers() -> None:
    """Divides by p(1−θ)N, the members of the round for N, instead of by those who came."""
    drops = {3: Stage.UPLOAD, 4: Stage.UPLOAD, 7: Stage.UNMASK}
    observed, expected = (aggregate("secagg", drops, normalisation=how).step for how in ("observed", "expected"))
    assert np.allclose(expected, observed * 10 / (CLIENTS * 0.9), atol=1e-6)
    drops[8] = Stage.SHARE_KEYS
    observed, expected = (aggregate("secagg", drops, normalisation=how).step for how in ("observed", "expected"))
    assert np.allclose(expected, observed * 9 / ((CLIENTS - 1) * 0.9), atol=1e-6)


def test_exposure_is_large_for_pairwise_and_none_for_groups(tmp_path: Path) -> None:
    """The theory's figures for the settings of a run (N = 100, α = 0.2, θ = 0.3, a third colluding)."""
    options: dict[str, Any] = {"clients": 100, "alpha": 0.2, "dropout": 0.3, "colluding": 1 / 3}
    exposure: dict[str, Any] = {}
    for name in ("plain", "pairwise", "sliced", "secagg"):
        config = TrainingConfig.create("blobs", aggregator=name, hidden=32, **options)
        run = FederatedRun.create(config, Task.prepare(config, dataset=blobs(200)), tmp_path / name)
        exposure[name] = run.folder.config()["expected_exposure"]
    assert exposure["plain"] is None and exposure["pairwise"] == pytest.approx(0.51, abs=0.01)
    assert exposure["sliced"] == exposure["secagg"] == 0


def test_keys_of_those_who_drop_out_arrive_if_asked_for() -> None:
    """Only uploads are missing then, as in the paper: who misses two rounds takes part in the third."""
    for arrive, there in ((True, CLIENTS), (False, CLIENTS - 1)):
        one = aggregator("secagg", keys_arrive=arrive)
        for number in (1, 2):
            one.aggregate(UPDATES, None, {5: Stage.UPLOAD}, number, bytes(32))
        assert len(one.taking_part(CLIENTS, {})) == there
        assert one.aggregate(UPDATES, None, {}, 3, bytes(32)).dropped["SHARE_KEYS"] == CLIENTS - there


class TestNoise:
    """Differential privacy: users clip by the 2-norm and add noise."""

    def test_the_noise_is_what_the_rounds_cost(self) -> None:
        """As many as were planned keep ε; fewer cost less; the word is as long as the noise needs."""
        one = aggregator("sliced", dp_epsilon=4, dp_delta=1e-4, rounds=20)
        assert one.epsilon(20, 1e-4) == pytest.approx(4, rel=1e-3)
        assert 0 < one.epsilon(5, 1e-4) < 2.5
        more = aggregator("sliced", dp_epsilon=1, dp_delta=1e-4, rounds=20)
        assert more.describe()["noise_multiplier"] > 3 * one.describe()["noise_multiplier"]
        assert more.parameters.modulus_bits > one.parameters.modulus_bits
        assert aggregator("sliced").epsilon(20, 1e-4) is None

    def test_updates_are_clipped_by_their_norm_and_the_mean_is_noisy(self) -> None:
        """Twelve users with an update ten times as long as the clip: a tenth of it arrives, on average."""
        update = np.full(MODEL.dim, 10 / MODEL.dim**0.5, np.float32)
        one = aggregator("secagg", dp_epsilon=25, dp_clip=1.0, rounds=1)
        done = one.aggregate(dict.fromkeys(range(CLIENTS), update), None, {}, 1, bytes(32))
        assert done.exact and done.step.mean() == pytest.approx(update[0] / 10, rel=0.1)
        assert done.step.std() > 0

    @pytest.mark.parametrize("name", ["plain", "pairwise", "secagg-plus"])
    def test_it_takes_sums_over_whole_groups(self, name: str) -> None:
        with pytest.raises(InvalidInput, match=f"with {name}, which.*use one of secagg, sliced") as caught:
            aggregator(name, dp_epsilon=1)
        assert caught.value.option == "dp_epsilon"

    def test_private_weights_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="uniform"):
            aggregator("sliced", dp_epsilon=1, weights="examples")


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_the_published_estimate_is_unbiased_in_a_run_of_many_rounds(weighted: bool) -> None:
    """Lemma 1: N = 100, α = 0.1, θ = 0.3, every update 1; thirty uploads missing, the same part of every weight."""
    clients, dim = 100, 8000
    options = RoundOptions("pairwise", alpha=0.1, dropout=0.3, max_weight=secure.WEIGHT_SCALE if weighted else 0)
    config = TrainingConfig.create(aggregator="pairwise", clients=clients, normalisation="expected", keys_arrive=True)
    one = secure.SecureAggregator(config, options, (Layer("all", 0, dim),), 1.0)
    weights = [1 + user // 20 for user in range(clients)] if weighted else None
    update, random, estimates = np.ones(dim, np.float32), np.random.default_rng(3), []
    for number in range(1, 7):
        missing = np.concatenate([first + random.permutation(20)[:6] for first in range(0, clients, 20)])
        drops = dict.fromkeys(missing.tolist(), Stage.UPLOAD)
        users = one.taking_part(clients, drops)
        assert len(users) == 70
        one._clip.clips[:] = 1.0
        done = one.aggregate(dict.fromkeys(users, update), weights, drops, number, bytes(32))
        assert done.step is not None
        estimates.append(float(done.step.mean()))
    assert np.mean(estimates[2:]) == pytest.approx(1, abs=0.01)
