"""Draw accuracy at a fixed upload against guaranteed anonymity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save

WORDS = {8: "-", 12: "--", 16: ":", 32: "-."}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw one panel per budget."""
    points, training = result["numbers"]["points"], result["configuration"]["training"]
    budgets = list(points[0]["accuracy_at"])
    cohort = training["cohorts"][0]
    chance = f"2^{result['configuration']['failure_log2']:.0f}"
    figure, axes = panels(
        len(budgets),
        f"{training['dataset']}, N={cohort['clients']}, θ={training['dropout']:g}, a third colluding; "
        f"anonymity guaranteed but for {chance} per round",
        width=3.9,
    )
    for panel, budget in zip(axes, budgets, strict=True):
        _draw(panel, points, budget)
        panel.set_title(f"{int(budget) / 1000:,.0f} kB uploaded per user", fontsize=10)
        panel.set_xlabel("honest survivors every value hides among")
    axes[0].set_ylabel("test accuracy, %")
    axes[-1].legend(fontsize=8)
    return save(figure, folder, "tradeoff")


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return the best setting for each anonymity; the paper has no figure of this kind."""
    points = result["numbers"]["points"]
    budget = str(result["configuration"]["budget_bytes"])
    rows = []
    for anonymity in sorted({point["guaranteed_anonymity"] for point in points}):
        able = [
            point
            for point in points
            if point["guaranteed_anonymity"] == anonymity and point["accuracy_at"][budget] is not None
        ]
        if able:
            best = max(able, key=lambda point: point["accuracy_at"][budget])
            rows.append(
                Row(
                    f"best accuracy with at least {anonymity} honest {'users' if anonymity > 1 else 'user'} per value",
                    "–",
                    f"{best['accuracy_at'][budget]:.1%}",
                    f"{best['label']}, {int(budget) / 1000:,.0f} kB per user",
                )
            )
    return rows


def _draw(axes: Any, points: Sequence[Mapping[str, Any]], budget: str) -> None:
    for bits in (8, 12, 16):
        line = sorted(
            (point["guaranteed_anonymity"], 100 * point["accuracy_at"][budget])
            for point in points
            if (point["system"], point["modulus_bits"]) == ("committee", bits)
            and point["accuracy_at"][budget] is not None
        )
        if not line:
            continue
        axes.plot(
            *zip(*line, strict=True),
            WORDS[bits],
            marker="D",
            markersize=4,
            color=COLOURS["committee"],
            label=f"committee, {bits} bits",
        )
    for system, marker in (("pairwise", "o"), ("secagg", "s")):
        spots = [
            (point["guaranteed_anonymity"], 100 * point["accuracy_at"][budget])
            for point in points
            if point["system"] == system and point["accuracy_at"][budget] is not None
        ]
        if spots:
            axes.scatter(
                *zip(*spots, strict=True), marker=marker, color=COLOURS[system], label=f"{system}, 32 bits", zorder=3
            )
