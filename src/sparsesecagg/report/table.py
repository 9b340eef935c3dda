"""The table a training run ends with, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from .headline import sent_ratio, upload_ratio
from .measures import baseline, measure
from .records import read_run_set
from .words import MEGABYTE, percent, seconds_text, significant, times


def summary_table(run_dirs: Sequence[Path]) -> Table:
    """Compare runs (folders of runs or of comparisons) with each other and with SecAgg.

    Megabytes are 10**6 bytes and count all messages; the ratio to SecAgg is given for UPLOAD and for all messages.
    """
    runs = [run for run_dir in run_dirs for run in read_run_set(Path(run_dir)).runs]
    secagg = baseline(runs)
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption_justify="left",
        caption=_caption(secagg is None or secagg.measured),
    )
    table.add_column("Aggregator", no_wrap=True)
    for title in (
        "Accuracy",
        "Rounds",
        "MB per user and round",
        "Total MB per user",
        "Against SecAgg: UPLOAD",
        "all",
        "Computing, measured",
        "Transfer, simulated",
    ):
        table.add_column(title, justify="right")
    for measures in map(measure, runs):
        table.add_row(
            escape(measures.run.name),
            percent(measures.accuracy),
            f"{measures.rounds}" + (f" ({measures.failed} failed)" if measures.failed else ""),
            significant(measures.sent_per_round / MEGABYTE.size),
            significant(measures.sent_total / MEGABYTE.size),
            times(upload_ratio(measures, secagg)),
            times(sent_ratio(measures, secagg)),
            seconds_text(measures.computing_seconds),
            seconds_text(measures.transfer_seconds),
        )
    return table


def _caption(measured: bool) -> str | None:
    return (
        None
        if measured
        else "SecAgg was not run: its UPLOAD is computed from the size of the model (32-bit words)."
    )
