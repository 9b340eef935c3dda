"""Table 1: what is weighed are real messages, and the columns stand to each other as they must."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.common.work import Work
from experiments.table1.config import Config
from experiments.table1.plot import compare, plot
from experiments.table1.run import formula, run

DIM = 4000
SMALL = Config(cohorts=(20,), rounds=2, dim=DIM)
HEADER = 60 + 8 * 19
"""More than an UPLOAD has beside words and locations: its head, and a tag for everybody else."""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(SMALL, 0, Work(tmp_path_factory.mktemp("work") / "table1", {})).numbers


@pytest.fixture(scope="module")
def upload(numbers: Any) -> Any:
    """The largest upload by system."""
    return {row["system"]: row["upload_bytes"]["max"] for row in numbers["rows"]}


def test_every_round_was_exact_and_everybody_left_uploaded(numbers: Any) -> None:
    assert all(row["exact"] for row in numbers["rows"])
    # Six of twenty drop out in each of two rounds.
    assert all(row["upload_bytes"]["messages"] == 2 * 14 for row in numbers["rows"])


def test_secagg_sends_four_bytes_per_parameter(upload: Any) -> None:
    assert 0 < upload["secagg"] - 4 * DIM < HEADER


@pytest.mark.parametrize("bits", [32, 16])
def test_slices_are_a_tenth_in_words_of_so_many_bits(upload: Any, bits: int) -> None:
    assert 0 < upload[f"sliced-{bits}"] - DIM // 10 * bits // 8 < HEADER + bits


def test_the_bitmap_column_is_the_papers_formula(numbers: Any) -> None:
    """Within six standard deviations of the mean of 28 messages: 4 bytes times √(p(1−p)d/28) ≈ 3.5 values.

    Nothing but values and bitmap: the paper counts neither heads nor tags.
    """
    mean = next(row["upload_bytes"]["mean"] for row in numbers["rows"] if row["system"] == "bitmap")
    assert numbers["formula"] == [formula(SMALL, 20, DIM)]
    assert -6 * 14 < mean - numbers["formula"][0]["bitmap_mean"] < 6 * 14


def test_our_coding_is_smaller_than_the_bitmap_and_both_than_secagg(upload: Any) -> None:
    assert upload["pairwise"] < upload["bitmap"] < upload["secagg"]


def test_the_picture_and_the_comparison_need_the_result_only(numbers: Any, tmp_path: Path) -> None:
    result = {
        "name": "table1",
        "configuration": json.loads(json.dumps(dataclasses.asdict(SMALL))),
        "numbers": json.loads(json.dumps(numbers)),
    }
    assert all(path.stat().st_size > 0 for path in plot(result, tmp_path))
    assert {row.paper for row in compare(result)} == {"–"}  # The paper has no cohort of twenty.
