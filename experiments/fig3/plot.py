"""Draw Figure 3 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.pictures import compare_training, draw_training

PAPER = {"upload": "7.8×", "clock": "1.13×"}


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw upload, accuracy and wall-clock time."""
    training = result["configuration"]["training"]
    title = f"{training['dataset']}, {training['partition']}, target {training['target']:.0%}"
    return draw_training(result, folder, title, PAPER)


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return the savings beside the paper's."""
    return compare_training(result, PAPER)
