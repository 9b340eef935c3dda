"""Every aggregator passes the same suite: one inherited class each."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from sparsesecagg.simulate import InProcessRun
from sparsesecagg.errors import InvalidInput, WrongRound
from sparsesecagg.lab.learning import DenseNetwork, TrainingConfig, secure
from sparsesecagg.lab.learning.aggregation import uploaders
from sparsesecagg.lab.learning.aggregators import (
    AGGREGATORS,
    default_neighbours,
    expected_exposure,
    make_aggregator,
)
from sparsesecagg.protocol import Stage

CLIENTS = 12
MODEL = DenseNetwork(20, 4, (10,))
RANDOM = np.random.default_rng(0)
COMMON = 0.05 * RANDOM.standard_normal(MODEL.dim)
UPDATES = {user: (COMMON + 0.02 * RANDOM.standard_normal(MODEL.dim)).astype(np.float32) for user in range(CLIENTS)}
DROPS = {3: Stage.UPLOAD, 7: Stage.UNMASK, 8: Stage.SHARE_KEYS}


def aggregator(name: str, **options):
    """Make an aggregator for twelve users, of whom each sends about half."""
    chosen = {"clients": CLIENTS, "alpha": 0.5, "dropout": 0.1, "aggregator": name}
    return make_aggregator(TrainingConfig.create("digits", **(chosen | options)), MODEL, MODEL.initial(0))


def aggregate(name: str, drops=DROPS, weights=None, number: int = 1, **options):
    """Run one round."""
    sent = {user: UPDATES[user] for user in uploaders(CLIENTS, drops)}
    return aggregator(name, **options).aggregate(sent, weights, drops, number, bytes(32))


class AggregatorSuite:
    """What holds for all of them."""

    name: str
    tolerance = 0.05  # of the mean, where everybody's values differ by 0.02 and half of them are sent

    def test_identical_updates_come_back_as_they_were(self) -> None:
        """The mean of equal vectors is that vector, up to rounding, wherever anybody sent a value."""
        same = dict.fromkeys(range(CLIENTS), UPDATES[0])
        # Weights with a wide first clip: what is tested is the mean, not the clip.
        done = aggregator(self.name, first_clip=1.0, alpha=1.0).aggregate(same, None, {}, 1, bytes(32))
        assert done.mean.dtype == np.float32
        arrived = done.mean != 0
        assert arrived.mean() > 0.95
        assert np.allclose(done.mean[arrived], UPDATES[0][arrived], atol=2e-3)

    def test_the_mean_is_that_of_the_survivors(self) -> None:
        """Those silent by UPLOAD are not in it, those silent after it are."""
        done = aggregate(self.name)
        alive = [user for user in range(CLIENTS) if user not in (3, 8)]
        assert done.survivors == done.uploads == len(alive)
        assert done.coordinates_updated > 0.9
        expected = np.mean([UPDATES[user] for user in alive], axis=0)
        assert np.abs(done.mean - expected).mean() < self.tolerance
        assert done.dropped == {"ADVERTISE_KEYS": 0, "SHARE_KEYS": 1, "UPLOAD": 1, "UNMASK": 1}

    def test_whoever_takes_part_is_there_at_upload(self) -> None:
        """Before anything was aggregated that is everybody who did not drop out by then."""
        assert aggregator(self.name).taking_part(CLIENTS, DROPS) == uploaders(CLIENTS, DROPS)

    def test_a_seed_decides(self) -> None:
        """Same seed and round, same bits; another round draws afresh."""
        one, same = aggregate(self.name), aggregate(self.name)
        assert np.array_equal(one.mean, same.mean)

    def test_costs_add_up(self) -> None:
        """Totals are sums, the upload is one of the stages, contributors are a distribution."""
        done = aggregate(self.name)
        for by_stage in (done.sent_bytes, done.received_bytes, done.client_seconds, done.server_seconds):
            stages = sum(value for stage, value in by_stage.items() if stage != "total")
            assert by_stage["total"] == pytest.approx(stages)
        assert done.sent_bytes["UPLOAD"] == done.upload_bytes > 0
        assert sum(done.contributors.histogram.values()) == pytest.approx(1)
        assert done.contributors.min <= done.contributors.mean <= CLIENTS - 2

    def test_a_round_without_survivors_fails_and_says_why(self) -> None:
        """No mean, a reason, and no exception: training goes on."""
        done = aggregate(self.name, dict.fromkeys(range(CLIENTS), Stage.UPLOAD))
        assert done.mean is None and done.reason and done.uploads == 0
        assert done.contributors is None and done.dropped["UPLOAD"] == CLIENTS

    def test_weights_count(self) -> None:
        """A user of weight 10 among ones of weight 1 pulls the mean."""
        weights = [10 if user == 0 else 1 for user in range(CLIENTS)]
        apart = dict.fromkeys(range(CLIENTS), np.full(MODEL.dim, -0.1, np.float32))
        apart[0] = np.full(MODEL.dim, 0.1, np.float32)
        done = aggregator(self.name, weighting="samples", alpha=1.0).aggregate(apart, weights, {}, 1, bytes(32))
        assert done.mean.mean() == pytest.approx((10 - 11) / 21 * 0.1, abs=2e-3)


class TestPlain(AggregatorSuite):
    name = "plain"

    def test_it_is_the_exact_mean(self) -> None:
        """Nothing is lost but the last bit."""
        alive = [user for user in range(CLIENTS) if user not in (3, 8)]
        done = aggregate("plain")
        assert np.allclose(done.mean, np.mean([UPDATES[user] for user in alive], axis=0), atol=1e-8)
        assert done.upload_bytes == 4 * MODEL.dim


class TestRandomK(AggregatorSuite):
    name = "plain-randk"

    def test_everybody_sends_the_fraction_and_a_seed(self) -> None:
        """Half of the values, four bytes each."""
        done = aggregate(self.name)
        assert done.upload_bytes == 4 * (MODEL.dim // 2) + 32
        assert done.contributors.mean == pytest.approx(10 * (MODEL.dim // 2) / MODEL.dim)


class TestTopK(AggregatorSuite):
    name = "plain-topk"

    def test_the_largest_values_arrive(self) -> None:
        """What one user alone sends is its largest values, the rest is zero."""
        drops = dict.fromkeys(range(1, CLIENTS), Stage.UPLOAD)
        done = aggregate(self.name, drops, alpha=0.1)
        kept = int(0.1 * MODEL.dim)
        assert np.count_nonzero(done.mean) == kept
        assert np.abs(done.mean[done.mean != 0]).min() >= np.sort(np.abs(UPDATES[0]))[-kept]
        assert done.upload_bytes == 4 * kept + -(-MODEL.dim // 8)


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
        with pytest.raises(secure.InexactSum):
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
            one._clip.clips = clips  # The same clip, so that only the rounding differs.
            means.append(one.aggregate(UPDATES, None, {}, number, bytes(32)).mean)
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
        assert done.mean is None and "UNMASK" in done.reason
        assert done.uploads == CLIENTS and done.upload_bytes > 100
        assert np.array_equal(one.state()["clips"], before)

    def test_the_state_carries_over(self) -> None:
        """A restored aggregator goes on as the first one would have."""
        first, second = aggregator(self.name), aggregator(self.name)
        first.aggregate(UPDATES, None, {}, 1, bytes(32))
        second.restore(first.state())
        a, b = (one.aggregate(UPDATES, None, {}, 2, bytes(32)) for one in (first, second))
        assert np.array_equal(a.mean, b.mean)
        assert np.array_equal(first.state()["clips"], second.state()["clips"])


class TestSecAgg(SecureSuite):
    name = "secagg"
    tolerance = 1e-6


class TestSecAggPlus(SecureSuite):
    name = "secagg-plus"
    tolerance = 1e-6


class TestPairwise(SecureSuite):
    name = "pairwise"

    def test_weights_count(self) -> None:
        """It can't hide weights, so it refuses them."""
        with pytest.raises(InvalidInput, match="uniform"):
            aggregator(self.name, weighting="samples")


