"""Audit the paper's default settings and ours, and write results/audit.json.

    .venv/bin/python -m experiments.audit.run

Takes a few minutes. Publish what it measured with `python -m experiments.audit.publish`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments.common.results import commit
from sparsesecagg import __version__
from sparsesecagg.lab.audit.audit import run_audit
from sparsesecagg.lab.audit.audit_report import AuditSettings
from sparsesecagg.protocol import RoundOptions, Stage

RESULTS = Path(__file__).parents[2] / "results" / "audit.json"
CLIENTS, DIM, SEED = 100, 1000, 0
THIRD = 1 / 3
SHORT, LONGER = {"rounds": 2}, {"rounds": 10}
MALICIOUS = {**SHORT, "server": "malicious"}
# Pattern, α, θ, γ and more: DESIGN §3's table, then slices and plain SecAgg at the same settings.
SETTINGS: tuple[tuple[str, float, float, float, dict[str, Any]], ...] = (
    ("pairwise", 0.1, 0.0, 0.0, SHORT),
    ("pairwise", 0.1, 0.3, 0.0, LONGER),
    ("pairwise", 0.1, 0.3, THIRD, LONGER),
    ("pairwise", 0.2, 0.3, THIRD, LONGER),
    ("sliced", 0.1, 0.3, 0.0, SHORT),
    ("sliced", 0.1, 0.3, THIRD, SHORT),
    ("sliced", 0.01, 0.3, THIRD, SHORT),
    ("sliced", 0.1, 0.3, THIRD, {**SHORT, "drop_at": Stage.SHARE_KEYS}),
    ("sliced", 0.1, 0.1, 0.1, MALICIOUS),
    ("sliced", 0.1, 0.0, 0.1, {**MALICIOUS, "threshold": 82}),
    ("sliced", 0.1, 0.0, THIRD, {**MALICIOUS, "threshold": 54}),
    ("full", 1.0, 0.3, 0.0, SHORT),
    ("full", 1.0, 0.3, THIRD, SHORT),
)


def main() -> None:
    """Run all audits, one after the other, and save what is there after each."""
    audits = []
    for setting in SETTINGS:
        audits.append(measure(*setting))
        result = {
            "command": "python -m experiments.audit.run",
            "version": __version__,
            "commit": commit(),
            "audits": audits,
        }
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(pattern: str, alpha: float, dropout: float, colluding: float, options: dict[str, Any]) -> dict[str, Any]:
    """Run one audit."""
    asked = {name: value for name, value in options.items() if name != "threshold"}
    round_options = RoundOptions(pattern, alpha, threshold=options.get("threshold"), dropout=dropout)
    settings = AuditSettings(CLIENTS, DIM, round_options, colluding, seed=SEED, **asked)
    found = run_audit(settings, workers=os.cpu_count() or 1).as_json()
    print(f"{pattern} α={alpha:g} θ={dropout:g} γ={colluding:.3g} {found['server']}: ", end="")
    print(f"{found['revealed_fraction']:.4%} revealed, {found['honest_component']['min']} at least", flush=True)
    return found


if __name__ == "__main__":
    main()
