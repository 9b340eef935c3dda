"""The closing table of a training run."""

from pathlib import Path

from rich.console import Console

from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.lab.report import summary_table


def printed(*folders: Path, width: int = 80) -> str:
    """Return the table as a terminal of this width shows it, with plain spaces."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(summary_table(folders))
    return capture.get().replace("\u00a0", " ").replace("\u202f", " ")


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
    assert "Times less: than SecAgg's UPLOAD, which was not run" in text


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
