"""Put a report together: one HTML file that opens offline and asks nothing of the network.

Plotly writes its own part (`plotly.io.to_html`); the page around it is words and tables. Its Content-Security-Policy
forbids every request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparsesecagg.errors import MissingExtra
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.metrics import flat
from sparsesecagg.lab.report.headline import Headline, headline
from sparsesecagg.lab.report.markup import Html, element, joined, trusted
from sparsesecagg.lab.report.measures import Baseline, baseline, measure
from sparsesecagg.lab.report.plots import Figure, Series, figure_groups, series_of
from sparsesecagg.lab.report.records import Run, read_runs
from sparsesecagg.lab.report.table import results
from sparsesecagg.lab.report.words import NOTHING

REPORT = "report.html"
CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]]}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

SETTINGS = (
    *("engine", "strategy", "dataset", "partition", "model", "dim", "clients", "rounds", "seed", "alpha", "gain"),
    *("groups", "group_size", "threshold", "neighbours", "authenticated", "modulus_bits", "weights", "normalisation"),
    *("dropout", "drop_at", "keys_arrive", "colluding", "downlink", "downlink_bits", "epochs", "batch", "lr"),
)
"""The options a reader looks for first; everything else is under Configuration."""


def write_report(run_dirs: Path | Sequence[Path], target: Path | None = None) -> Path:
    """Write a report on the runs of one or several folders, of training or of Flower, and return its path.

    For one folder the page is its `report.html` unless `target` says otherwise. The same folders always give the same
    bytes. Raises InvalidInput for a folder that is no run, MissingExtra without Plotly; nothing is written then.
    """
    folders = [Path(run_dirs)] if isinstance(run_dirs, str | Path) else [Path(folder) for folder in run_dirs]
    page = target or folders[0] / REPORT
    # A reader who has the old report open never sees half of the new one.
    write_atomically(page, render(read_runs(folders)))
    return page


def render(runs: Sequence[Run]) -> str:
    """Return the whole page as text."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("learn", "The HTML report") from error
    measures = [measure(run) for run in runs]
    series = series_of(measures)
    secagg = baseline(runs)
    words = headline(measures, secagg)
    body = element(
        "main",
        _header(words, len(runs) > 1),
        _section("Results", _results(series, secagg)),
        _section("Settings", _settings(runs)),
        *(_section(title, element("div", *map(_card, group), class_="grid")) for title, group in figure_groups(series)),
        _failures(runs),
        _section("In full", _configuration(runs)),
        element("footer", element("p", _colophon(runs))),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{words.title} · sparsesecagg"),
        element("style", trusted((files(__package__) / "assets" / "report.css").read_text("utf-8"))),
        element("script", trusted(get_plotlyjs())),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _header(words: Headline, is_comparison: bool) -> Html:
    """Write the first screen: what came out. The figures themselves are in the table below it."""
    kind = "Comparison of training runs" if is_comparison else "Training run"
    return element(
        "header",
        element("p", f"sparsesecagg · {kind}", class_="note"),
        element("h1", words.title),
        *(element("p", sentence) for sentence in words.sentences),
        element("p", words.warning, class_="callout", role="note") if words.warning else None,
    )


def _card(figure: Figure) -> Html:
    """Show one plot, as Plotly writes it, with its title and caption."""
    from plotly.io import to_html

    drawn = to_html(
        {"data": figure.data, "layout": figure.layout},
        config=CONFIG | {"toImageButtonOptions": {"filename": figure.id}},
        include_plotlyjs=False,
        full_html=False,
        div_id=figure.id,
    )
    return element(
        "figure",
        element("h3", figure.title),
        element("div", trusted(drawn), class_="plot", role="img", aria_label=figure.description),
        element("figcaption", figure.caption),
        class_="card wide" if figure.wide else "card",
    )


def _results(series: Sequence[Series], secagg: Baseline | None) -> Html:
    """Compare the runs: one column each, which stays readable on a phone."""
    shown = results([s.measures for s in series], secagg)
    return _table(("", *(s.run.name for s in series)), [(name, *values) for name, values in shown.items()])


def _settings(runs: Sequence[Run]) -> Html:
    """Show the options that matter first; where runs differ, each value with its runs."""
    pairs = []
    for key in SETTINGS:
        named: dict[str, list[str]] = {}
        for run in runs:
            if (value := run.setting(key)) not in (None, False):
                named.setdefault(_text(value), []).append(run.name)
        alike = len(named) == 1 and len(next(iter(named.values()))) == len(runs)
        shown = named if alike else (f"{value} ({', '.join(names)})" for value, names in named.items())
        if named:
            pairs.append(element("div", element("dt", key.replace("_", " ")), element("dd", ", ".join(shown))))
    return element("dl", *pairs, class_="facts")


def _failures(runs: Sequence[Run]) -> Html | None:
    """List failed rounds with their reasons, which a cross in a plot can't say to everyone."""
    items = [
        element("li", element("strong", f"{run.name}, round {r.round}"), f": {r.reason or 'no reason recorded'}")
        for group in runs
        for run in group.seeds or (group,)
        for r in run.rounds
        if r.failed
    ]
    return _section("Failed rounds", element("ul", *items)) if items else None


def _configuration(runs: Sequence[Run]) -> Html:
    """Show every option of every run; rows where runs differ say so."""
    options = [flat(run.config) for run in runs]
    rows = []
    for key in dict.fromkeys(key for config in options for key in config):
        values = [_text(config[key]) if key in config else NOTHING for config in options]
        rows.append((f"{key} (differs)" if len(set(values)) > 1 else key, *values))
    table = _table(("Option", *(run.name for run in runs)), rows)
    return element("details", element("summary", "Configuration"), table)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Return a table that scrolls by itself, by keyboard too, instead of widening the page."""
    table = element(
        "table",
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element(
            "tbody",
            *(
                element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
                for first, *cells in rows
            ),
        ),
    )
    return element("div", table, class_="scroll", tabindex="0")


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content, id=title.lower().replace(" ", "-"))


def _text(value: Any) -> str:
    """Write an option as people would; floats without digits that say nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping) and set(value) == {"min", "max"}:
        return f"{value['min']}" if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return json.dumps(value, ensure_ascii=False, default=str)


def _colophon(runs: Sequence[Run]) -> Html:
    versions = dict.fromkeys(str(run.config["version"]) for run in runs if run.config.get("version"))
    simulated = ", the network is simulated" if any(r.transfer_seconds for run in runs for r in run.rounds) else ""
    return joined(
        f"sparsesecagg {' / '.join(versions)}. Bytes are of real messages, computing is measured{simulated}. "
        "This page loads nothing from anywhere."
    )
