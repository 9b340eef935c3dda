"""What runs came to, as people read it: the table, the headline and the words of figures."""

from pathlib import Path

import pytest
from rich.console import Console

from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.cli.shared import bytes_text, seconds_text
from sparsesecagg.lab.report import Run, read_run, summary_table
from sparsesecagg.lab.report.measures import measure, measured
from sparsesecagg.lab.report.records import merged
from sparsesecagg.lab.report.results import against, in_short, percent, readable, sentences, times, title, warning


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (64, "64 B"), (999.7, "1 kB"), (4432, "4.43 kB"), (6.65e6, "6.65 MB"), (2.5e12, "2,500 GB")],
)
def test_bytes_come_in_powers_of_a_thousand(value: float, text: str) -> None:
    """A megabyte is a million bytes, as in the paper; no figure has an exponent."""
    assert bytes_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2e-5, "20 µs"), (0.012, "12 ms"), (15.4, "15.4 s"), (90, "1.5 min"), (7200, "2 h"), (0, "0 µs")],
)
def test_seconds_come_in_their_best_unit(value: float, text: str) -> None:
    """From microseconds to hours."""
    assert seconds_text(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (19.7, "20 times less than SecAgg"),
        (2.42, "2.4 times less than SecAgg"),
        (1.0, "about as much as SecAgg"),
        (0.5, "2.0 times more than SecAgg"),
    ],
)
def test_ratios_are_said_in_words(ratio: float, text: str) -> None:
    """Less, the same, or more: never a flattering sign."""
    assert against(ratio, "SecAgg") == text


def test_absent_figures_are_a_dash() -> None:
    """Not a zero."""
    assert (percent(None), times(None), readable(None)) == ("–", "–", "–")
    assert (percent(0.9417), percent(0.9417, 0.0123), times(2.44), times(19.7)) == (
        "94.2 %",
        "94.2 ± 1.2 %",
        "2.4×",
        "20×",
    )


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(1.0, "all"), (0.2797, "28 %"), (1.97e-5, "0.002 %"), (2.4e-26, "about none"), (0, "only sums")],
)
def test_what_the_server_reads_may_be_very_little(fraction: float, text: str) -> None:
    """Without claiming that it is nothing."""
    assert readable(fraction) == text


def said(*runs: Run) -> tuple[str, list[str], str | None]:
    """Return headline, sentences and warning for these runs."""
    measures = measured(runs)
    return title(measures), list(sentences(measures)), warning(measures)


def run(folder: Path, aggregator: str, **more: object) -> Run:
    """Return a made-up run of 30 rounds."""
    return read_run(write_run(folder / aggregator, aggregator, **more))  # type: ignore[arg-type]


def test_a_comparison_says_accuracy_bytes_and_the_ratio_to_secagg(tmp_path: Path) -> None:
    """About the sliced, wherever it stands in the list."""
    secagg, sliced = run(tmp_path, "secagg"), run(tmp_path, "sliced")
    headline, under, _ = said(secagg, sliced)
    accuracy = 100 * (sliced.rounds[-1].accuracy or 0)
    assert headline == (
        f"sliced reaches {accuracy:.1f} % accuracy; "
        "each user sends 317 kB in 30 rounds, per round 8.9 times less than SecAgg"
    )
    assert under[0].startswith("With sliced each user sends 10.6 kB a round, 8.9 times less than with SecAgg")
    assert under[1] == "One seed per run: a difference of a point or so in accuracy may be chance."


def test_a_single_run_claims_no_ratio(tmp_path: Path) -> None:
    """SecAgg was not run beside it, or it is SecAgg itself."""
    for name in ("sliced", "secagg"):
        headline, under, _ = said(run(tmp_path, name))
        assert "less than" not in headline and "as much as" not in headline and under == []


def test_failures_are_told(tmp_path: Path) -> None:
    """How many, and in which run."""
    _, under, _ = said(run(tmp_path, "sliced", failed=(3, 4)))
    assert under == ["Rounds that failed and left the model as it was: 2 of 30 in sliced."]


def test_a_run_that_failed_altogether_claims_nothing(tmp_path: Path) -> None:
    """No accuracy, no bytes per round, no ratio."""
    headline, under, _ = said(run(tmp_path, "sliced", rounds=2, failed=(1, 2)))
    assert headline == "sliced: all 2 rounds failed"
    assert under == ["Rounds that failed and left the model as it was: 2 of 2 in sliced."]
    assert said(run(tmp_path / "1", "sliced", rounds=1, failed=(1,)))[0] == "sliced: the only round failed"


def test_a_run_without_rounds_says_so() -> None:
    """Instead of zeros that look like results."""
    empty = Run(name="sliced", config={"aggregator": "sliced", "dim": 10}, partition=None, rounds=())
    assert said(empty)[0] == "sliced: no round has finished yet"


