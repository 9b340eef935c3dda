"""The plots, as data: valid for Plotly, one colour per run, measured and modelled apart."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.report.synthetic import SHAPES, write_run
from sparsesecagg.lab.report import plots
from sparsesecagg.lab.report.measures import measure
from sparsesecagg.lab.report.page import figure_groups
from sparsesecagg.lab.report.palette import DARK, LIGHT, Theme, assign, painted
from sparsesecagg.lab.report.plots.base import template
from sparsesecagg.lab.report.plots.cost import COMPUTING, TRAINING, TRANSFER
from sparsesecagg.lab.report.records import LabelCounts, RoundLine, Run, read_run

EXPECTED = {
    "accuracy-by-round",
    "accuracy-by-megabyte",
    "loss-by-round",
    "bytes-sent",
    "bytes-received",
    "client-seconds",
    "server-seconds",
    "computing-and-transfer",
    "contributors",
    "dropouts",
    "label-distribution-1",
}


def series_of(*runs: Run) -> list[plots.Series]:
    """Return runs as the plots see them."""
    return plots.series_of([measure(run) for run in runs], assign([run.aggregator for run in runs]))


def drawn(figure: plots.Figure) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Return the data and layout of every view, the phone's included."""
    shapes = [(view.data, view.layout) for view in figure.views]
    return shapes + [(view.narrow["data"], view.narrow["layout"]) for view in figure.views if view.narrow]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> list[plots.Series]:
    """Four runs, the first with a failed round."""
    folder = tmp_path_factory.mktemp("plots")
    return series_of(
        *(read_run(write_run(folder / name, name, failed=(7,) * (name == "committee"))) for name in SHAPES)
    )


@pytest.fixture(scope="module")
def figures(series: list[plots.Series]) -> dict[str, plots.Figure]:
    """All plots of the four runs, by name."""
    return {figure.id: figure for _, group in figure_groups(series) for figure in group}


def test_every_plot_is_there(figures: dict[str, plots.Figure]) -> None:
    """One of each kind, with a title, a caption and words for those who can't see it."""
    assert set(figures) == EXPECTED
    for figure in figures.values():
        assert figure.title
        assert figure.caption
        assert figure.description.endswith(".")


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_plotly_accepts_every_plot(figures: dict[str, plots.Figure], theme: Theme) -> None:
    """Plotly's own check knows every property and every colour; a token left over would fail it."""
    objects = pytest.importorskip(
        "plotly.graph_objects", reason="plots are checked by Plotly: the learn extra is missing"
    )
    for figure in figures.values():
        for data, layout in drawn(figure):
            objects.Figure(data=painted(data, theme), layout={**painted(layout, theme), "template": template(theme)})


def test_a_run_has_one_colour_everywhere(series: list[plots.Series], figures: dict[str, plots.Figure]) -> None:
    """In every trace that belongs to it, apart from the crosses of failed rounds."""
    for figure in figures.values():
        for data, _ in drawn(figure):
            for trace in data:
                if "meta" in trace and trace["name"] != f"{series[0].name}: failed":
                    assert (
                        trace["marker" if "marker" in trace else "line"]["color"] == series[trace["meta"]["run"]].color
                    )


def test_accuracy_is_drawn_against_rounds_and_bytes(
    series: list[plots.Series], figures: dict[str, plots.Figure]
) -> None:
    """The same accuracies; the bytes end at what a user sent in all."""
    by_round = figures["accuracy-by-round"].views[0].data
    everything, upload = figures["accuracy-by-megabyte"].views
    lines = [trace for trace in by_round if trace["mode"] == "lines+markers"]
    for s, rounds, sent, uploaded in zip(series, lines, everything.data, upload.data, strict=True):
        assert rounds["y"] == sent["y"] == uploaded["y"] == [record.accuracy for record in s.run.rounds]
        assert sent["x"][-1] == pytest.approx(s.measures.sent_total / 1e6)
        assert uploaded["x"][-1] == pytest.approx(s.measures.upload_total / 1e6)


def test_bytes_turn_logarithmic_when_runs_differ_much(series: list[plots.Series]) -> None:
    """Nine times apart is logarithmic and says so; alike is linear from zero."""
    apart = plots.accuracy_by_megabyte(series).views[0].layout["xaxis"]
    assert apart["type"] == "log"
    assert "logarithmic" in apart["title"]["text"]
    alike = plots.accuracy_by_megabyte(series[:2]).views[0].layout["xaxis"]
    assert "type" not in alike
    assert alike["rangemode"] == "tozero"


def test_failed_rounds_are_crossed_with_their_reason(figures: dict[str, plots.Figure]) -> None:
    """In the plots by round and in the dropouts."""
    for name in ("accuracy-by-round", "dropouts"):
        crosses = [t for t in figures[name].views[0].data if t["name"].endswith(": failed")]
        assert [cross["x"] for cross in crosses] == [[7]]
        assert crosses[0]["customdata"] == ["22 users left at UNMASK, 26 are needed"]


def test_stages_come_in_the_order_of_the_protocol(figures: dict[str, plots.Figure]) -> None:
    """With local training before them, for scale."""
    stages = ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"]
    assert figures["bytes-sent"].views[0].layout["yaxis"]["categoryarray"] == stages
    assert figures["client-seconds"].views[0].layout["yaxis"]["categoryarray"] == [TRAINING, *stages]


