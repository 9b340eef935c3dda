"""The table a training run ends with, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from sparsesecagg.lab.report.headline import sent_ratio, upload_ratio
from sparsesecagg.lab.report.measures import Baseline, baseline, measure
from sparsesecagg.lab.report.records import read_runs
from sparsesecagg.lab.report.words import bytes_text, percent, seconds_text, times

# Broken by hand, so that a terminal of 80 columns shows every word.
COLUMNS = ("Accuracy", "Rounds", "Sent per\nround", "Sent\nin all", "Against\nSecAgg", "Com-\nputing", "Trans-\nfer")


def summary_table(run_dirs: Sequence[Path]) -> Table:
    """Compare runs (folders of runs or of comparisons) with each other and with SecAgg.

    Bytes count all messages; a megabyte is 10**6 of them. The ratio to SecAgg is that of UPLOAD; where SecAgg was
    run, the one of all messages stands behind it.
    """
    runs = read_runs([Path(run_dir) for run_dir in run_dirs]).runs
    secagg = baseline(runs)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=_caption(secagg),
        caption_justify="left",
    )
    table.add_column("Run", no_wrap=True)
    for title in COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    for measures in map(measure, runs):
        table.add_row(
            escape(measures.run.name),
            percent(measures.accuracy),
            f"{measures.rounds}" + (f"\n{measures.failed} failed" if measures.failed else ""),
            bytes_text(measures.sent_per_round),
            bytes_text(measures.sent_total),
            _against(upload_ratio(measures, secagg), sent_ratio(measures, secagg)),
            seconds_text(measures.computing_seconds),
            seconds_text(measures.transfer_seconds),
        )
    return table


def _against(upload: float | None, sent: float | None) -> str:
    return times(upload) if sent is None else f"{times(upload)}/{times(sent)}"


def _caption(secagg: Baseline | None) -> str:
    words = "Sent by one user, all messages. Computing is measured, transfer modelled on a simulated network."
    if secagg is None:
        return words
    if secagg.measured:
        return f"{words} Against SecAgg: how many times smaller UPLOAD is / all messages are."
    return f"{words} Against SecAgg: how many times smaller UPLOAD is; SecAgg's is computed, it was not run."