def test_pairwise_comes_with_its_warning(tmp_path: Path) -> None:
    """Whenever it is among the runs, and only then; with the figure that theory expects where the run recorded it."""
    pairwise, sliced = run(tmp_path, "pairwise", expected_exposure=0.2797), run(tmp_path, "sliced")
    warned = said(sliced, pairwise)[2] or ""
    assert "not to protect" in warned and warned.endswith("expected to read 28 % of what users upload.")
    assert said(sliced)[2] is None


def test_several_seeds_come_with_their_spread(tmp_path: Path) -> None:
    runs = [run(tmp_path / str(seed), "sliced", seed=seed) for seed in range(3)]
    together = measure(merged(runs))
    assert together.seeds == 3 and together.deviation is not None
    _, under, _ = said(merged(runs), run(tmp_path, "secagg"))
    assert f"reaches {percent(together.accuracy, together.deviation)}, with SecAgg" in under[0]
    assert not any("chance" in sentence for sentence in under)


def test_a_comparison_ends_in_one_sentence(tmp_path: Path) -> None:
    """Bytes, accuracy and what the server sees, on whose condition; nothing to compare with, nothing said."""
    protected = {"expected_exposure": 0.0, "effective": {"anonymity": 40}}
    sliced, plain = run(tmp_path, "sliced", **protected), run(tmp_path, "plain")
    last = [100 * (each.rounds[-1].accuracy or 0) for each in (sliced, plain)]
    assert in_short(list(map(measure, (plain, sliced)))) == (
        "With sliced each user sends 10.6 kB a round, 8.3 times less than with plain training (87.4 kB); the model "
        f"reaches {last[0]:.1f} %, with plain training {last[1]:.1f} %; and a server that follows the protocol sees "
        "only sums of 40 honest users or more, never one user's update."
    )
    assert in_short([measure(sliced)]) is None
    roster = run(tmp_path / "a", "sliced", **{**protected, "effective": {"anonymity": 9, "authenticated": True}})
    assert "even a malicious server sees only sums of 9 honest" in (in_short(list(map(measure, (roster, plain)))) or "")


def printed(*folders: Path, width: int = 80) -> str:
    """Return the table as a terminal of this width shows it."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(summary_table(folders))
    return capture.get()


def test_it_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Every run, every heading, nothing cut."""
    text = printed(write_comparison(tmp_path / "all", expected_exposure=0.0, effective={"anonymity": 40}))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("Run", "Accuracy", "Rounds", "can read", "among", "less"):
        assert word in text


def test_rows_give_bytes_and_ratios_of_all_messages(tmp_path: Path) -> None:
    """What is not known of any run has no column."""
    rows = {line.split()[0]: line.split() for line in printed(write_comparison(tmp_path / "all")).splitlines() if line}
    assert rows["sliced"][3:] == ["30", "10.6", "kB", "8.9×"]
    assert "1.0×" in rows["secagg"]


def test_failed_rounds_are_counted(tmp_path: Path) -> None:
    """Under the number of rounds."""
    assert "2 failed" in printed(write_run(tmp_path / "run", failed=(2, 3)))


def test_what_was_not_measured_is_called_so(tmp_path: Path) -> None:
    """SecAgg's bytes when it was not run."""
    text = " ".join(printed(write_run(tmp_path / "run", rounds=2), width=300).split())
    assert "Times less: than SecAgg's UPLOAD of 32-bit words, which was not run" in text


def test_what_the_server_reads_and_whom_a_user_hides_among(tmp_path: Path) -> None:
    """From what the run recorded."""
    folders = [
        write_run(tmp_path / "a", rounds=2, expected_exposure=0.0, effective={"anonymity": 40}),
        write_run(tmp_path / "b", "pairwise", rounds=2, expected_exposure=0.28, effective={"anonymity": 1}),
        write_run(tmp_path / "c", "plain", rounds=2, expected_exposure=None),
    ]
    rows = {line.split()[0]: line for line in printed(*folders).splitlines() if line.strip()}
    assert rows["sliced"].rstrip().endswith("only sums  40 users")
    assert rows["pairwise"].rstrip().endswith("28 %    1 user")
    assert rows["plain"].rstrip().endswith("all         –")


def test_seeds_of_one_setting_are_summed_up(tmp_path: Path) -> None:
    """One row with mean and deviation, however the folders are called."""
    folders = [write_run(tmp_path / f"s{seed}", rounds=2, seed=seed) for seed in range(3)]
    text = " ".join(printed(*folders, width=200).split())
    assert text.count("sliced") == 1 and " ± " in text and "standard deviation over 3 seeds" in text


def test_runs_of_several_folders_share_a_table(tmp_path: Path) -> None:
    """A comparison counts as its runs."""
    text = printed(
        write_comparison(tmp_path / "all", ("secagg",), rounds=2), write_run(tmp_path / "one", "plain", rounds=2)
    )
    assert "secagg" in text
    assert "plain" in text


def test_names_are_not_read_as_markup(tmp_path: Path) -> None:
    """Rich would take [red] for a colour."""
    assert "[red]x" in printed(write_run(tmp_path / "run", "[red]x", rounds=1))
