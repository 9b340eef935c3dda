"""The parts of the page that are words and tables rather than plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparsesecagg.lab.report.headline import Headline, sent_ratio, upload_ratio
from sparsesecagg.lab.report.markup import Html, element, joined, trusted
from sparsesecagg.lab.report.measures import Baseline, Measures
from sparsesecagg.lab.report.plots import Series
from sparsesecagg.lab.report.records import LabelCounts, Run
from sparsesecagg.lab.report.words import (
    BYTE_UNITS,
    NOTHING,
    SECOND_UNITS,
    Unit,
    bytes_text,
    percent,
    seconds_text,
    share,
    significant,
    times,
    unit_for,
)

# The options a reader looks for first, with the words to show; everything else is under Configuration.
SETTINGS = {
    "engine": "Engine",
    "strategy": "Strategy",
    "dataset": "Data set",
    "partition": "Partition",
    "model": "Model",
    "dim": "Parameters",
    "clients": "Users",
    "rounds": "Rounds",
    "seed": "Seed",
    "alpha": "α, share of the model sent",
    "alpha_asked": "α asked for",
    "committees": "Committees",
    "committee_size": "Users per committee",
    "pods": "Pods",
    "threshold": "Threshold of a pod",
    "min_survivors": "Survivors that a sum needs",
    "neighbours": "Neighbours",
    "confirm": "Third exchange (CONFIRM)",
    "authenticated": "Roster",
    "modulus_bits": "Bits per word",
    "weighting": "Weights",
    "weights": "Weights",
    "normalisation": "Mean over",
    "dropout": "θ, dropout",
    "drop_at": "Drops out at",
    "colluding": "γ, colluding",
    "downlink": "The model on its way down",
    "downlink_bits": "Bits per step",
    "epochs": "Local epochs",
    "batch": "Batch",
    "lr": "Learning rate",
    "momentum": "Momentum",
    "bandwidth_mbit": "Simulated network, Mbit/s",
    "latency_ms": "Simulated latency, ms",
}


def header(words: Headline, is_comparison: bool) -> Html:
    """Write the first screen: what came out. The figures themselves are in the table below it."""
    kind = "Comparison of training runs" if is_comparison else "Training run"
    return element(
        "header",
        element("p", f"sparsesecagg · {kind}", class_="eyebrow"),
        element("h1", words.title),
        *(element("p", sentence, class_="lede") for sentence in words.sentences),
        element("p", words.warning, class_="lede callout", role="note") if words.warning else None,
    )


def settings(runs: Sequence[Run]) -> Html:
    """Show the options that matter first; where runs differ, each value with its runs."""
    pairs = []
    for key, label in SETTINGS.items():
        named: dict[str, list[str]] = {}
        for run in runs:
            value = run.setting(key)
            # Plain averaging sends the whole model, whatever α says.
            if value is not None and value is not False and not (key == "alpha" and run.aggregator == "plain"):
                if key == "alpha_asked" and value == run.setting("alpha"):
                    continue  # Said already.
                named.setdefault(setting_text(value), []).append(run.name)
        if len(named) == 1 and len(next(iter(named.values()))) == len(runs):
            pairs.append(element("div", element("dt", label), element("dd", *named)))
        elif named:
            shown = ", ".join(f"{value} ({', '.join(names)})" for value, names in named.items())
            pairs.append(element("div", element("dt", label), element("dd", shown)))
    return element("section", element("h2", "Settings"), element("dl", *pairs, class_="facts"), id="settings")


def chips(series: Sequence[Series]) -> Html:
    """Offer one switch per run, which is also the legend of all plots."""
    buttons = [
        element(
            "button",
            _swatch(s),
            s.run.name,
            type="button",
            class_="chip",
            aria_pressed="true",
            data_run=str(s.index),
            style=f"--run: var(--run{s.place})",
        )
        for s in series
    ]
    return element(
        "nav",
        element("span", "Runs", class_="hint"),
        *buttons,
        class_="chips",
        aria_label="Runs shown in the plots",
    )


def _swatch(series: Series) -> Html:
    """Draw the run's line style, the same dash as in the plots."""
    dashes = {
        "solid": "none",
        "dash": "6 4",
        "dot": "2 3",
        "dashdot": "6 3 2 3",
        "longdash": "10 4",
        "longdashdot": "10 3 2 3",
    }
    stroke = element("line", x1="0", y1="5", x2="26", y2="5", stroke_dasharray=dashes[series.dash])
    return element("svg", stroke, viewBox="0 0 26 10", width="26", height="10", aria_hidden="true")


