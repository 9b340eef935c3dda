"""The plots, as data: valid for Plotly, one colour per run, stages in order."""

from pathlib import Path

import pytest

from lab.report.synthetic import SHAPES, write_run
from sparsesecagg.lab.report import plots
from sparsesecagg.lab.report.measures import measure
from sparsesecagg.lab.report.plots import MODEL, figure_groups
from sparsesecagg.lab.report.records import LabelCounts, Run, read_run

EXPECTED = {
    "accuracy-by-round",
    "accuracy-by-sent",
    "bytes-sent",
    "bytes-received",
    "contributors",
    "label-distribution-1",
}


def series_of(*runs: Run) -> list[plots.Series]:
    """Return runs as the plots see them."""
    return plots.series_of([measure(run) for run in runs])


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> list[plots.Series]:
    """Four runs, the first with a failed round."""
    folder = tmp_path_factory.mktemp("plots")
    return series_of(*(read_run(write_run(folder / name, name, failed=(7,) * (name == "sliced"))) for name in SHAPES))


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


def test_plotly_accepts_every_plot(figures: dict[str, plots.Figure]) -> None:
    """Plotly's own check knows every property and every colour."""
    objects = pytest.importorskip(
        "plotly.graph_objects", reason="plots are checked by Plotly: the learn extra is missing"
    )
    for figure in figures.values():
        objects.Figure(data=figure.data, layout=figure.layout)


def test_a_run_has_one_colour_everywhere(series: list[plots.Series], figures: dict[str, plots.Figure]) -> None:
    """In every trace that belongs to it, apart from the crosses of failed rounds."""
    colours = {s.name: s.color for s in series}
    for figure in figures.values():
        for trace in figure.data:
            if trace.get("name") in colours:
                assert trace["marker"]["color"] == colours[trace["name"]]


def test_accuracy_is_drawn_against_rounds_and_bytes(
    series: list[plots.Series], figures: dict[str, plots.Figure]
) -> None:
    """The same accuracies; the bytes end at what a user sent in all."""
    lines = [trace for trace in figures["accuracy-by-round"].data if trace["mode"] == "lines+markers"]
    for s, rounds, sent in zip(series, lines, figures["accuracy-by-sent"].data, strict=True):
        assert rounds["y"] == sent["y"] == [record.accuracy for record in s.run.rounds]
        assert sent["x"][-1] == pytest.approx(s.measures.sent_total / 1e6)


def test_bytes_turn_logarithmic_when_runs_differ_much(series: list[plots.Series]) -> None:
    """Nine times apart is logarithmic and says so; alike is linear from zero."""
    apart = plots.accuracy_by_bytes(series).layout["xaxis"]
    assert apart["type"] == "log"
    assert "logarithmic" in apart["title"]["text"]
    alike = plots.accuracy_by_bytes(series[:2]).layout["xaxis"]
    assert "type" not in alike
    assert alike["rangemode"] == "tozero"


def test_failed_rounds_are_crossed_with_their_reason(figures: dict[str, plots.Figure]) -> None:
    """In the plot by round."""
    crosses = [t for t in figures["accuracy-by-round"].data if t["name"].endswith(": failed")]
    assert [cross["x"] for cross in crosses] == [[7]]
    assert crosses[0]["customdata"] == ["22 users left at UNMASK, 26 are needed"]


def test_stages_come_in_the_order_of_the_protocol(figures: dict[str, plots.Figure]) -> None:
    """What is received begins with the model, where a run recorded it."""
    stages = ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"]
    assert figures["bytes-sent"].layout["yaxis"]["categoryarray"] == stages
    assert figures["bytes-received"].layout["yaxis"]["categoryarray"] == [MODEL, *stages]


def test_contributors_come_down_to_zero_on_both_sides(figures: dict[str, plots.Figure]) -> None:
    """SecAgg's one column of 35 has its neighbours 34 and 36 at zero."""
    secagg = next(t for t in figures["contributors"].data if t["name"] == "secagg")
    assert secagg["x"] == [34, 35, 36]
    assert secagg["y"] == pytest.approx([0, 1, 0])


def test_the_heat_map_has_a_row_for_each_class() -> None:
    """Counts stay with their client and class."""
    (heat,) = plots.label_distribution(LabelCounts(classes=("a", "b", "c"), counts=((1, 2, 3), (0, 5, 6))), 1).data
    assert (heat["x"], heat["y"], heat["z"]) == (["0", "1"], ["a", "b", "c"], [[1, 0], [2, 5], [3, 6]])


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    """Plotly sees run names, classes and reasons as text."""
    run = read_run(
        write_run(tmp_path / "run", "<b>x", rounds=3, failed=(2,), reason="<a href='#'>", classes=("<i>", "1"))
    )
    for _, group in figure_groups(series_of(run)):
        for figure in group:
            shown = repr((figure.data, figure.layout)).replace("<extra></extra>", "").replace("<br>", "")
            assert "<" not in shown


def test_a_run_without_rounds_draws_nothing_but_its_data(tmp_path: Path) -> None:
    """Empty plots are left out instead of being shown empty."""
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "metrics.jsonl").write_text("")
    shown = [figure.id for _, group in figure_groups(series_of(read_run(folder))) for figure in group]
    assert shown == ["label-distribution-1"]
