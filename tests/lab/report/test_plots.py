"""The plots, as data: valid for Plotly, one colour per run, stages in order, colours that everybody can tell apart."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.report.synthetic import SHAPES, write_run
from sparsesecagg.lab.report import plots
from sparsesecagg.lab.report.measures import Measures, measure
from sparsesecagg.lab.report.plots import BAD, DASHES, INK, MODEL, RUNS, SYMBOLS
from sparsesecagg.lab.report.records import LabelCounts, read_run

EXPECTED = {
    "accuracy-by-round",
    "accuracy-by-sent",
    "bytes-sent",
    "bytes-received",
    "contributors",
    "label-distribution-1",
}


@pytest.fixture(scope="module")
def measures(tmp_path_factory: pytest.TempPathFactory) -> list[Measures]:
    """Four runs, the first with a failed round."""
    folder = tmp_path_factory.mktemp("plots")
    return [measure(read_run(write_run(folder / name, name, failed=(7,) * (name == "sliced")))) for name in SHAPES]


@pytest.fixture(scope="module")
def figures(measures: list[Measures]) -> dict[str, plots.Figure]:
    """All plots of the four runs, by name."""
    return {figure.id: figure for figure in plots.figures(measures)}


def test_every_plot_is_there(figures: dict[str, plots.Figure]) -> None:
    """One of each kind, with a title and a caption."""
    assert set(figures) == EXPECTED
    for figure in figures.values():
        assert figure.title
        assert figure.caption


def test_plotly_accepts_every_plot(figures: dict[str, plots.Figure]) -> None:
    """Plotly's own check knows every property and every colour."""
    objects = pytest.importorskip(
        "plotly.graph_objects", reason="plots are checked by Plotly: the learn extra is missing"
    )
    for figure in figures.values():
        objects.Figure(data=figure.data, layout=figure.layout)


def test_a_run_has_one_colour_everywhere(measures: list[Measures], figures: dict[str, plots.Figure]) -> None:
    """In every trace that belongs to it, apart from the crosses of failed rounds."""
    colours = {m.run.name: RUNS[place] for place, m in enumerate(measures)}
    for figure in figures.values():
        for trace in figure.data:
            if trace.get("name") in colours:
                assert trace["marker"]["color"] == colours[trace["name"]]


def test_accuracy_is_drawn_against_rounds_and_bytes(measures: list[Measures], figures: dict[str, plots.Figure]) -> None:
    """The same accuracies; the bytes end at what a user sent in all."""
    lines = [trace for trace in figures["accuracy-by-round"].data if trace["mode"] == "lines+markers"]
    for m, rounds, sent in zip(measures, lines, figures["accuracy-by-sent"].data, strict=True):
        assert rounds["y"] == sent["y"] == [record.accuracy for record in m.run.rounds]
        assert sent["x"][-1] == pytest.approx(m.sent_total)


def test_bytes_turn_logarithmic_when_runs_differ_much(measures: list[Measures]) -> None:
    """Nine times apart is logarithmic and says so; alike is linear from zero."""
    runs = [m.run for m in measures]
    apart = plots.accuracy_by_bytes(runs).layout["xaxis"]
    assert apart["type"] == "log"
    assert "logarithmic" in apart["title"]["text"]
    alike = plots.accuracy_by_bytes(runs[:2]).layout["xaxis"]
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
    for figure in plots.figures([measure(run)]):
        shown = repr((figure.data, figure.layout)).replace("<extra></extra>", "").replace("<br>", "")
        assert "<" not in shown
    assert plots.plot_text('<a href="x">&amp;') == '&lt;a href="x"&gt;&amp;amp;'


def test_a_run_without_rounds_draws_nothing_but_its_data(tmp_path: Path) -> None:
    """Empty plots are left out instead of being shown empty."""
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "metrics.jsonl").write_text("")
    shown = [figure.id for figure in plots.figures([measure(read_run(folder))])]
    assert shown == ["label-distribution-1"]


Matrix = NDArray[np.float64]

# How dichromats see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN_BY = {
    "everyone": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopes": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)


def linear(colour: str) -> Matrix:
    """Return a #rrggbb colour in linear RGB."""
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2."""
    luminances = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)


def lab(rgb: Matrix) -> Matrix:
    """Return linear RGB as CIELAB, where distance is about how different colours look."""
    ratio = np.clip(TO_XYZ @ np.clip(rgb, 0, 1) / WHITE, 1e-9, None)
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_marks_and_text_stand_out_from_the_ground() -> None:
    """3:1 for graphics, 4.5:1 for text (WCAG 1.4.11 and 1.4.3)."""
    for colour in RUNS:
        assert contrast(colour, "#ffffff") >= 3
    for colour in (INK, BAD):
        assert contrast(colour, "#ffffff") >= 4.5


@pytest.mark.parametrize("who", SEEN_BY)
def test_runs_differ_for_everyone(who: str) -> None:
    """In CIELAB, where 2 is just noticeable: any two by 14, the four of the demo by 20."""
    for colours, apart in ((RUNS, 14), (RUNS[:4], 20)):
        seen = [lab(SEEN_BY[who] @ linear(colour)) for colour in colours]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) >= apart


def test_colour_is_never_the_only_sign() -> None:
    """No two runs share both marker and dash."""
    assert len(set(SYMBOLS)) == len(RUNS) == len(DASHES)
