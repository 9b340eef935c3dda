"""Figure 4: patterns drawn for it count as the theory says, and the comparison with it can fail."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.common.work import Work
from experiments.fig4.config import Config
from experiments.fig4.plot import compare, plot
from experiments.fig4.run import _test, run
from experiments.theory.formulas import pairwise_singled_out_fraction
from experiments.theory.sampling import Drawing, sample, variance_of_a_round
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction
from sparsesecagg.protocol import Parameters, RoundOptions

THIRD = 1 / 3
SMALL = Config(
    alphas=(0.2, 0.5),
    cohorts=(12, 16),
    dropouts=(0.0, 0.3),
    rounds=8,
    dim=200,
    audit_alphas=(0.5,),
    audit_cohorts=(12,),
    audit_rounds=1,
    audit_dim=60,
)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(SMALL, 0, Work(tmp_path_factory.mktemp("work") / "fig4", {})).numbers


@pytest.fixture(scope="module")
def rounds() -> Any:
    """Many rounds of one setting of the published pattern."""
    drawing = Drawing(12, 400, 0.6)
    return drawing, sample(drawing, (0.3,), THIRD, 120, (1,))["0.3"]


@pytest.mark.parametrize(
    ("name", "theory"), [("singled_out", pairwise_singled_out_fraction), ("revealed", pairwise_revealed_fraction)]
)
def test_sampled_shares_are_the_computed_ones(rounds: Any, name: str, theory: Any) -> None:
    """At six standard errors of a ratio over 120 rounds."""
    found = rounds[1]
    values = np.array([one["values"] for one in found])
    counts = np.array([one[name] for one in found])
    expected = theory(0.6, 12, 0.3, THIRD)
    error = (counts - expected * values).std(ddof=1) / np.sqrt(len(found)) / values.mean()
    assert counts.mean() / values.mean() == pytest.approx(expected, abs=6 * error)


def test_the_variance_of_a_round_is_as_computed(rounds: Any) -> None:
    """A variance of 120 rounds has a relative error of √(2/119) = 0.13; five of these are allowed."""
    drawing, found = rounds
    measured = np.var([one["contributors"] for one in found], ddof=1)
    assert measured == pytest.approx(variance_of_a_round(drawing, 0.3, THIRD), rel=0.65)


def test_a_drawing_is_the_protocols() -> None:
    options = RoundOptions(pattern="pairwise", alpha=0.3)
    shape: Any = Parameters.create(12, 400, options).shape
    drawing = Drawing(12, 400, 0.3)
    assert drawing.edge_probability == shape.edge_probability
    assert drawing.probability == pytest.approx(shape.fraction())


def test_t_agrees_with_theorem_2(numbers: Any) -> None:
    assert numbers["test"]["holds"]
    assert numbers["test"]["error_rate"] == 1e-3


def test_a_t_that_is_off_is_noticed(numbers: Any) -> None:
    wrong = [dict(one) for one in numbers["contributors"]]
    wrong[0]["z"] += 10
    assert not _test(wrong)["holds"]


def test_attacked_rounds_read_much_of_pairs_all_of_it_right_and_nothing_of_slices(numbers: Any) -> None:
    pairs, slices = numbers["audits"]
    assert pairs["read_correctly"] == pairs["read"] > 0
    assert pairs["revealed"]["mean"] > 5 * pairs["singled_out"]
    assert slices["read"] == 0
    assert slices["fewest_in_a_sum"] > 1


def test_the_picture_and_the_comparison_need_the_result_only(numbers: Any, tmp_path: Path) -> None:
    result = {
        "name": "fig4",
        "configuration": json.loads(json.dumps(dataclasses.asdict(SMALL))),
        "numbers": json.loads(json.dumps(numbers)),
    }
    assert all(path.stat().st_size > 0 for path in plot(result, tmp_path))
    assert compare(result)[0].ours == "yes"
