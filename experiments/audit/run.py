"""Audit the paper's default settings and ours, and write results/audit.json.

    .venv/bin/python -m experiments.audit.run

Takes about ten minutes on two processors. Publish what it measured with `python -m experiments.audit.publish`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sparsesecagg import __version__
from sparsesecagg.privacy.audit import AuditSettings, run_audit
from sparsesecagg.protocol import RoundParameters

RESULTS = Path(__file__).parents[2] / "results" / "audit.json"
CLIENTS, DIM, ROUNDS, SEED = 100, 4000, 30, 0
THIRD = 1 / 3
# Pattern, α, θ, γ: DESIGN §3's table, then the repaired pattern and plain SecAgg at the same settings.
SETTINGS = (
    ("pairwise", 0.1, 0.0, 0.0),
    ("pairwise", 0.1, 0.3, 0.0),
    ("pairwise", 0.1, 0.3, THIRD),
    ("pairwise", 0.2, 0.3, THIRD),
    ("committee", 0.1, 0.3, 0.0),
    ("committee", 0.1, 0.3, THIRD),
    ("committee", 0.2, 0.3, THIRD),
    ("full", 1.0, 0.3, 0.0),
    ("full", 1.0, 0.3, THIRD),
)


def main() -> None:
    """Run all audits, one after the other."""
    audits = []
    for pattern, alpha, dropout, colluding in SETTINGS:
        params = RoundParameters.create(clients=CLIENTS, dim=DIM, pattern=pattern, alpha=alpha, dropout=dropout)
        found = run_audit(AuditSettings(params, colluding, ROUNDS, SEED), workers=os.cpu_count() or 1).as_json()
        print(f"{pattern} α={alpha:g} θ={dropout:g} γ={colluding:.3g}: {found['revealed_fraction']:.4%} revealed")
        audits.append(found)
    result = {
        "command": "python -m experiments.audit.run",
        "version": __version__,
        "commit": _commit(),
        "audits": audits,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS.parents[1]).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
