"""Draw what each hypothesis predicts beside what the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, save
from experiments.hypotheses.config import HYPOTHESES, PAPER_CLOCKS, PAPER_UPLOADS


def predicted(
    result: Mapping[str, Any], hypothesis: str, figure: str, cohort: Callable[..., int] = max
) -> float | None:
    """Return the median saving that a hypothesis gives in a figure, with most users unless `cohort` is `min`."""
    return _median([one["saving"] for one in _entries(result, hypothesis, figure, cohort)])


def needed_speedup(result: Mapping[str, Any], hypothesis: str, figure: str) -> float | None:
    """Return τ, by which one round must be faster for the paper's wall clock to come out: its speed-up over R."""
    ratios = [one["ratio"] for one in _entries(result, hypothesis, figure, max)]
    return _median([ratio and PAPER_CLOCKS[figure] / ratio for ratio in ratios])


def _entries(
    result: Mapping[str, Any], hypothesis: str, figure: str, cohort: Callable[..., int]
) -> list[Mapping[str, Any]]:
    wanted = hypothesis, figure
    found = [one for one in result["numbers"]["table"] if (one["hypothesis"], one["figure"]) == wanted]
    return [one for one in found if one["clients"] == cohort(other["clients"] for other in found)]


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw one panel per figure."""
    figures = list(dict.fromkeys(one["figure"] for one in result["numbers"]["table"]))
    figure, axes = panels(len(figures), "upload less than SecAgg's until the target; line: the paper", 4.0)
    names = [one.name for one in HYPOTHESES]
    for panel, name in zip(axes, figures, strict=True):
        panel.bar(names, [predicted(result, one, name) or 0 for one in names], color=COLOURS["pairwise"], alpha=0.7)
        panel.axhline(PAPER_UPLOADS[name], color=COLOURS["theory"], linewidth=1.2)
        tried = [one for one in result["numbers"]["table"] if one["figure"] == name]
        panel.set_title(f"{name}, N = {max(one['clients'] for one in tried)}", fontsize=10)
        for place, one in enumerate(names):
            if predicted(result, one, name) is None:
                panel.annotate("not reached", (place, 0), rotation=90, ha="center", va="bottom", fontsize=7)
        panel.tick_params("x", labelsize=7, rotation=40)
    return save(figure, folder, result["name"])


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return one row per hypothesis and figure."""
    rows = []
    for hypothesis in HYPOTHESES:
        for figure in dict.fromkeys(one["figure"] for one in result["numbers"]["table"]):
            saving, speedup = (ask(result, hypothesis.name, figure) for ask in (predicted, needed_speedup))
            rows.append(
                Row(
                    f"{hypothesis.name}: {hypothesis.says}, {figure}",
                    f"{PAPER_UPLOADS[figure]:g}×",
                    "target not reached" if saving is None else f"{saving:.1f}×",
                    "" if speedup is None else f"a round would have to be {speedup:.2f}× as fast as SecAgg's",
                )
            )
    return rows
