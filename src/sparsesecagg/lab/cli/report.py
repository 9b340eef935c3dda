"""`sparsesecagg report`: draw a run folder, or compare several, whichever engine wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsesecagg.cli.shared import JsonOption, out, print_json
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.report import compare_runs, read_runs, summary_table, write_report
from sparsesecagg.lab.report.measures import Measures, measure

_FILE = Path("report.html")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Run folders or comparisons, of `train` or of Flower (run_dir)."),
    ],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="The page; RUN/report.html for one folder, else report.html here."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a page about training runs that opens offline, and print them as a table.

    Several folders are compared. Runs that differ in nothing but the seed are summed up as mean and standard deviation.
    """
    found = _read(runs)
    if out_file is None and len(runs) == 1:
        page = write_report(runs[0])
    else:
        target = out_file or _FILE
        _check(target)
        page = compare_runs(runs, target)
    if json:
        print_json({"report": str(page), "runs": [_as_json(measure(run)) for run in found]})
        return
    out.print(summary_table(runs))
    out.print(f"Report: {page}", highlight=False, soft_wrap=True)


def _read(folders: list[Path]) -> list[Any]:
    try:
        return list(read_runs(folders).runs)
    except InvalidInput as problem:
        raise InvalidInput("runs", problem.problem) from None


def _check(target: Path) -> None:
    if target.is_dir() or target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput("out", f"must name a file that ends in .html, got {str(target)!r}")
    if not target.absolute().parent.is_dir():
        raise InvalidInput("out", f"must be in an existing directory, got {str(target.parent)!r}: create it")
    if not os.access(target.absolute().parent, os.W_OK):
        raise InvalidInput("out", f"must be in a directory that can be written to, got {str(target.parent)!r}")


def _as_json(measures: Measures) -> dict[str, Any]:
    return {
        "name": measures.run.name,
        "aggregator": measures.run.aggregator,
        "engine": str(measures.run.config.get("engine", "in_process")),
        "accuracy": measures.accuracy,
        "rounds": measures.rounds,
        "failed_rounds": measures.failed,
        "upload_bytes_per_client_round": measures.upload_per_round,
        "sent_bytes_per_client_round": measures.sent_per_round,
        "received_bytes_per_client_round": measures.received_per_round,
        "computing_seconds": measures.computing_seconds,
        "transfer_seconds": measures.transfer_seconds,
    }