def results(series: Sequence[Series], secagg: Baseline | None, *, at_once: bool = False) -> Html:
    """Compare the runs: one column each, which stays readable on a phone."""
    head = [
        element("th", element("span", class_="dot", style=f"--run: var(--run{s.place})"), s.run.name, scope="col")
        for s in series
    ]
    rows = [
        element("tr", element("th", name, scope="row"), *(element("td", value) for value in values))
        for name, values in _result_rows([s.measures for s in series], secagg)
    ]
    corner = element("td", element("span", "Figure", class_="unseen"))
    table = element(
        "table",
        element("thead", element("tr", corner, *head)),
        element("tbody", *rows),
        class_="runs numbers",
    )
    words = "Bytes are of one user. Means are over the rounds that worked, totals over all of them."
    if at_once:
        words += " The runs shared this machine's cores while they were timed, so their seconds can't be compared."
    if secagg is not None and not secagg.measured:
        words += f" SecAgg was not run: its UPLOAD is computed, {bytes_text(secagg.upload)} for 32-bit words."
    scrolling = element("div", table, class_="frame", tabindex="0", role="region", aria_label="Results by run")
    return element(
        "section", element("h2", "Results"), scrolling, element("p", words, class_="note below"), id="results"
    )


def _result_rows(measures: Sequence[Measures], secagg: Baseline | None) -> list[tuple[str, list[str]]]:
    """Return each figure's name and its value in every run; figures nobody has are left out."""
    reached = [f"round {m.reached_target_at}" if m.reached_target_at else NOTHING for m in measures]
    rows = [
        ("Accuracy", [percent(m.accuracy) for m in measures]),
        ("Rounds", [str(m.rounds) for m in measures]),
        ("Failed rounds", [str(m.failed) for m in measures] if any(m.failed for m in measures) else []),
        ("Target accuracy reached", reached),
        _in_one_unit("UPLOAD per round", [m.upload_per_round for m in measures]),
        _in_one_unit("All sent per round", [m.sent_per_round for m in measures]),
        _in_one_unit("All sent in total", [m.sent_total for m in measures]),
        _in_one_unit("All received per round, with the model", [m.received_per_round for m in measures]),
        ("Exchanges per round", [NOTHING if m.exchanges is None else str(m.exchanges) for m in measures]),
        ("Coordinates updated per round", [percent(m.coordinates_updated) for m in measures]),
        ("Readable by the server, in theory", [share(m.run.expected_exposure) for m in measures]),
        ("Smaller than SecAgg: UPLOAD", [times(upload_ratio(m, secagg)) for m in measures]),
        ("Smaller than SecAgg: all sent", [times(sent_ratio(m, secagg)) for m in measures]),
        _in_one_unit("Computing, measured", [m.computing_seconds for m in measures], SECOND_UNITS),
        _in_one_unit("Transfer, simulated", [m.transfer_seconds for m in measures], SECOND_UNITS),
    ]
    return [(name, values) for name, values in rows if any(value != NOTHING for value in values)]


def _in_one_unit(name: str, values: Sequence[float], units: tuple[Unit, ...] = BYTE_UNITS) -> tuple[str, list[str]]:
    """Name the unit once, beside the figure, so that columns stay narrow and compare at a glance."""
    unit = unit_for(values, units)
    return f"{name}, {unit.name}", [unit.number(value) for value in values]