class TestCommittee(SecureSuite):
    name = "committee"

    def test_thin_committees_lose_their_slices_and_nothing_else(self) -> None:
        """Their coordinates stay as they are, and so does the clip of a layer of which nothing was opened."""
        one = aggregator(self.name, alpha=0.25, min_survivors=3)
        before = one.state()["clips"].copy()
        sent = {user: UPDATES[user] for user in range(1, CLIENTS)}
        done = one.aggregate(sent, None, {0: Stage.UPLOAD}, 1, bytes(32))
        assert done.reason is None and done.committees_opened == 3 and sum(done.lost.values()) == 1
        assert done.coordinates_updated == pytest.approx(0.75, abs=0.01)
        assert np.count_nonzero(done.mean) / MODEL.dim == pytest.approx(0.75, abs=0.02)
        untouched = [not done.mean[layer.start : layer.stop].any() for layer in MODEL.layers]
        assert np.array_equal(one.state()["clips"] == before, untouched)
        assert done.contributors.histogram["0"] == pytest.approx(0.25, abs=0.01)

    def test_a_round_with_nothing_but_thin_committees_fails_and_the_next_one_works(self) -> None:
        """The reason says what was missing."""
        one = aggregator(self.name, alpha=0.25, min_survivors=3)
        one.aggregate(UPDATES, None, {}, 1, bytes(32))
        (pod,) = one._run.server.groups.pods
        one_of_each = {int(pod.users[members[0]]): Stage.UPLOAD for members in pod.committees}
        done = one.aggregate(UPDATES, None, one_of_each, 2, bytes(32))
        assert done.mean is None and done.committees_opened == 0 and "survivors" in done.reason
        assert one.aggregate(UPDATES, None, {}, 3, bytes(32)).committees_opened == 4

    def test_alpha_and_anonymity_are_chosen_apart(self) -> None:
        """Four committees of three, each of which sends half of the model; what was asked and what is used is told."""
        described = aggregator(self.name, committee_size=3, alpha=0.4).describe()
        assert described["committees"] == 4 and described["slices_per_committee"] == 2
        assert described["alpha"] == 0.5 and described["alpha_asked"] == pytest.approx(0.4)
        assert described["committee_size"] == {"min": 3, "max": 3}

    def test_pods_open_their_own_sums(self) -> None:
        """Two pods of six; half of one of them is lost, which is its own loss."""
        one = aggregator(self.name, committee_size=3, pod_size=6)
        assert one.describe()["pods"] == 2
        one.aggregate(UPDATES, None, {}, 1, bytes(32))
        lost = one._run.server.groups.pods[0].users[:3].tolist()
        done = one.aggregate(UPDATES, None, dict.fromkeys(lost, Stage.UNMASK), 2, bytes(32))
        assert done.committees_opened == 2 and done.mean is not None

    def test_neighbours_are_refused(self) -> None:
        """Pods are complete graphs."""
        with pytest.raises(InvalidInput, match="must not be given with committee"):
            aggregator(self.name, neighbours=6)


