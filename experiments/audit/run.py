"""Audit the paper's default settings and ours, and write results/audit.json.

    .venv/bin/python -m experiments.audit.run

Takes about five minutes on two processors. Publish what it measured with `python -m experiments.audit.publish`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments.common.results import commit
from sparsesecagg import __version__
from sparsesecagg.lab.audit.audit import AuditSettings, run_audit
from sparsesecagg.protocol import Parameters, Stage

RESULTS = Path(__file__).parents[2] / "results" / "audit.json"
CLIENTS, DIM, SEED = 100, 1000, 0
THIRD = 1 / 3
ONE_GROUP, LONGER = {"runs": 2, "rounds": 3}, {"runs": 2, "rounds": 8}
"""Every round of `pairwise` and `full` has all users in one group: rounds are as good as runs."""
DRAWS, MANY_DRAWS = {"runs": 4, "rounds": 4}, {"runs": 10, "rounds": 4}
"""Committees are drawn once per run, so runs are what averages over them."""
# Pattern, α, θ, γ and more: DESIGN §3's table, then the repaired pattern and plain SecAgg at the same settings.
SETTINGS: tuple[tuple[str, float | None, float, float, dict[str, Any]], ...] = (
    ("pairwise", 0.1, 0.0, 0.0, ONE_GROUP),
    ("pairwise", 0.1, 0.3, 0.0, LONGER),
    ("pairwise", 0.1, 0.3, THIRD, LONGER),
    ("pairwise", 0.2, 0.3, THIRD, ONE_GROUP),
    ("committee", 0.1, 0.3, 0.0, DRAWS),
    ("committee", 0.1, 0.3, THIRD, MANY_DRAWS),
    ("committee", 0.1, 0.3, THIRD, {**DRAWS, "drop_at": Stage.SHARE_KEYS}),
    ("committee", 0.2, 0.3, THIRD, DRAWS),
    ("committee", 0.1, 0.3, THIRD, {**DRAWS, "server": "lying"}),
    ("committee", 0.2, 0.1, 0.1, {**DRAWS, "server": "lying"}),
    ("committee", 0.2, 0.1, 0.1, {**DRAWS, "server": "lying", "confirm": True}),
    ("full", None, 0.3, 0.0, ONE_GROUP),
    ("full", None, 0.3, THIRD, ONE_GROUP),
)


def main() -> None:
    """Run all audits, one after the other."""
    result = {
        "command": "python -m experiments.audit.run",
        "version": __version__,
        "commit": commit(),
        "audits": [measure(*setting) for setting in SETTINGS],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(
    pattern: str, alpha: float | None, dropout: float, colluding: float, options: dict[str, Any]
) -> dict[str, Any]:
    """Run one audit."""
    asked = {name: value for name, value in options.items() if name != "confirm"}
    params = Parameters.create(
        clients=CLIENTS, dim=DIM, pattern=pattern, alpha=alpha, dropout=dropout, confirm=options.get("confirm")
    )
    found = run_audit(AuditSettings(params, colluding, seed=SEED, **asked), workers=os.cpu_count() or 1).as_json()
    print(f"{pattern} α={found['alpha']:g} θ={dropout:g} γ={colluding:.3g} {found['server']}: ", end="")
    print(f"{found['revealed_fraction']:.4%} revealed", flush=True)
    return found


if __name__ == "__main__":
    main()
