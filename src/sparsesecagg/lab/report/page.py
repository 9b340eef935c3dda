"""Put a report together: one HTML file that opens offline and asks nothing of the network.

The page forbids itself to load anything (Content-Security-Policy `default-src 'none'`), and runs exactly two
scripts, named by their hashes: Plotly and our own. So even a mistake in escaping could not run a run folder's
text as code.

Plotly comes as one bundle of 4.8 MB. It travels deflated, in the letters of base 85 (1.8 MB); our own script inflates
it and hands it to the browser as a script, whose hash the policy names like any other's.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from sparsesecagg.errors import MissingExtra
from sparsesecagg.lab.report import plots
from sparsesecagg.lab.report.headline import headline
from sparsesecagg.lab.report.markup import Html, element, joined, json_block, trusted
from sparsesecagg.lab.report.measures import baseline, measure
from sparsesecagg.lab.report.palette import DARK, LIGHT, Theme, assign
from sparsesecagg.lab.report.plots.base import template
from sparsesecagg.lab.report.records import LabelCounts, Run, RunSet, read_run_set, read_runs
from sparsesecagg.lab.report.sections import (
    asset,
    chips,
    configuration,
    failures,
    header,
    label_counts,
    results,
    rounds_table,
    settings,
)

REPORT = "report.html"


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run folder or a comparison, and return its path.

    The same folder always gives the same bytes. Raises InvalidInput for a folder that is no run, MissingExtra
    without Plotly; nothing is written then.
    """
    return _write(read_run_set(Path(run_dir)), Path(run_dir) / REPORT)


def compare_runs(run_dirs: Sequence[Path], target: Path) -> Path:
    """Write a report on the runs of several folders, of training or of Flower, to a file; return its path."""
    return _write(read_runs([Path(run_dir) for run_dir in run_dirs]), Path(target))


def _write(run_set: RunSet, target: Path) -> Path:
    text = render(run_set, plotly_script())
    # A reader who has the old report open never sees half of the new one.
    draft = target.with_name(f".{target.name}.new")
    draft.write_text(text, "utf-8")
    return draft.replace(target)


