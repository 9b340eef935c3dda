"""Without an alpha `SecAgg` asks the planner, and says once what it chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from engines.local_grid import LocalGrid, model, training_app, values
from sparsesecagg.engines.flower.choice import Wish, anonymity, choose, described, round_bytes
from sparsesecagg.engines.flower.settings import Settings
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
    assert Settings(max_weight=0).parameters(50, DIM).modulus_bits == 12
    assert Settings(max_weight=500).parameters(50, DIM).modulus_bits == 12
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
