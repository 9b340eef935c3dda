"""Figure 3: its learning rates are searched for without the test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.common.work import Work
from experiments.fig3.config import SCALES, Search
from experiments.fig3.search import chosen_rate, held_out, search
from sparsesecagg.learning.data import load_dataset


def test_what_is_held_out_is_no_test_sample_and_not_trained_on() -> None:
    digits = load_dataset("digits", None)
    split = held_out(digits, 0.25)
    assert len(split.train_y) + len(split.test_y) == len(digits.train_y)
    np.testing.assert_array_equal(np.concatenate([split.train_x, split.test_x]), digits.train_x)


def test_the_rate_that_does_best_on_what_is_held_out_is_chosen(tmp_path: Path) -> None:
    found = search(Search((5,), (0.0001, 0.1), rounds=1), "digits", 0, Work(tmp_path / "fig3", {}))
    assert [one["lr"] for one in found[0]["tried"]] == [0.0001, 0.1]
    assert found[0]["chosen"] == 0.1


def test_cohorts_between_take_the_rate_of_the_next_larger_one() -> None:
    found = [{"clients": 100, "chosen": 0.05}, {"clients": 25, "chosen": 0.02}]
    assert [chosen_rate(found, clients) for clients in (10, 25, 50, 100, 200)] == [0.02, 0.02, 0.05, 0.05, 0.05]


def test_the_papers_scale_has_the_papers_rate() -> None:
    assert SCALES["paper"].search is None
    assert all(cohort.lr is None for cohort in SCALES["paper"].training.cohorts)
