"""Put a report together: one HTML file that opens offline; its Content-Security-Policy forbids every request.

Run folders come from other people's machines, and an option or a failure reason may hold anything, so text is escaped
by construction: `element` escapes every string but the markup it made itself.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from sparsesecagg.errors import MissingExtra
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.aggregation import flat
from sparsesecagg.lab.report.measures import measured
from sparsesecagg.lab.report.plots import Figure, figures
from sparsesecagg.lab.report.records import Run, read_runs
from sparsesecagg.lab.report.results import NOTHING, caption, results, sentences, title, warning

REPORT = "report.html"
CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]]}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
TASK = ("dataset", "partition", "model", "dim", "clients", "alpha", "dropout")
"""The options a reader looks for first, where all runs share them; the table of settings has everything."""


class Html(str):
    """Markup that is safe already: made by `element`, or our own. Never anything read from a run folder."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | None) -> Html:
    """Build one element: strings are escaped, Html is kept, None is left out. `class_` becomes class, `a_b` a-b."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = (child if isinstance(child, Html) else html.escape(child) for child in children if child is not None)
    return Html(f"<{tag}{written}>" + ("" if tag == "meta" else f"{''.join(inside)}</{tag}>"))


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
    measures = measured(runs)
    names = [run.name for run in runs]
    alarm = warning(measures)
    headline = re.sub(r"(\d) (?=[kMG]?B |%)", "\\1\u00a0", title(measures))  # No line ends before a unit.
    body = element(
        "main",
        element(
            "header",
            element("p", f"sparsesecagg · {_task(runs)}", class_="note"),
            element("h1", headline),
            *(element("p", sentence) for sentence in sentences(measures)),
            element("p", alarm, class_="callout", role="note") if alarm else None,
        ),
        element("h2", "Results"),
        _table("", names, results(measures)),
        element("p", caption(measures), class_="note"),
        element("h2", "Plots"),
        element("div", *map(_card, figures(measures)), class_="grid"),
        *_failures(runs),
        element("h2", "Settings"),
        _table("Option", names, _settings(runs)),
        element("footer", element("p", _colophon(runs))),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{headline} · sparsesecagg"),
        element("style", Html((files(__package__) / "assets" / "report.css").read_text("utf-8"))),
        element("script", Html(get_plotlyjs())),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"


def _task(runs: Sequence[Run]) -> str:
    """Say what was trained, as far as the runs agree."""
    kind = "Comparison of training runs" if len(runs) > 1 else "Training run"
    values = {key: {_text(run.setting(key)) for run in runs} for key in TASK}
    shared = [f"{key} {value}" for key, (value, *others) in values.items() if not others and value != NOTHING]
    return " · ".join([kind, *shared])


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
    words = f"{figure.title}. {figure.caption}"
    return element(
        "figure",
        element("h3", figure.title),
        element("div", Html(drawn), class_="plot", role="img", aria_label=words),
        element("figcaption", figure.caption),
        class_="card wide" if figure.wide else "card",
    )


def _failures(runs: Sequence[Run]) -> list[Html]:
    """List failed rounds with their reasons, which a cross in a plot can't say to everyone."""
    items = [
        element("li", element("strong", f"{run.name}, round {r.round}"), f": {r.reason or 'no reason recorded'}")
        for group in runs
        for run in group.seeds or (group,)
        for r in run.rounds
        if r.failed
    ]
    return [element("h2", "Failed rounds"), element("ul", *items)] if items else []


def _settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return every option that was set; those in which runs differ come first and say so."""
    options = [flat(run.config) for run in runs]
    rows = {key: [_text(config.get(key)) for config in options] for config in options for key in config}
    differ = {f"{key} (differs)": values for key, values in rows.items() if len(set(values)) > 1}
    return differ | {key: values for key, values in rows.items() if len(set(values)) == 1 and values[0] != NOTHING}


def _table(corner: str, names: Sequence[str], rows: dict[str, list[str]]) -> Html:
    """Return a table with one column per run; it scrolls by itself, by keyboard too, instead of widening the page."""
    head = element("tr", *(element("th", name, scope="col") for name in (corner, *names)))
    body = (
        element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in cells))
        for name, cells in rows.items()
    )
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex="0")


def _text(value: Any) -> str:
    """Write an option as people would; floats without digits that say nothing."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)


def _colophon(runs: Sequence[Run]) -> str:
    versions = dict.fromkeys(str(run.config["version"]) for run in runs if run.config.get("version"))
    simulated = ", the network is simulated" if any(r.transfer_seconds for run in runs for r in run.rounds) else ""
    return (
        f"sparsesecagg {' / '.join(versions)}. Bytes are of real messages, computing is measured{simulated}. "
        "This page loads nothing from anywhere."
    )