class TestAuthenticated:
    """Rounds with a roster, through the aggregators that have them."""

    @pytest.mark.parametrize("name", ["committee", "pairwise", "secagg"])
    def test_confirming_is_an_exchange_with_bytes_and_seconds_of_its_own(self, name: str) -> None:
        """Counted wherever stages are listed, and in the totals; the jury's draw belongs to the set-up."""
        drops = {3: Stage.UPLOAD, 7: Stage.CONFIRM, 8: Stage.UNMASK}
        one = aggregator(name, authenticated=True)
        done = one.aggregate(UPDATES, None, drops, 1, bytes(32))
        assert (one.exchanges, done.exchanges) == (3, 6)
        assert done.exact and done.survivors == CLIENTS - 1 and done.sent_bytes["DRAW"] > 0
        assert done.dropped == {"ADVERTISE_KEYS": 0, "SHARE_KEYS": 0, "UPLOAD": 1, "CONFIRM": 1, "UNMASK": 1}
        for by_stage in (done.sent_bytes, done.received_bytes, done.client_seconds, done.server_seconds):
            assert by_stage["CONFIRM"] > 0
            stages = sum(value for stage, value in by_stage.items() if stage != "total")
            assert by_stage["total"] == pytest.approx(stages)

    def test_the_sum_is_that_of_a_round_without_identities(self) -> None:
        """A roster changes who is believed, not what is added; the mean differs by the rounding alone."""
        plain, signed = (aggregate("secagg", authenticated=yes).mean for yes in (False, True))
        assert np.allclose(plain, signed, atol=1e-6)

    def test_a_seed_gives_the_same_identities_and_the_same_bits(self) -> None:
        """So that a resumed run goes on under the roster that it began with."""
        one, same = (aggregator("committee", authenticated=True, seed=5) for _ in range(2))
        other = aggregator("committee", authenticated=True, seed=6)
        assert one.parameters.roster_digest == same.parameters.roster_digest != other.parameters.roster_digest
        assert np.array_equal(*(run.aggregate(UPDATES, None, {}, 1, bytes(32)).mean for run in (one, same)))

    def test_more_than_two_thirds_must_stay(self) -> None:
        """Twelve users have a threshold of nine: four gone are too many, as a result and not as an error."""
        assert aggregator("committee", authenticated=True).describe()["threshold"] == 9
        done = aggregate("committee", dict.fromkeys(range(4), Stage.CONFIRM), authenticated=True)
        assert done.mean is None and "8 users left at CONFIRM, 9 are needed" in done.reason
        assert done.sent_bytes["CONFIRM"] > 0 and done.client_seconds["CONFIRM"] == 0 and done.dropped["CONFIRM"] == 4
        assert done.exchanges == 6

    @pytest.mark.parametrize(
        ("options", "option", "said"),
        [
            ({"dropout": 0.3}, "dropout", "leaves 7.64 of 12 users on average.*need 9, more.*use 0.214 or less"),
            ({"dropout": 0.2, "threshold": 11}, "threshold", "of 11 is out of reach: a dropout of 0.2 leaves 9.22"),
            ({"threshold": 6}, "threshold", "must be from 7 to 12"),
            ({"neighbours": 6, "aggregator": "pairwise"}, "neighbours", "complete pods"),
        ],
    )
    def test_settings_that_the_threshold_forbids_are_refused_by_name(self, options, option: str, said: str) -> None:
        """Before anything is trained, with the nearest remedy."""
        with pytest.raises(InvalidInput, match=said) as caught:
            aggregator(**({"name": options.pop("aggregator", "committee"), "authenticated": True} | options))
        assert caught.value.option == option

    def test_the_largest_dropout_that_is_named_works(self) -> None:
        """The remedy is one."""
        assert aggregator("committee", authenticated=True, dropout=0.214).parameters.threshold == 9

    @pytest.mark.parametrize("name", ["plain", "plain-randk", "plain-topk", "secagg-plus"])
    def test_aggregators_without_identities_say_so_and_name_the_others(self, name: str) -> None:
        """An option that would be ignored is refused."""
        with pytest.raises(InvalidInput, match=f"with {name}, wh.*use one of secagg, pairwise, committee") as caught:
            aggregator(name, authenticated=True)
        assert caught.value.option == "authenticated"


