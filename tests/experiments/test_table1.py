"""Table 1: what is weighed are real messages, and the columns stand to each other as they must."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.common.work import Work
from experiments.table1.config import PAPER_MB, Config
from experiments.table1.plot import compare, plot
from experiments.table1.run import formula, run, weigh_flower

COMMITTED = Path(__file__).parents[2] / "results" / "table1.json"
DIM = 4000
SMALL = Config(cohorts=(20,), rounds=2, dim=DIM, flower=False)
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


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_committees_send_their_share_in_short_words(upload: Any, bits: int) -> None:
    assert 0 < upload[f"committee-{bits}"] - DIM // 2 * bits // 8 < HEADER + 8 * bits


def test_the_bitmap_column_is_the_papers_formula(numbers: Any) -> None:
    """Within six standard deviations of the mean of 28 messages: 4 bytes times √(p(1−p)d/28) ≈ 3.5 values.

    Nothing but values and bitmap: the paper counts neither heads nor tags.
    """
    mean = next(row["upload_bytes"]["mean"] for row in numbers["rows"] if row["system"] == "bitmap")
    assert numbers["formula"] == [formula(SMALL, 20, DIM)]
    assert -6 * 14 < mean - numbers["formula"][0]["bitmap_mean"] < 6 * 14


def test_our_coding_is_smaller_than_the_bitmap_and_both_than_secagg(upload: Any) -> None:
    assert upload["pairwise"] < upload["bitmap"] < upload["secagg"]


def test_flower_sends_eight_bytes_per_parameter() -> None:
    pytest.importorskip("flwr")
    found = weigh_flower(6, 50_000, 0)
    assert found["exact"]
    assert 8 * 50_000 <= found["upload_bytes"]["max"] <= found["sent_bytes"]


def test_the_picture_and_the_comparison_need_the_result_only(numbers: Any, tmp_path: Path) -> None:
    result = {
        "name": "table1",
        "configuration": json.loads(json.dumps(dataclasses.asdict(SMALL))),
        "numbers": json.loads(json.dumps(numbers)),
    }
    assert all(path.stat().st_size > 0 for path in plot(result, tmp_path))
    rows = compare(result)
    assert {row.paper for row in rows} == {"–"}  # The paper has no cohort of twenty.
    assert rows[-1].ours == "left out"


@pytest.fixture(scope="module")
def committed() -> Any:
    """The committed results: uploads by system and N."""
    rows = json.loads(COMMITTED.read_text(encoding="utf-8"))["numbers"]["rows"]
    return {(row["system"], row["clients"]): row["upload_bytes"] for row in rows}


@pytest.mark.parametrize("clients", [25, 50, 75, 100])
def test_secagg_as_committed_is_within_two_percent_of_the_paper(committed: Any, clients: int) -> None:
    assert committed["secagg", clients]["max"] == pytest.approx(1e6 * PAPER_MB["secagg"][clients], rel=0.02)


@pytest.mark.parametrize("clients", [50, 75, 100])
def test_a_users_mean_with_the_bitmap_as_committed_is_within_two_percent_of_the_paper(
    committed: Any, clients: int
) -> None:
    """The printed 0.08 MB for N = 25 has two digits only, and is less than the paper's own formula gives."""
    assert committed["bitmap", clients]["mean"] == pytest.approx(1e6 * PAPER_MB["bitmap"][clients], rel=0.02)


@pytest.mark.parametrize("clients", [25, 50, 75, 100])
def test_our_columns_as_committed_are_smaller(committed: Any, clients: int) -> None:
    paper = committed["bitmap", clients]["max"]
    assert committed["pairwise", clients]["max"] < paper
    assert committed["committee-8", clients]["max"] < paper
