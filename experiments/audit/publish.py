"""Draw docs/img/audit*.png and write the table of docs/privacy.md, from results/audit.json alone.

.venv/bin/python -m experiments.audit.publish
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.audit.picture import draw_histograms

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "audit.json"
DOCUMENT = ROOT / "docs" / "privacy.md"
IMAGES = ROOT / "docs" / "img"
BEGIN, END = "<!-- table: results/audit.json -->\n", "<!-- end -->\n"
HEADINGS = (
    "pattern",
    "α",
    "θ",
    "γ",
    "server",
    "honest users per coordinate",
    "singled out, as the paper counts",
    "**read in the clear**",
    "masked by one other",
    "such pairs found",
    "honest users in one sum, mean",
    "least",
    "promised",
)


def main() -> None:
    """Publish the committed results."""
    audits = json.loads(RESULTS.read_text(encoding="utf-8"))["audits"]
    document = DOCUMENT.read_text(encoding="utf-8")
    before, after = document.split(BEGIN)[0], document.split(END)[1]
    DOCUMENT.write_text(before + BEGIN + table(audits) + END + after, encoding="utf-8")
    IMAGES.mkdir(exist_ok=True)
    for name, colluding in (("audit.png", 0.0), ("audit-colluding.png", 1 / 3)):
        shown = [pick(audits, pattern, colluding) for pattern in ("pairwise", "sliced", "full")]
        title = f"100 users, {shown[0]['colluders'] or 'none'} of them colluding, α = 0.1, θ = 0.3, semi-honest server"
        draw_histograms(shown, title, IMAGES / name)


def pick(audits: Sequence[Mapping[str, Any]], pattern: str, colluding: float) -> Mapping[str, Any]:
    """Return the pattern's audit with dropouts and a semi-honest server, at the first α."""
    wanted = (pattern, colluding, "semi-honest", "UPLOAD")
    fitting = [
        audit
        for audit in audits
        if (audit["pattern"], audit["colluding"], audit["server"], audit["drop_at"]) == wanted and audit["dropout"] > 0
    ]
    return fitting[0]


def table(audits: Sequence[Mapping[str, Any]]) -> str:
    """Return the audits as a Markdown table."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(row(audit) for audit in audits)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def row(audit: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one audit's cells."""
    component = audit["honest_component"]
    return (
        f"`{audit['pattern']}`",
        f"{audit['alpha']:.2g}",
        f"{audit['dropout']:.2g}",
        "1/3" if 0.3 < audit["colluding"] < 0.4 else f"{audit['colluding']:g}",
        server(audit),
        f"{audit['contributors_mean']:.1f}",
        percent(audit["singled_out_fraction"]),
        f"**{percent(audit['revealed_fraction'])}**",
        percent(component["histogram"].get("2", 0.0)),
        score(audit["pairs_found"]),
        f"{component['mean']:.1f}",
        str(component["min"]),
        str(audit["promised"] or "–"),
    )


def server(audit: Mapping[str, Any]) -> str:
    """Return what the server does, the threshold, and what else is unusual about the row."""
    notes = [audit["server"], f"t = {audit['threshold']}"]
    if audit["drop_at"] == "SHARE_KEYS":
        notes.append("whole rounds missed")
    return ", ".join(notes)


def score(claims: Mapping[str, int]) -> str:
    """Return how many claims were made and how many of them are right."""
    if not claims["count"]:
        return "–"
    right = "all" if claims["correct"] == claims["count"] else f"{claims['correct']:,}"
    return f"{claims['count']:,}, {right} right"


def percent(fraction: float) -> str:
    """Return two or three digits, and a plain zero."""
    if fraction == 0:
        return "0"
    return f"{100 * fraction:.1f} %" if fraction >= 0.01 else f"{100 * fraction:.2g} %"


if __name__ == "__main__":
    main()
