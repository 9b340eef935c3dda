"""The table a training run ends with, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from sparsesecagg.lab.report.measures import Baseline, baseline, measure, sent_ratio, spreads, upload_ratio
from sparsesecagg.lab.report.records import read_runs
from sparsesecagg.lab.report.words import bytes_text, hidden_among, percent, readable, times

# Broken by hand, so that a terminal of 80 columns shows every word.
COLUMNS = ("Accuracy", "Rounds", "Sent per\nround", "Times\nless", "Server\ncan read", "Hides\namong")


def summary_table(run_dirs: Sequence[Path]) -> Table:
    """Compare runs (folders of runs or of comparisons) with each other and with SecAgg.

    Times less is SecAgg's UPLOAD divided by the run's; where SecAgg was run, the
    ratio of all messages stands behind it. Seeds of the same settings are one row each, and summed up below.
    """
    measures = [measure(run) for run in read_runs([Path(run_dir) for run_dir in run_dirs]).runs]
    secagg = baseline([m.run for m in measures])
    several = [each for each in spreads(measures) if each.deviation is not None]
    told = "; ".join(f"{s.label} {percent(s.mean)} ± {100 * (s.deviation or 0):.1f}" for s in several)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=_caption(secagg) + (f" Over seeds: {escape(told)}." if told else ""),
        caption_justify="left",
    )
    table.add_column("Run", no_wrap=True)
    for title in COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    for m in measures:
        upload, sent = upload_ratio(m, secagg), sent_ratio(m, secagg)
        table.add_row(
            escape(m.run.name),
            percent(m.accuracy),
            f"{m.rounds}" + (f"\n{m.failed} failed" if m.failed else ""),
            bytes_text(m.sent_per_round),
            times(upload) if sent is None else f"{times(upload)}/{times(sent)}",
            readable(m.run.expected_exposure),
            hidden_among(m.run.setting("anonymity")),
        )
    return table


def _caption(secagg: Baseline | None) -> str:
    words = (
        "Sent: all messages of one user. Hides among: honest users in every sum; without a roster this holds for a "
        "server that follows the protocol."
    )
    if secagg is None:
        return words
    if secagg.measured:
        return f"{words} Times less than SecAgg: UPLOAD / all messages."
    return f"{words} Times less than SecAgg's UPLOAD, which is computed: it was not run."
