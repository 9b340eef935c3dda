"""Figure 2: overlaps are counted as the paper counts them, and training goes on where it was cut off."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.common.work import OutOfTime, Work
from experiments.fig2.config import Config
from experiments.fig2.plot import compare, plot
from experiments.fig2.run import overlap, run

SMALL = Config(
    dataset="digits", model="softmax", samples=300, clients=5, rounds=2, partitions=("iid",), kinds=("top", "random")
)


def test_overlap_is_the_share_of_locations_that_both_chose() -> None:
    chosen = np.zeros((3, 10), np.bool_)
    chosen[0, [0, 1, 2, 3]] = chosen[1, [2, 3, 4, 5]] = chosen[2, [0, 1, 2, 3]] = True
    # Pairs: 2 of 4, 4 of 4, 2 of 4.
    assert overlap(chosen) == pytest.approx({"mean": 2 / 3, "deviation": np.std([0.5, 1.0, 0.5])})


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(SMALL, 0, Work(tmp_path_factory.mktemp("work") / "fig2", {})).numbers


def of_kind(numbers: Any, kind: Any) -> Any:
    (found,) = [one for one in numbers["runs"] if one["kind"] == kind]
    return found["rounds"]


def test_random_locations_overlap_by_k_over_d(numbers: Any) -> None:
    """Ten pairs of K = 65 among d = 650: six standard errors are 0.07."""
    for one in of_kind(numbers, "random"):
        assert one["overlap"]["mean"] == pytest.approx(SMALL.fraction, abs=0.07)


def test_large_locations_overlap_more_than_random_ones_at_first(numbers: Any) -> None:
    top, random = of_kind(numbers, "top")[0]["overlap"], of_kind(numbers, "random")[0]["overlap"]
    assert top["mean"] > random["mean"] + random["deviation"]


def test_each_way_of_choosing_trains_a_model_of_its_own(numbers: Any) -> None:
    assert of_kind(numbers, "top")[0]["accuracy"] != of_kind(numbers, "random")[0]["accuracy"]


def test_a_run_that_was_cut_off_goes_on_to_the_same_numbers(
    numbers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(tmp_path / "fig2", {})
    once = [None, OutOfTime()]

    def check_time() -> None:
        if once and (problem := once.pop(0)):
            raise problem

    with monkeypatch.context() as patch:
        patch.setattr(work, "check_time", check_time)
        cut = run(SMALL, 0, work)
    assert not cut.complete
    assert len(cut.numbers["runs"][0]["rounds"]) == 1
    whole = run(SMALL, 0, work)
    assert whole.complete
    assert whole.numbers == numbers


def test_the_picture_and_the_comparison_need_the_result_only(numbers: Any, tmp_path: Path) -> None:
    result = {
        "name": "fig2",
        "configuration": json.loads(json.dumps(dataclasses.asdict(SMALL))),
        "numbers": json.loads(json.dumps(numbers)),
    }
    assert all(path.stat().st_size > 0 for path in plot(result, tmp_path))
    assert [row.paper for row in compare(result)] == ["30 % at first, falling to 10 %", "10 %"]
