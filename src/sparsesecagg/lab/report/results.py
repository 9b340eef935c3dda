"""What runs came to, as people read it: one table for terminal, page, Markdown, LaTeX and CSV, and the headline."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich import box
from rich.markup import escape
from rich.table import Table

from sparsesecagg.cli.shared import bytes_text, seconds_text
from sparsesecagg.lab.learning.aggregation import flat
from sparsesecagg.lab.report.measures import Measures, measured
from sparsesecagg.lab.report.records import read_runs
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.planner import PAIRWISE_WARNING

NOTHING = "–"
TABLES = ("md", "latex")
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
# Whose result a comparison is about, in this order; the others are what it is compared with.
LEADS = ("sliced", "secagg-plus", "pairwise", "secagg", "plain")


def results(measures: Sequence[Measures]) -> dict[str, list[str]]:
    """Return what is compared: a row of cells, one for each run, under its heading."""
    rows: dict[str, Callable[[Measures], str]] = {
        "Accuracy": lambda m: percent(m.accuracy, m.deviation),
        "Seeds": lambda m: str(m.seeds) if m.seeds > 1 else NOTHING,
        "Rounds": lambda m: str(m.rounds),
        "Failed rounds": lambda m: str(m.failed),
        "Target accuracy reached": lambda m: _known("round {:g}", m.reached_target_at),
        "UPLOAD per round": lambda m: bytes_text(m.upload_per_round),
        "All sent per round": lambda m: bytes_text(m.sent_per_round),
        "All sent in total": lambda m: bytes_text(m.sent_total),
        "All received per round, with the model": lambda m: bytes_text(m.received_per_round),
        "Times less than SecAgg: UPLOAD": lambda m: times(m.upload_ratio),
        "Times less than SecAgg: all sent": lambda m: times(m.sent_ratio),
        "The server can read": lambda m: readable(m.run.expected_exposure),
        "A user hides among": lambda m: _known("{} user" if m.anonymity == 1 else "{} users", m.anonymity),
        "Coordinates updated per round": lambda m: percent(m.coordinates_updated),
        "Exchanges per round": lambda m: _known("{}", m.exchanges),
        "Computing, measured": lambda m: seconds_text(m.computing_seconds),
        "Transfer, simulated": lambda m: seconds_text(m.transfer_seconds),
    }
    cells = {name: [cell(m) for m in measures] for name, cell in rows.items()}
    return {name: row for name, row in cells.items() if not set(row) <= {NOTHING, "0"}}


def summary_table(run_dirs: Sequence[Path]) -> Table:
    """Compare runs with each other and with SecAgg, for a terminal; seeds of the same settings are one row of means."""
    measures = measured(read_runs(run_dirs))
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=caption(measures),
        caption_justify="left",
    )
    cells = results(measures)
    if "Times less than SecAgg: all sent" in cells:
        cells.pop("Times less than SecAgg: UPLOAD", None)
    shown = [name for name in COLUMNS if name in cells]
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
    measures = measured(read_runs(run_dirs))
    cells = {name: row for name, row in results(measures).items() if name in (*COLUMNS, "Seeds")}
    rows = [["Run", *cells], *([m.run.name, *(row[n] for row in cells.values())] for n, m in enumerate(measures))]
    if kind == "md":
        head, *body = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        return "\n".join([head, f"| --- |{' ---: |' * len(cells)}", *body])
    plain = str.maketrans({each: f"\\{each}" for each in "%&#_"} | {"±": r"$\pm$", "×": r"$\times$", "–": "--"})
    head, *body = [" & ".join(cell.translate(plain) for cell in row) + r" \\" for row in rows]
    begin = rf"\begin{{tabular}}{{l{'r' * len(cells)}}}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


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


def caption(measures: Sequence[Measures]) -> str:
    """Explain the table, and say what was not measured."""
    seeds = max((m.seeds for m in measures), default=1)
    sentences = [f"±: standard deviation over {seeds} seeds."] if seeds > 1 else []
    sentences.append("Sent: all messages of one user.")
    if any(m.sent_ratio for m in measures):
        sentences.append("Times less: than all that SecAgg sends.")
    elif any(m.upload_ratio for m in measures):
        sentences.append("Times less: than SecAgg's UPLOAD of 32-bit words, which was not run.")
    sentences.append("Hides among: honest users in every sum; without a roster, if the server follows the protocol.")
    return " ".join(sentences)


def title(measures: Sequence[Measures]) -> str:
    """Return the headline: what came out for the run that this is about."""
    lead = _lead(measures)
    name = lead.run.name
    if not lead.rounds:
        return f"{name}: no round has finished yet"
    if lead.failed == lead.rounds * lead.seeds:
        return f"{name}: {'the only round' if lead.rounds == 1 else f'all {lead.rounds} rounds'} failed"
    reached = f"{name} reaches {percent(lead.accuracy)} accuracy" if lead.accuracy is not None else name
    sent = f"{reached}; each user sends {bytes_text(lead.sent_total)} in {lead.rounds} round{'s' * (lead.rounds != 1)}"
    ratio = None if lead.run.aggregator == "secagg" else lead.sent_ratio
    return f"{sent}, per round {against(ratio, 'SecAgg')}" if ratio else sent


def sentences(measures: Sequence[Measures]) -> Iterator[str]:
    """Yield what stands under the headline: the comparison, how far chance goes, what failed."""
    if compared := in_short(measures):
        yield compared
    if len(measures) > 1 and all(m.seeds == 1 for m in measures):
        yield "One seed per run: a difference of a point or so in accuracy may be chance."
    if failed := [f"{m.failed} of {m.rounds * m.seeds} in {m.run.name}" for m in measures if m.failed]:
        yield f"Rounds that failed and left the model as it was: {', '.join(failed)}."


def in_short(measures: Sequence[Measures]) -> str | None:
    """Say in one sentence what the run that a comparison is about costs and saves beside plain training, or SecAgg."""
    other = next((m for name in ("plain", "secagg") for m in measures if m.run.aggregator == name), None)
    lead = _lead(measures)
    if other is None or other is lead or lead.accuracy is None or other.accuracy is None or not lead.sent_per_round:
        return None
    ratio, users = other.sent_per_round / lead.sent_per_round, lead.anonymity
    usual = "plain training" if other.run.aggregator == "plain" else "SecAgg"
    server = "even a malicious server" if lead.run.setting("authenticated") else "a server that follows the protocol"
    reads = f"{server} sees only sums of {users} honest users or more, never one user's update"
    return (
        f"With {lead.run.name} each user sends {bytes_text(lead.sent_per_round)} a round, "
        f"{against(ratio, f'with {usual}')} ({bytes_text(other.sent_per_round)}); the model reaches "
        f"{percent(lead.accuracy, lead.deviation)}, with {usual} {percent(other.accuracy, other.deviation)}"
        + (f"; and {reads}." if users and users > 1 else ".")
    )


def warning(measures: Sequence[Measures]) -> str | None:
    """Say what `pairwise` does not protect, with the figure where the run recorded one."""
    known = ((m.run, PATTERNS[m.run.aggregator]) for m in measures if m.run.aggregator in PATTERNS)
    pairwise = next((run for run, pattern in known if not pattern.protects), None)
    if pairwise is None:
        return None
    exposed = pairwise.expected_exposure
    figure = f" Here the server is expected to read {readable(exposed)} of what users upload." if exposed else ""
    return f"{PAIRWISE_WARNING}.{figure}"


def _lead(measures: Sequence[Measures]) -> Measures:
    return min(measures, key=lambda m: LEADS.index(m.run.aggregator) if m.run.aggregator in LEADS else len(LEADS))


def _known(text: str, figure: float | None) -> str:
    return NOTHING if figure is None else text.format(figure)


def percent(fraction: float | None, deviation: float | None = None) -> str:
    """Write a fraction as a percentage with one decimal, and its standard deviation over seeds if there is one."""
    if fraction is None:
        return NOTHING
    return f"{100 * fraction:.1f}{'' if deviation is None else f' ± {100 * deviation:.1f}'} %"


def readable(exposed: float | None) -> str:
    """Write what the server can read: all, a share of single values that may be very small, or sums over users only."""
    if exposed is None:
        return NOTHING
    if exposed in (0, 1):
        return "all" if exposed else "only sums"
    return f"{100 * exposed:.2g} %" if exposed >= 1e-6 else "about none"


def times(ratio: float | None) -> str:
    """Write how many times smaller something is: 17×, 2.4×, 0.9×."""
    return NOTHING if ratio is None else f"{_number(ratio)}×"


def against(ratio: float, other: str) -> str:
    """Say in words how a quantity compares: `ratio` is the other's size divided by ours."""
    if 0.95 <= ratio <= 1.05:
        return f"about as much as {other}"
    return f"{_number(ratio)} times less than {other}" if ratio > 1 else f"{_number(1 / ratio)} times more than {other}"


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