def test_measured_and_modelled_time_share_no_bar(figures: dict[str, plots.Figure]) -> None:
    """Transfer has bars of its own, hatched and called simulated; no other plot of time contains it."""
    for trace in figures["computing-and-transfer"].views[0].data:
        assert trace["y"] == [COMPUTING, TRANSFER]
        assert trace["marker"]["pattern"]["shape"] == ["", "/"]
    assert "simulated" in TRANSFER
    assert "100 Mbit/s and 20 ms" in figures["computing-and-transfer"].caption
    for name in ("client-seconds", "server-seconds"):
        assert all(TRANSFER not in trace["y"] for trace in figures[name].views[0].data)


def test_contributors_come_down_to_zero_on_both_sides(figures: dict[str, plots.Figure]) -> None:
    """SecAgg's one column of 35 has its neighbours 34 and 36 at zero."""
    secagg = next(t for t in figures["contributors"].views[0].data if t["name"] == "secagg")
    assert secagg["x"] == [34, 35, 36]
    assert secagg["y"] == pytest.approx([0, 1, 0])


def test_dropouts_have_a_row_for_runs_that_lost_the_same_on_one_scale(
    series: list[plots.Series], figures: dict[str, plots.Figure]
) -> None:
    """Rows don't overlap, and the same height means the same number everywhere."""
    layout = figures["dropouts"].views[0].layout
    rows = [layout[f"yaxis{n}"] for n in ("", "2", "3")]
    assert "yaxis4" not in layout
    assert [note["text"] for note in layout["annotations"]] == ["committee", "pairwise, secagg", "plain"]
    assert len({tuple(row["range"]) for row in rows}) == 1
    for above, below in pairwise(rows):
        assert below["domain"][1] < above["domain"][0]
    committee = [t for t in figures["dropouts"].views[0].data if t["type"] == "bar" and t.get("meta") == {"run": 0}]
    assert [sum(column) for column in zip(*(t["y"] for t in committee), strict=True)] == [
        sum(record.dropped.values()) for record in series[0].run.rounds
    ]


def test_curves_that_coincide_are_named_and_drawn_in_different_widths(series: list[plots.Series]) -> None:
    twin = replace(series[0], index=1, measures=replace(series[0].measures, run=_renamed(series[0].run, "twin")))
    figure = plots.accuracy_by_round([series[0], twin, series[2]])
    assert "Curves that coincide: committee and twin." in figure.caption
    widths = [trace["line"]["width"] for trace in figure.views[0].data if "lines" in trace["mode"]]
    assert len(set(widths)) == 3
    assert "coincide" not in plots.accuracy_by_round(series[:2]).caption


def _renamed(run: Run, name: str) -> Run:
    return msgspec.structs.replace(run, name=name)


def test_a_run_without_dropouts_shows_an_empty_row() -> None:
    """That nobody dropped out is worth seeing."""
    run = Run(name="calm", config={}, partition=None, rounds=(RoundLine(round=1), RoundLine(round=2)))
    (trace,) = plots.dropouts(series_of(run)).views[0].data
    assert trace["y"] == [0, 0]


def test_the_heat_map_turns_for_the_phone() -> None:
    """Clients run along the page on a desktop and down on a phone; counts stay with their client and class."""
    partition = LabelCounts(classes=("a", "b", "c"), counts=((1, 2, 3), (0, 5, 6)))
    (view,) = plots.label_distribution(partition).views
    heat, bars = view.data
    assert (heat["x"], heat["y"], heat["z"]) == (["0", "1"], ["a", "b", "c"], [[1, 0], [2, 5], [3, 6]])
    assert bars["y"] == [6, 11]
    assert view.narrow is not None
    heat, bars = view.narrow["data"]
    assert (heat["x"], heat["y"], heat["z"]) == (["a", "b", "c"], ["0", "1"], [[1, 2, 3], [0, 5, 6]])
    assert heat["text"] == [["1", "2", "3"], ["", "5", "6"]]
    assert bars["x"] == [6, 11]


def test_counts_are_written_only_where_there_is_room() -> None:
    """A thousand clients show colours."""
    crowd = plots.label_distribution(LabelCounts(classes=("a",), counts=((1,),) * 1000))
    assert "text" not in crowd.views[0].data[0]


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    """Plotly sees run names, classes and reasons as text."""
    run = read_run(
        write_run(tmp_path / "run", "<b>x", rounds=3, failed=(2,), reason="<a href='#'>", classes=("<i>", "1"))
    )
    for _, group in figure_groups(series_of(run)):
        for figure in group:
            for data, layout in drawn(figure):
                shown = repr((data, layout)).replace("<extra></extra>", "").replace("<br>", "")
                assert "<" not in shown


def test_a_run_without_rounds_draws_nothing_but_its_data(tmp_path: Path) -> None:
    """Empty plots are left out instead of being shown empty."""
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "metrics.jsonl").write_text("")
    shown = [figure.id for _, group in figure_groups(series_of(read_run(folder))) for figure in group]
    assert shown == ["computing-and-transfer", "label-distribution-1"]
