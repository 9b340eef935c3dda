"""Draw accuracy at a fixed upload against α, and say what each system hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, MARKERS, panels, save


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw one panel per budget."""
    points, training = result["numbers"]["points"], result["configuration"]["training"]
    budgets = list(points[0]["accuracy_at"])
    alphas = sorted({point["alpha"] for point in points})
    clients = training["cohorts"][0]["clients"]
    heading = f"{training['dataset']}, N={clients}, θ={training['dropout']:g}"
    figure, axes = panels(len(budgets), heading, width=3.9)
    for panel, budget in zip(axes, budgets, strict=True):
        for system, bits in dict.fromkeys((point["system"], point["modulus_bits"]) for point in points):
            line = sorted(
                (point["alpha"], 100 * point["accuracy_at"][budget])
                for point in points
                if (point["system"], point["modulus_bits"]) == (system, bits)
                and point["accuracy_at"][budget] is not None
            )
            style = "-" if bits == 32 else ":"
            look = {"marker": MARKERS[system], "color": COLOURS[system], "markersize": 4}
            panel.plot(*zip(*line, strict=True), style, label=f"{system}, {bits} bits", **look) if line else None
        panel.set_xscale("log")
        panel.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
        panel.minorticks_off()
        panel.set_title(f"{int(budget) / 1000:,.0f} kB uploaded per user", fontsize=10)
        panel.set_xlabel("α")
    axes[0].set_ylabel("test accuracy, %")
    axes[-1].legend(fontsize=8)
    return save(figure, folder, result["name"])


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return every setting's accuracy with what it hides; the paper has no figure of this kind."""
    budget = result["configuration"]["budget_bytes"]
    return [
        Row(
            f"{point['label']}: accuracy after {budget / 1000:,.0f} kB per user",
            "–",
            "–" if point["accuracy_at"][str(budget)] is None else f"{point['accuracy_at'][str(budget)]:.1%}",
            f"honest users in every sum, a third colluding: {point['in_every_sum']}",
        )
        for point in result["numbers"]["points"]
    ]