def failures(runs: Sequence[Run]) -> Html | None:
    """List failed rounds with their reasons, which a cross in a plot can't say to everyone."""
    items = [
        element(
            "li",
            element("strong", f"{run.name}, round {record.round}"),
            f": {record.reason or 'no reason recorded'}",
        )
        for run in runs
        for record in run.rounds
        if record.failed
    ]
    if not items:
        return None
    return element("section", element("h2", "Failed rounds"), element("ul", *items, class_="failures"), id="failures")


def configuration(runs: Sequence[Run]) -> Html:
    """Show every option of every run; rows where runs differ are marked."""
    options = [_flat(run.config) for run in runs]
    keys = list(dict.fromkeys(key for config in options for key in config))
    head = [element("th", name, scope="col") for name in ("Option", *(run.name for run in runs))]
    rows = []
    for key in keys:
        values = [setting_text(config[key]) if key in config else NOTHING for config in options]
        differs = len(set(values)) > 1
        name = element("th", key, element("span", " (differs)", class_="unseen") if differs else None, scope="row")
        rows.append(
            element("tr", name, *(element("td", value) for value in values), class_="differs" if differs else None)
        )
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    note = "Rows in which the runs differ are marked." if len(runs) > 1 else None
    return _folded(
        "Configuration",
        joined(element("p", note, class_="note") if note else None, _scrolling(table, "Configuration")),
    )


def label_counts(partition: LabelCounts, runs: str) -> Html:
    """Give the label distribution as a table, for those who can't read the heat map."""
    head = [element("th", name, scope="col") for name in ("Client", *partition.classes, "Total")]
    rows = [
        element("tr", element("th", str(client), scope="row"), *(element("td", str(n)) for n in (*row, sum(row))))
        for client, row in enumerate(partition.counts)
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="numbers")
    return _folded(f"Label counts{runs}", _scrolling(table, f"Label counts{runs}"))


def rounds_table(run: Run) -> Html:
    """Give every round of one run as a row."""
    names = (
        "Round",
        "Status",
        "Accuracy",
        "Loss",
        "Survivors",
        "UPLOAD",
        "All sent",
        "All received",
        "Updated",
        "Computing, measured",
        "Transfer, simulated",
    )
    rows = []
    for record in run.rounds:
        computing = record.training_seconds + sum(v for k, v in record.client_seconds.items() if k != "total")
        cells = (
            "failed" if record.failed else "ok",
            percent(record.accuracy),
            NOTHING if record.loss is None else significant(record.loss),
            NOTHING if record.survivors is None else str(record.survivors),
            bytes_text(record.upload_bytes),
            bytes_text(record.all_sent_bytes),
            bytes_text(record.all_received_bytes),
            percent(record.coordinates_updated),
            seconds_text(computing),
            seconds_text(record.transfer_seconds),
        )
        rows.append(
            element("tr", element("th", str(record.round), scope="row"), *(element("td", cell) for cell in cells))
        )
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in names)))
    caption = element("caption", "Bytes and computing are of one user, on average.")
    table = element("table", caption, head, element("tbody", *rows), class_="numbers")
    return _folded(f"Rounds of {run.name}", _scrolling(table, f"Rounds of {run.name}"))


def setting_text(value: Any) -> str:
    """Write an option as people would; floats without digits that say nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and set(value) == {"min", "max"}:
        return f"{value['min']}" if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return json.dumps(value, ensure_ascii=False, default=str)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested options names such as effective.threshold."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return flat


def _folded(title: str, content: Html) -> Html:
    return element("details", element("summary", title), content)


def _scrolling(table: Html, label: str) -> Html:
    """Let a wide table scroll by itself, by keyboard too, instead of widening the page."""
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def asset(name: str) -> Html:
    """Read one of this package's own files."""
    from importlib.resources import files

    return trusted((files("sparsesecagg.lab.report") / "assets" / name).read_text("utf-8"))