class TestCommitteeOf8Bits(SecureSuite):
    name = "committee"
    tolerance = 0.06

    def test_identical_updates_come_back_as_they_were(self) -> None:
        """Ten steps on either side of a clip of 1 are too coarse for one round; that is what the clip follows for."""
        same = dict.fromkeys(range(CLIENTS), UPDATES[0])
        one = aggregator(self.name, modulus_bits=8, alpha=0.5)
        for number in range(1, 6):
            done = one.aggregate(same, None, {}, number, bytes(32))
        assert np.corrcoef(done.mean, UPDATES[0])[0, 1] > 0.98


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
    with pytest.raises(InvalidInput, match="plain-topk, secagg, secagg-plus, pairwise, committee"):
        aggregator("secag")


@pytest.mark.parametrize("name", ["plain-randk", "plain-topk", "pairwise", "committee"])
def test_a_fraction_that_sends_nothing_is_refused(name: str) -> None:
    """α·d below one value: the error names the least α."""
    with pytest.raises(InvalidInput, match=r"alpha of 0.001 sends nothing.*use 0.00394 or more"):
        aggregator(name, alpha=0.001)


def test_words_are_short_for_committees_and_as_published_for_others() -> None:
    """Unless told otherwise."""
    bits = {name: aggregator(name).describe().get("modulus_bits") for name in AGGREGATORS}
    assert bits["committee"] == 16 and bits["secagg"] == bits["pairwise"] == 32 and bits["plain"] is None
    assert aggregator("secagg", modulus_bits=24).describe()["modulus_bits"] == 24


def test_secagg_plus_takes_few_neighbours_where_few_drop_out() -> None:
    """A sparse graph for many users; a complete one where dropouts leave no choice."""
    few, many = default_neighbours(200, 0.05), default_neighbours(200, 0.3)
    assert few is not None and 16 <= few < 60
    assert many is not None and many > few
    assert default_neighbours(20, 0.3) is None


def test_weights_need_the_observed_normalisation() -> None:
    """The paper's normalisation has no private weights."""
    with pytest.raises(InvalidInput, match="observed"):
        aggregator("committee", weighting="samples", normalisation="expected")


def test_the_expected_normalisation_is_the_papers() -> None:
    """Divides by p(1−θ)N, N without those who have no package, instead of by those who came."""
    drops = {3: Stage.UPLOAD, 4: Stage.UPLOAD, 7: Stage.UNMASK}
    observed, expected = (aggregate("secagg", drops, normalisation=how).mean for how in ("observed", "expected"))
    assert np.allclose(expected, observed * 10 / (CLIENTS * 0.9), atol=1e-6)
    drops[8] = Stage.SHARE_KEYS
    observed, expected = (aggregate("secagg", drops, normalisation=how).mean for how in ("observed", "expected"))
    assert np.allclose(expected, observed * 9 / ((CLIENTS - 1) * 0.9), atol=1e-6)


def test_exposure_is_large_for_pairwise_and_tiny_for_committees() -> None:
    """The theory's figures for the settings of a run (DESIGN, N = 100, α = 0.2, θ = 0.3, a third colluding)."""
    options: dict[str, Any] = {"clients": 100, "alpha": 0.2, "dropout": 0.3, "colluding": 1 / 3}
    exposure: dict[str, Any] = {}
    for name in ("plain", "pairwise", "committee", "secagg"):
        config = TrainingConfig.create("digits", aggregator=name, **options)
        exposure[name] = expected_exposure(config, make_aggregator(config, MODEL, MODEL.initial(0)))
    assert exposure["plain"] is None and exposure["pairwise"] == pytest.approx(0.51, abs=0.01)
    assert exposure["committee"] < 1e-4 and exposure["secagg"] < 1e-12
