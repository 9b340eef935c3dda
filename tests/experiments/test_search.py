"""Learning rates other than the paper's are searched for without the test set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.common.search import Search, Trial, chosen_rate, held_out, search
from experiments.common.work import Work
from experiments.fig3 import SCALES
from sparsesecagg.lab.learning.data import load_dataset


def test_what_is_held_out_is_no_test_sample_and_not_trained_on() -> None:
    digits = load_dataset("digits", None)
    split = held_out(digits, 0.25)
    assert len(split.train_y) + len(split.test_y) == len(digits.train_y)
    np.testing.assert_array_equal(np.concatenate([split.train_x, split.test_x]), digits.train_x)


def test_the_rate_that_does_best_on_what_is_held_out_is_chosen(tmp_path: Path) -> None:
    config = Search(above=0, cohorts=(5,), rates=(0.0001, 0.1), rounds=1)
    found = search(config, Trial("digits", "iid", None), 0, Work(tmp_path / "work", {}))
    assert [one["lr"] for one in found[0]["tried"]] == [0.0001, 0.1]
    assert found[0]["chosen"] == 0.1


def test_cohorts_between_take_the_rate_of_the_next_larger_one() -> None:
    found = [{"clients": 100, "chosen": 0.05}, {"clients": 25, "chosen": 0.02}]
    config = Search(above=20, cohorts=(25, 100))
    rates = [chosen_rate(config, found, clients) for clients in (20, 25, 50, 100, 200)]
    assert rates == [None, 0.02, 0.05, 0.05, 0.05]


def test_the_papers_scale_has_the_papers_rate() -> None:
    assert SCALES["paper"].training.search is None
    assert all(cohort.lr is None for cohort in SCALES["paper"].training.cohorts)
