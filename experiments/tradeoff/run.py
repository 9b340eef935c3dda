"""Train every system until its bytes are used up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.common.experiment import Findings
from experiments.common.training import ADVERSARIES, round_parameters, train_all
from experiments.common.work import Work
from experiments.tradeoff.config import Config
from sparsesecagg.lab.audit.guarantee import guaranteed_anonymity


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train, then read the accuracy at every budget."""
    found = train_all(config.training, seed, work)
    points = [_point(config, one) for one in found.numbers["runs"]]
    return Findings(found.numbers | {"points": points}, found.timings, found.complete)


def _point(config: Config, run: Mapping[str, Any]) -> dict[str, Any]:
    budgets = (*config.marks_bytes, config.budget_bytes)
    return {
        "label": run["label"],
        "system": run["system"],
        "alpha": run["alpha"],
        "modulus_bits": run["modulus_bits"],
        "guaranteed_anonymity": guaranteed_anonymity(
            round_parameters(run, config.training.dropout),
            dropout=config.training.dropout,
            colluding=ADVERSARIES,
            failure_log2=config.failure_log2,
        ),
        "mean_anonymity": run["anonymity"]["honest_contributors"],
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
