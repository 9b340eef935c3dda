"""What runs came to, cell by cell: for the terminal's closing table, the page, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich import box
from rich.markup import escape
from rich.table import Table

from sparsesecagg.lab.learning.metrics import flat
from sparsesecagg.lab.report.measures import Baseline, Measures, baseline, measure, sent_ratio, upload_ratio
from sparsesecagg.lab.report.records import Run, read_runs
from sparsesecagg.lab.report.words import (
    NOTHING,
    bytes_text,
    hidden_among,
    percent,
    readable,
    seconds_text,
    times,
)

# The columns of a terminal, broken by hand so that 80 columns show every word.
COLUMNS = {
    "Accuracy": "Accuracy",
    "Rounds": "Rounds",
    "All sent per round": "Sent per\nround",
    "Times less than SecAgg: all sent": "Times\nless",
    "Times less than SecAgg: UPLOAD": "UPLOAD\ntimes less",
    "The server can read": "Server\ncan read",
    "A user hides among": "Hides\namong",
}
TABLES = ("md", "latex")
_LATEX = {"%": r"\%", "&": r"\&", "#": r"\#", "_": r"\_", "±": r"$\pm$", "×": r"$\times$", "–": "--", "µ": r"$\mu$"}
_SPACES = {"\u202f": " ", "\u00a0": " "}


def results(measures: Sequence[Measures], secagg: Baseline | None) -> dict[str, list[str]]:
    """Return what is compared: a row of cells, one for each run, under its heading."""
    rows = {
        "Accuracy": [percent(m.accuracy, m.deviation) for m in measures],
        "Seeds": [str(m.seeds) if m.seeds > 1 else NOTHING for m in measures],
        "Rounds": [str(m.rounds) for m in measures],
        "Failed rounds": [str(m.failed) for m in measures],
        "Target accuracy reached": [
            NOTHING if m.reached_target_at is None else f"round {m.reached_target_at:g}" for m in measures
        ],
        "UPLOAD per round": [bytes_text(m.upload_per_round) for m in measures],
        "All sent per round": [bytes_text(m.sent_per_round) for m in measures],
        "All sent in total": [bytes_text(m.sent_total) for m in measures],
        "All received per round, with the model": [bytes_text(m.received_per_round) for m in measures],
        "Times less than SecAgg: UPLOAD": [times(upload_ratio(m, secagg)) for m in measures],
        "Times less than SecAgg: all sent": [times(sent_ratio(m, secagg)) for m in measures],
        "The server can read": [readable(m.run.expected_exposure) for m in measures],
        "A user hides among": [hidden_among(m.run.setting("anonymity")) for m in measures],
        "Coordinates updated per round": [percent(m.coordinates_updated) for m in measures],
        "Exchanges per round": [NOTHING if m.exchanges is None else str(m.exchanges) for m in measures],
        "Computing, measured": [seconds_text(m.computing_seconds) for m in measures],
        "Transfer, simulated": [seconds_text(m.transfer_seconds) for m in measures],
    }
    return {name: cells for name, cells in rows.items() if any(cell not in (NOTHING, "0") for cell in cells)}


def summary_table(run_dirs: Sequence[Path]) -> Table:
    """Compare runs (folders of runs or of comparisons) with each other and with SecAgg, for a terminal.

    Seeds of the same settings are one row: means, and for the accuracy the standard deviation.
    """
    measures, secagg = _measured(run_dirs)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=_caption(measures, secagg),
        caption_justify="left",
    )
    cells = results(measures, secagg)
    shown = [name for name in COLUMNS if name in cells]
    if "Times less than SecAgg: all sent" in shown and "Times less than SecAgg: UPLOAD" in shown:
        shown.remove("Times less than SecAgg: UPLOAD")
    table.add_column("Run", no_wrap=True)
    for name in shown:
        table.add_column(COLUMNS[name], justify="right", no_wrap=True)
    for place, m in enumerate(measures):
        row = {name: cells[name][place] for name in shown}
        if m.failed:
            row["Rounds"] += f"\n{m.failed} failed"
        table.add_row(escape(m.run.name), *row.values())
    return table


def table_text(run_dirs: Sequence[Path], kind: str) -> str:
    """Return the table of the terminal as Markdown (md) or LaTeX (latex, with booktabs)."""
    measures, secagg = _measured(run_dirs)
    cells = {name: row for name, row in results(measures, secagg).items() if name in (*COLUMNS, "Seeds")}
    rows = [["Run", *cells], *([m.run.name, *(row[n] for row in cells.values())] for n, m in enumerate(measures))]
    if kind == "md":
        head, *body = [[_replaced(cell, _SPACES | {"|": "\\|"}) for cell in row] for row in rows]
        rule = ["---", *["---:"] * len(cells)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
    spaced = {"\u202f": r"\,", "\u00a0": "~"}
    head_line, *lines = [" & ".join(_replaced(cell, _LATEX | spaced) for cell in row) + r" \\" for row in rows]
    begin = rf"\begin{{tabular}}{{l{'r' * len(cells)}}}"
    return "\n".join([begin, r"\toprule", head_line, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"])


def long_csv(run_dirs: Sequence[Path]) -> str:
    """Return every figure of every round of every seed in long form: one row each, with what tells runs apart."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "aggregator", "alpha", "modulus_bits", "seed", "round", "metric", "value"])
    for experiment in read_runs(run_dirs):
        for run in experiment.seeds or (experiment,):
            told = [run.aggregator, run.setting("alpha"), run.setting("modulus_bits"), run.config.get("seed")]
            for line in run.rounds:
                for metric, value in flat(msgspec.to_builtins(line)).items():
                    if metric != "round" and value is not None:
                        writer.writerow([experiment.name, *told, line.round, metric, value])
    return text.getvalue()


def _measured(run_dirs: Sequence[Path]) -> tuple[list[Measures], Baseline | None]:
    runs: Sequence[Run] = read_runs([Path(run_dir) for run_dir in run_dirs])
    return [measure(run) for run in runs], baseline(runs)


def _caption(measures: Sequence[Measures], secagg: Baseline | None) -> str:
    seeds = max((m.seeds for m in measures), default=1)
    what = (
        "" if secagg is None else "all that SecAgg sends" if secagg.measured else "SecAgg's UPLOAD, which was not run"
    )
    sentences = [
        f"±: standard deviation over {seeds} seeds." if seeds > 1 else "",
        "Sent: all messages of one user.",
        f"Times less: than {what}." if secagg else "",
        "Hides among: honest users in every sum; without a roster, if the server follows the protocol.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _replaced(text: str, characters: Mapping[str, str]) -> str:
    return "".join(characters.get(character, character) for character in text)