def plotly_script() -> str:
    """Return plotly.js from the installed package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("learn", "The HTML report") from error
    return str(get_plotlyjs())


@lru_cache(maxsize=2)
def pack(script: str) -> str:
    """Return a script deflated, in base 85, without the letter that could begin a tag."""
    return base64.b85encode(zlib.compress(script.encode(), 9)).decode().replace("<", ",")


def render(run_set: RunSet, plotly_js: str) -> str:
    """Return the whole page as text."""
    runs = run_set.runs
    measures = [measure(run) for run in runs]
    series = plots.series_of(measures, assign([run.aggregator for run in runs]))
    secagg = baseline(runs)
    words = headline(measures, secagg)
    groups = figure_groups(series)
    figures = [figure for _, group in groups for figure in group]
    data = {"runs": len(runs), "themes": _themes(), "figures": [plots.as_json(figure) for figure in figures]}
    own = asset("report.js")
    body = element(
        "main",
        header(words, run_set.is_comparison),
        chips(series) if len(series) > 1 else None,
        element("noscript", element("p", "The plots need JavaScript. The tables don't.", class_="note")),
        element(
            "div",
            results(series, secagg, at_once=run_set.at_once),
            settings(runs),
            class_=None if run_set.is_comparison else "pair",
        ),
        *(_group(title, group) for title, group in groups if group),
        failures(runs),
        element(
            "section",
            element("h2", "In full"),
            configuration(runs),
            *_partition_tables(runs),
            *map(rounds_table, runs),
            id="full",
        ),
        element("footer", element("p", _colophon(runs))),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy([plotly_js, own])),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{words.title} · sparsesecagg"),
        element("style", joined(_root_colors(), asset("report.css"))),
    )
    packed = element("script", trusted(pack(plotly_js)), type="text/plain", id="plotly")
    tail = joined(json_block("report-data", data), packed, element("script", own))
    return f"<!doctype html>\n{element('html', head, element('body', body, tail), lang='en')}\n"


def figure_groups(series: Sequence[plots.Series]) -> list[tuple[str, list[plots.Figure]]]:
    """Return the plots under their headings; plots without anything to draw are left out."""
    labels = [
        plots.label_distribution(partition, number, names)
        for number, (partition, names) in enumerate(_partitions([s.run for s in series]), start=1)
    ]
    groups = [
        (
            "Learning",
            [
                plots.accuracy_by_round(series),
                plots.accuracy_by_megabyte(series),
                plots.loss_by_round(series),
            ],
        ),
        ("Communication", [plots.bytes_sent(series), plots.bytes_received(series)]),
        (
            "Time",
            [
                plots.client_seconds(series),
                plots.server_seconds(series),
                plots.computing_and_transfer(series),
            ],
        ),
        ("Taking part", [plots.contributors(series), plots.dropouts(series)]),
        ("Data", labels),
    ]
    return [(title, plots.levelled([figure for figure in group if not figure.empty])) for title, group in groups]


def _group(title: str, figures: Sequence[plots.Figure]) -> Html:
    return element(
        "section",
        element("h2", title),
        element("div", *map(_card, figures), class_="grid"),
        id=title.lower().replace(" ", "-"),
    )


def _card(figure: plots.Figure) -> Html:
    """Show one plot with its title and caption, and a switch where it has several views."""
    buttons = [
        element(
            "button",
            view.label,
            type="button",
            aria_pressed="true" if number == 0 else "false",
            data_view=str(number),
        )
        for number, view in enumerate(figure.views)
    ]
    switch = element("div", *buttons, class_="switch", role="group", aria_label=f"Views of {figure.title}")
    save = element("button", "PNG", type="button", class_="save", aria_label=f"Save {figure.title} as a picture")
    return element(
        "figure",
        element("div", element("h3", figure.title), switch if len(buttons) > 1 else None, save, class_="title"),
        element("div", class_="plot", id=figure.id, role="img", aria_label=figure.description),
        element("figcaption", figure.caption),
        class_="card wide" if figure.wide else "card",
    )


def _partitions(runs: Sequence[Run]) -> list[tuple[LabelCounts, tuple[str, ...]]]:
    """Return each distinct partition once; the runs are named only when there are several."""
    named: dict[LabelCounts, list[str]] = {}
    for run in runs:
        if run.partition is not None and run.partition.counts:
            named.setdefault(run.partition, []).append(run.name)
    return [(partition, tuple(names) if len(named) > 1 else ()) for partition, names in named.items()]


def _partition_tables(runs: Sequence[Run]) -> list[Html]:
    return [
        label_counts(partition, f" of {', '.join(names)}" if names else "") for partition, names in _partitions(runs)
    ]


def _themes() -> dict[str, object]:
    return {
        name: {"tokens": theme.tokens(), "template": template(theme)}
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }


def _root_colors() -> Html:
    """Give the style sheet the same colours the plots use."""
    return trusted(f":root{{{_variables(LIGHT)}}}@media(prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}\n")


def _variables(theme: Theme) -> str:
    roles = {
        "ink": theme.ink,
        "soft": theme.soft,
        "grid": theme.grid,
        "surface": theme.surface,
        "bad": theme.bad,
    }
    runs = {f"run{index}": colour for index, colour in enumerate(theme.runs)}
    return "".join(f"--{name}:{colour};" for name, colour in (roles | runs).items())


def _policy(scripts: Sequence[str]) -> str:
    """Allow these scripts, Plotly's style attributes and the images it draws; nothing else, from nowhere."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _colophon(runs: Sequence[Run]) -> str:
    versions = dict.fromkeys(str(run.config["version"]) for run in runs if run.config.get("version"))
    made = f"sparsesecagg {' / '.join(versions)}" if versions else "sparsesecagg"
    simulated = ", the network is simulated" if any(r.transfer_seconds for run in runs for r in run.rounds) else ""
    return (
        f"{made}. Bytes are of real messages, computing is measured{simulated}. This page loads nothing from anywhere."
    )
