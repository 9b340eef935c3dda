"""Draw Figure 5 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.pictures import compare_training, draw_training

PAPER = {"upload": "17.9×", "clock": "1.8× (N=100)"}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw upload, accuracy and wall-clock time."""
    training = result["configuration"]["training"]
    title = f"{training['dataset']}, {training['partition']}, target {training['target']:.0%}"
    return draw_training(result, folder, title, PAPER)


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return the savings beside the paper's."""
    rows = compare_training(result, PAPER)
    rows += [
        Row(
            f"N={found['clients']}, {found['label']}: values revealed, a third colluding",
            "falls with N" if found["pattern"] == "pairwise" else "–",
            f"{found['revealed_fraction']:.2%} read by the audit",
            f"{found['singled_out_fraction']:.2%} as the paper counts: selected by one honest user only"
            + _extremes(found.get("rounds")),
        )
        for found in result["numbers"]["revealed"]
    ]
    return rows


def _extremes(rounds: Mapping[str, Any] | None) -> str:
    """Return the fewest and the most of single rounds, as Figure 5c has them."""
    if rounds is None:
        return ""
    counted, read = rounds["singled_out"], rounds["revealed"]
    return (
        f"; single rounds: {counted['min']:.2%} to {counted['max']:.2%} as the paper counts, "
        f"{read['min']:.0%} to {read['max']:.0%} revealed"
    )
