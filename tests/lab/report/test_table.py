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
    text = printed(write_comparison(tmp_path / "all"))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("Run", "Accuracy", "Rounds", "puting", "Trans-"):
        assert word in text


def test_rows_give_bytes_and_ratios_of_upload_and_of_all(tmp_path: Path) -> None:
    """Megabytes of all messages; the ratio of UPLOAD first."""
    rows = {line.split()[0]: line.split() for line in printed(write_comparison(tmp_path / "all")).splitlines() if line}
    assert rows["committee"][3:] == ["30", "10.6", "kB", "317", "kB", "20×/8.9×", "15.4", "s", "1.51", "s"]
    assert "1.0×/1.0×" in rows["secagg"]


def test_failed_rounds_are_counted(tmp_path: Path) -> None:
    """Under the number of rounds."""
    assert "2 failed" in printed(write_run(tmp_path / "run", failed=(2, 3)))


def test_what_was_not_measured_is_called_so(tmp_path: Path) -> None:
    """The simulated network always; SecAgg's bytes when it was not run."""
    text = " ".join(printed(write_run(tmp_path / "run", rounds=2), width=300).split())
    assert "transfer modelled on a simulated network" in text
    assert "SecAgg's is computed, it was not run" in text


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
