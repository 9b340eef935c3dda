"""Malicious users in `train`: what they send goes through the real protocol, and rules over groups stand some of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.commands import run, run_json
from sparsesecagg.lab.learning.malicious import ATTACKS, Malicious

SMALL = "--dataset digits --model softmax --clients 27 --group-size 3 --rounds 6 --alpha 1 --dropout 0 --seed 3".split()


def accuracy(capsys: Any, folder: Path, *more: str) -> float:
    found = run_json(capsys, "train", *SMALL, "--out", str(folder), "--workers", "1", *more)
    return float(found["accuracy"])


@pytest.mark.slow
def test_one_range_attacker_ruins_the_mean_and_not_centred_clipping(capsys: Any, tmp_path: Path) -> None:
    clean = accuracy(capsys, tmp_path / "clean")
    attacked = ("--malicious", "0.03", "--attack", "range")
    assert accuracy(capsys, tmp_path / "mean", *attacked) < clean - 0.2
    for rule in ("centred-clipping", "median"):
        assert accuracy(capsys, tmp_path / rule, *attacked, "--combine", rule) > clean - 0.1


HONEST = np.random.default_rng(1).normal(0.1, 0.05, (9, 40)).astype(np.float32)
CLIP = np.full(40, 0.5, np.float32)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_replace_the_updates_of_malicious_users_only(attack: str) -> None:
    updates = dict(enumerate(HONEST))
    found = Malicious(frozenset({2, 5}), attack).replace(updates, 3, CLIP)
    for user, update in updates.items():
        same = np.array_equal(found[user], update)
        assert same == (user not in {2, 5} or attack == "label-flip")
    if attack in ("sign-flip", "ipm"):
        assert (np.abs(found[2]) <= 1.001 * CLIP).all(), "within what one user may send"
    if attack == "range":
        assert (found[2] == -np.sign(found[0].mean()) * np.float32(2.7) * CLIP).all()


def test_an_attacker_who_knows_the_rule_puts_its_group_where_honest_groups_lie() -> None:
    found = Malicious(frozenset({0}), "reverse").replace(dict(enumerate(HONEST)), 3, CLIP)
    mean = HONEST[1:].mean(axis=0)
    moved = (found[0] - mean) / 3  # What becomes of the mean of its group.
    assert np.linalg.norm(moved) == pytest.approx(np.sqrt(HONEST[1:].var(axis=0).sum() / 3), rel=1e-3)
    assert moved @ mean < 0


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("--malicious 0.5", "--malicious must be in [0, 0.5), got 0.5"),
        ("--malicious 0.1 --attack shout", "--attack must be one of range, reverse, drift, sign-flip"),
        ("--combine sum", "--combine must be one of mean, centred-clipping, median"),
        ("--combine median --group-size 20", "--combine compares groups, and there are fewer than three"),
        ("--malicious 0.1 --aggregator plain", "--malicious must not be given with plain"),
        ("--malicious 0.1 --dp-epsilon 8", "--malicious must not be given with --sample or --dp-epsilon"),
    ],
)
def test_what_can_not_be_simulated_is_one_sentence(capsys: Any, tmp_path: Path, given: str, problem: str) -> None:
    code, out, err = run(capsys, "train", *SMALL, "--out", str(tmp_path / "run"), *given.split(), "--json")
    assert (code, out) == (2, "")
    assert problem in err
