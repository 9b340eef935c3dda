"""What the server chooses: groups by the planner where no alpha is given, and clips that follow the last mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from flower.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.flower.choice import GROWTH, Clips, Wish, anonymity, choose, described, headroom, round_bytes
from sparsesecagg.flower.settings import Settings
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import SecAgg
from sparsesecagg.protocol import Policy

DIM = 400


def start(nodes: int, **settings: Any) -> tuple[SecAgg, Any]:
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.25)}, weight=lambda p: 16)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), **settings)
    initial = model(w=np.zeros(DIM, np.float32))
    return strategy, strategy.start(grid=LocalGrid(app, nodes), initial_arrays=initial, num_rounds=2)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (3, "no alpha was asked for, 1 is used: 3 nodes in one committee of all"),
        (10, "every sum holds 5 honest nodes or more, with 1 of the 10 colluding"),
        (36, "no alpha was asked for, 0.5 is used: 36 nodes in 2 committees of 18"),
    ],
)
def test_what_was_chosen_is_logged_once_and_the_run_works(nodes: int, said: str, caplog: Any) -> None:
    strategy, result = start(nodes)
    assert caplog.text.count(said) == 1
    assert caplog.text.count("per round and receives") == 1
    assert ("too few to split into committees" in caplog.text) is (nodes < 30)
    assert [record.survivors for record in strategy.history] == [nodes, nodes]
    np.testing.assert_allclose(values(result.arrays)["w"], 0.5, atol=1e-3)


@pytest.mark.parametrize("nodes", [*range(3, 40), 50, 100, 300, 1000])
def test_a_node_accepts_by_default_whatever_is_chosen_by_default(nodes: int) -> None:
    params = Settings(max_weight=None).parameters(nodes, 10_000)
    Policy().check_parameters(params)
    if nodes >= 10:
        assert anonymity(params, Wish()) >= 5
    assert params.confirm is False


def test_with_a_roster_the_choice_holds_against_a_server_that_lies() -> None:
    options = choose(Wish(), 100, 10_000, 0.1, roster=True)
    params = Settings().parameters(100, 10_000).replace(roster_digest=bytes([1]) * 32, **options)
    Policy(min_anonymity=5, colluding=0.1, server="lying").check_parameters(params)
    assert params.committees > 1


def test_the_wish_is_the_callers() -> None:
    many, few = (Settings(wish=Wish(min_anonymity=number)).parameters(200, 10_000) for number in (3, 40))
    assert many.committees > few.committees
    assert round_bytes(many)[0] < round_bytes(few)[0]


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"min_anonymity": 0}, "min_anonymity"),
        ({"min_anonymity": 2.5}, "min_anonymity"),
        ({"colluding": 0.5}, "colluding"),
        ({"server": "kind"}, "server"),
        ({"weights": "equal"}, "weights"),
        ({"weights": "uniform", "max_weight": 5}, "max_weight"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_by_name(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{option} must"):
        SecAgg(FedAvg(), **settings)


def test_words_are_short_where_weights_are_known_or_alike(caplog: Any) -> None:
    assert Settings(max_weight=None).parameters(50, DIM).modulus_bits == 32
    assert Settings(max_weight=0).parameters(50, DIM).modulus_bits == 10
    assert Settings(max_weight=500).parameters(50, DIM).modulus_bits == 10
    start(4)
    assert "max_weight=… (the most examples of a node)" in caplog.text


def test_two_nodes_get_one_sentence_with_the_setting_to_change() -> None:
    with pytest.raises(InvalidInput, match=r"chose 2 .* set num-supernodes .* min_available_nodes=3"):
        start(2)


def test_a_strategy_that_chooses_too_few_of_many_is_told_so() -> None:
    grid = LocalGrid(training_app(lambda p, a, r: a), 8)
    strategy = SecAgg(FedAvg(fraction_train=0.25, fraction_evaluate=0.0))
    with pytest.raises(InvalidInput, match=r"chose 2 .*: 8 are online, so raise fraction_train"):
        strategy.start(grid=grid, initial_arrays=model(w=np.zeros(DIM, np.float32)))


def test_the_documentation_shows_what_is_really_logged() -> None:
    text = (Path(__file__).parents[3] / "docs" / "flower.md").read_text(encoding="utf-8")
    shown = text.split("<!-- choice: 50 nodes, 4810 parameters -->")[1].split("<!-- end -->")[0]
    params = Settings(max_weight=None).parameters(50, 4810)
    assert [line.strip() for line in shown.strip().splitlines()] == described(params, Wish(), None)


@given(value=st.floats(1e-6, 1e6), largest=st.floats(1e-9, 1e9), clipped=st.sampled_from([None, 0, 7]))
def test_one_round_moves_a_clip_within_bounds(value: float, largest: float, clipped: int | None) -> None:
    clips = Clips(value)
    clips.of([100])
    clips.learn([largest], clipped)
    assert value / GROWTH * 0.999 <= clips.values[0] <= value * GROWTH * 1.001
    if clipped:
        assert clips.values[0] >= value


def test_quiet_rounds_bring_each_clip_to_a_multiple_of_its_arrays_mean() -> None:
    clips = Clips(100.0)
    clips.of([10_000, 10_000])
    for _ in range(10):
        clips.learn([0.02, 30.0], 0)
    assert clips.values == pytest.approx([headroom(10_000) * 0.02, headroom(10_000) * 30.0])


def test_small_arrays_get_more_headroom_because_their_mean_may_be_small_by_chance() -> None:
    assert headroom(1) > headroom(16) > headroom(10_000) > 8


def test_one_mean_near_zero_does_not_take_the_headroom_away() -> None:
    clips = Clips(1.0)
    clips.of([100])
    for largest in (0.05, 0.05, 0.05, 1e-6):
        clips.learn([largest], 0)
    assert clips.values[0] > 0.05 * 8 * 0.5


def test_of_several_arrays_those_without_headroom_left_grow_when_values_were_clipped() -> None:
    clips = Clips(1.0)
    clips.of([100] * 3)
    clips.learn([0.01, 0.9, 0.02], 5)
    assert clips.values == [1.0, GROWTH, 1.0]


def test_without_a_suspect_all_grow() -> None:
    clips = Clips(1.0)
    clips.of([100, 100])
    clips.learn([0.01, 0.02], 5)
    assert clips.values == [GROWTH, GROWTH]


@pytest.mark.parametrize("largest", [0.0, np.nan, np.inf])
def test_a_mean_that_says_nothing_changes_nothing(largest: float) -> None:
    clips = Clips(0.5)
    clips.of([100])
    clips.learn([largest], 0)
    assert clips.values == [0.5]


def test_fixed_clips_stay() -> None:
    clips = Clips(0.5, adaptive=False)
    clips.of([100])
    clips.learn([9.0], 3)
    assert clips.values == [0.5]


def test_another_model_begins_anew() -> None:
    clips = Clips(0.5)
    clips.of([100])
    clips.learn([9.0], 0)
    assert clips.of([100, 7]) == (0.5, 0.5)


def test_clipped_values_are_counted_and_after_a_few_rounds_none_are() -> None:
    """Updates of 1.0 against a first clip of 0.1: the rounds say so, the clip grows, the mean becomes right."""
    grid = LocalGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(1)}), 4)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), alpha=1.0, clip=0.1, max_weight=0)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(30, np.float32)), num_rounds=4)
    assert [record.clipped for record in strategy.history] == [120, 120, 0, 0]
    assert [round(record.clip, 6) for record in strategy.history][:3] == [0.1, 0.4, 1.6]
    np.testing.assert_allclose(values(result.arrays)["w"], 0.1 + 0.4 + 1 + 1, rtol=1e-5)


def test_short_words_end_as_close_as_long_ones_when_the_clip_adapts() -> None:
    """Updates halve from round to round; at the first clip twelve bits could not tell the last ones from rounding."""

    def converge(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"w": arrays["w"] + (np.float32(1) - arrays["w"]) * np.float32(0.5)}

    def error(adaptive: bool) -> float:
        grid = LocalGrid(training_app(converge), 6)
        strategy = SecAgg(
            FedAvg(fraction_evaluate=0.0), modulus_bits=12, max_weight=0, clip=2.0, adaptive_clip=adaptive
        )
        result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(300, np.float32)), num_rounds=9)
        return float(np.abs(values(result.arrays)["w"] - (1 - 2**-9)).mean())

    assert error(adaptive=True) < error(adaptive=False) / 2


def test_an_array_that_moves_by_whole_numbers_leaves_the_precision_of_the_others_alone() -> None:
    """As the statistics of a normalisation layer do beside its weights."""

    def step(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
        return {"variance": arrays["variance"] + np.float32(5), "weight": arrays["weight"] + np.float32(0.001)}

    grid = LocalGrid(training_app(step), 5)
    strategy = SecAgg(FedAvg(fraction_evaluate=0.0), modulus_bits=16, max_weight=0, clip=10.0)
    start = model(variance=np.ones(200, np.float32), weight=np.zeros(200, np.float32))
    for rounds in (8, 1):
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
    variance, weight = strategy._clips.values
    assert variance / weight == pytest.approx(5 / 0.001, rel=0.2)
    np.testing.assert_allclose(values(result.arrays)["weight"], 0.001, rtol=0.02)
    np.testing.assert_allclose(values(result.arrays)["variance"], 6, rtol=0.02)
