"""Draw docs/img/many-rounds.* and write the tables of docs/privacy.md, from results/many_rounds.json alone.

.venv/bin/python -m experiments.many_rounds.publish
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.plotting import panels, save

ROOT = Path(__file__).parents[2]
RESULTS, DOCUMENT, IMAGES = ROOT / "results" / "many_rounds.json", ROOT / "docs" / "privacy.md", ROOT / "docs" / "img"
BEGIN, END = "<!-- table: results/many_rounds.json -->\n", "<!-- end of many rounds -->\n"
WEIGHTS_BEGIN, WEIGHTS_END = "<!-- weights: results/many_rounds.json -->\n", "<!-- end of weights -->\n"
NAMES = {
    "fresh": "ten groups, drawn anew in every round",
    "kept": "ten groups that stay",
    "secagg": "SecAgg (`full`)",
    "one": "one group, α = 0.1",
}
_SHADES = dict(zip(NAMES, ("#c0392b", "#1f6fb2", "0.25", "#2e8b57"), strict=True))
SHOWN = (50, 200, 1000)


def main() -> None:
    """Publish the committed results."""
    numbers = json.loads(RESULTS.read_text(encoding="utf-8"))["numbers"]
    DOCUMENT.write_text(published(DOCUMENT.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    draw(numbers)


def published(document: str, numbers: Mapping[str, Any]) -> str:
    """Return the document with both tables replaced."""
    for begin, end, text in (
        (BEGIN, END, table(numbers)),
        (WEIGHTS_BEGIN, WEIGHTS_END, weights_table(numbers)),
    ):
        document = document.split(begin, 1)[0] + begin + text + end + document.split(end, 1)[1]
    return document


def table(numbers: Mapping[str, Any]) -> str:
    """Return the correlations after some rounds as a Markdown table."""
    places = [numbers["rounds"].index(rounds) for rounds in SHOWN]
    lines = [
        ("θ", "sums", *(f"after {rounds:,} rounds" for rounds in SHOWN)),
        ("---",) * (2 + len(SHOWN)),
        *(
            (
                f"{line['dropout']:g}",
                NAMES[line["way"]],
                *(f"{line['correlation'][place]:.2f}" for place in places),
            )
            for line in sorted(
                numbers["correlation"], key=lambda line: (line["dropout"], list(NAMES).index(line["way"]))
            )
        ),
    ]
    return _markdown(lines)


def weights_table(numbers: Mapping[str, Any]) -> str:
    """Return after how many rounds weights are solved for as a Markdown table."""
    lines = [
        ("users of the group", "θ", "rounds until all its weights are known: median", "min", "max"),
        ("---",) * 5,
        *(
            (
                str(line["members"]),
                f"{line['dropout']:g}",
                f"{line['rounds']['median']:.0f}",
                str(line["rounds"]["min"]),
                str(line["rounds"]["max"]),
            )
            for line in numbers["weights"]
        ),
    ]
    return _markdown(lines)


def draw(numbers: Mapping[str, Any]) -> None:
    """Draw the correlations over the rounds, one panel per dropout rate."""
    dropouts = sorted({line["dropout"] for line in numbers["correlation"]})
    figure, axes = panels(len(dropouts), "What the sums of many rounds tell about a user (100 users)", 3.6)
    for panel, dropout in zip(axes, dropouts, strict=True):
        for line in numbers["correlation"]:
            if line["dropout"] == dropout:
                name = NAMES[line["way"]].replace("`", "")
                panel.plot(
                    numbers["rounds"], line["correlation"], "o-", markersize=3, color=_SHADES[line["way"]], label=name
                )
        panel.set_xscale("log")
        panel.set(xlabel="rounds", ylim=(-0.03, 1.0), title=f"θ = {dropout:g}")
    axes[0].set_ylabel("correlation with a user's deviation")
    axes[0].legend(fontsize=8)
    save(figure, IMAGES, "many-rounds")


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
