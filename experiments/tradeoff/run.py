"""Train every system until its bytes are used up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.training import train_all
from experiments.common.work import Work
from experiments.tradeoff.config import Config


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train, then read the accuracy at every budget."""
    return train_all(config.training, seed, work, lambda runs: {"points": [_point(config, one) for one in runs]})


def _point(config: Config, run: Mapping[str, Any]) -> dict[str, Any]:
    budgets = (*config.marks_bytes, config.budget_bytes)
    return {
        **{name: run[name] for name in ("label", "system", "alpha", "modulus_bits")},
        **{name: run["anonymity"][name] for name in ("in_every_sum", "honest_contributors", "revealed_fraction")},
        "accuracy_at": {str(budget): accuracy_at(run, budget) for budget in budgets},
    }


def accuracy_at(run: Mapping[str, Any], budget: int) -> float | None:
    """Return the accuracy after the last round that the budget (bytes per user) pays for; None if it pays for none."""
    spent, accuracy = 0.0, None
    for size, value in zip(run["upload_bytes"], run["accuracy"], strict=True):
        spent += size
        # Half a per cent over, because rounds were planned without the few bytes of a message's head.
        if spent > 1.005 * budget:
            break
        accuracy = value
    return accuracy
