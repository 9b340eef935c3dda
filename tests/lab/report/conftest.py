"""Reports on made-up runs, written once per test process."""

from pathlib import Path
from typing import Any

import pytest

from lab.report.synthetic import write_comparison, write_run
from sparsesecagg.lab.report import write_report

# What a hostile run folder might hold. None of it may become markup or code.
NASTY = '</script><img src=x onerror="window.pwned=1"><b>\'&amp;\u2028%{y}'


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a comparison of four aggregators, one with a failed round."""
    return write_report(write_comparison(tmp_path_factory.mktemp("runs") / "comparison"))


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on one run with two failed rounds."""
    return write_report(write_run(tmp_path_factory.mktemp("runs") / "single", failed=(4, 9)))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a run folder full of markup."""
    folder = tmp_path_factory.mktemp("runs") / "hostile"
    options: dict[str, Any] = {"model": NASTY, "dataset": NASTY, NASTY: NASTY, "version": NASTY}
    write_run(folder, NASTY, rounds=6, failed=(3,), reason=NASTY, classes=(NASTY, "<i>1", "2"), **options)
    return write_report(folder)
