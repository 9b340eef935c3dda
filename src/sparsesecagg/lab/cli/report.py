"""`sparsesecagg report`: draw a run folder, or compare several, whichever engine wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsesecagg.cli.shared import JsonOption, out, print_json, say
from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.report import read_runs, summary_table, write_report
from sparsesecagg.lab.report.measures import Measures, measured
from sparsesecagg.lab.report.plots import write_pdf
from sparsesecagg.lab.report.results import TABLES, long_csv, table_text

_FILE = Path("report.html")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…",
            help="Run folders or comparisons, of `train` or of Flower (run_dir); files among them are skipped.",
        ),
    ],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="The page.", show_default="RUN/report.html, or report.html here for several"),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Print the table as Markdown (md) or LaTeX (latex), and nothing else.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write every figure of every round and seed to a CSV file, one row each.")
    ] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write the figures of accuracy as PDF into this folder.")] = None,
    json: JsonOption = False,
) -> None:
    """Write a page about training runs that opens offline, and print them as a table.

    Several folders are compared. Runs that differ only in the seed are one experiment: it shows their means, and the
    standard deviation of the accuracy.
    """
    require("table", table is None or table in TABLES, f"must be one of {', '.join(TABLES)}, got {table!r}")
    require("table", table is None or not json, "must not be given with --json, which prints the same figures")
    folders = [run for run in runs if not run.is_file()] or runs
    try:
        experiments = measured(read_runs(folders))
    except InvalidInput as problem:
        raise InvalidInput("runs", problem.problem) from None
    target = out_file or (folders[0] / _FILE if len(folders) == 1 else _FILE)
    _check("out", target, ".html")
    if csv is not None:
        _check("csv", csv, ".csv")
    require("pdf", pdf is None or not pdf.is_file(), f"must name a folder, got the file {str(pdf)!r}")
    page = write_report(folders, target)
    written = [] if pdf is None else write_pdf(folders, pdf)
    if csv is not None:
        write_atomically(csv, long_csv(folders))
        written.append(csv)
    if json:
        print_json({"report": str(page), "files": list(map(str, written)), "runs": list(map(_as_json, experiments))})
        return
    if table is not None:
        typer.echo(table_text(folders, table))
        return
    out.print(summary_table(folders))
    for path in (page, *written):
        say(f"{'Report' if path == page else 'Written'}: {path}")


def _check(option: str, target: Path, suffix: str) -> None:
    if target.is_dir() or target.suffix.lower() != suffix:
        got = "the folder " * target.is_dir() + repr(str(target))
        raise InvalidInput(option, f"must name a file that ends in {suffix}, got {got}")
    if not os.access(target.absolute().parent, os.W_OK):
        raise InvalidInput(option, f"must be in a folder that exists and can be written, got {str(target.parent)!r}")


def _as_json(measures: Measures) -> dict[str, Any]:
    return {
        "name": measures.run.name,
        "aggregator": measures.run.aggregator,
        "engine": str(measures.run.config.get("engine", "in_process")),
        "accuracy": measures.accuracy,
        "accuracy_deviation": measures.deviation,
        "seeds": measures.seeds,
        "rounds": measures.rounds,
        "failed_rounds": measures.failed,
        "upload_bytes_per_client_round": measures.upload_per_round,
        "sent_bytes_per_client_round": measures.sent_per_round,
        "received_bytes_per_client_round": measures.received_per_round,
        "computing_seconds": measures.computing_seconds,
        "transfer_seconds": measures.transfer_seconds,
    }
