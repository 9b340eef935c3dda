"""`sparsesecagg train`: federated training with an aggregator of one's choice.

What decides the final model is an option of `TrainingConfig`, and its option here is made from that. The others are
written out below.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, get_type_hints

import typer

from sparsesecagg.cli.errors import Failed, Interrupted
from sparsesecagg.cli.shared import JsonOption, err, out, print_json
from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.cli.train_display import download_display, round_display
from sparsesecagg.lab.learning.aggregators import OTHER_NAMES, make_aggregator
from sparsesecagg.lab.learning.api import new_run_folder
from sparsesecagg.lab.learning.comparison import create_comparison, is_comparison, resume_comparison
from sparsesecagg.lab.learning.config import AUTO, ROUND_OPTIONS, Explained, TrainingConfig, option_names
from sparsesecagg.lab.learning.federated import FederatedRun, Task
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.lab.learning.workers import WorkerError, check_workers
from sparsesecagg.lab.report import compare_runs, summary_table
from sparsesecagg.planning.advice import advice
from sparsesecagg.protocol import RoundOptions

_FILES = "Files and processes"


def train(
    *,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Aggregators to run on the same seeds, with α or bits if need be: sliced:0.1:8,secagg,plain.",
            rich_help_panel="Aggregation",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Run once with each of these seeds, such as 0,1,2: mean and deviation.", rich_help_panel="Task"
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="Options in a TOML file; those given here win.", rich_help_panel=_FILES),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the data files.",
            show_default="$SPARSESECAGG_DATA, else they are downloaded",
            rich_help_panel=_FILES,
        ),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="New folder for the run.", show_default="one in runs/", rich_help_panel=_FILES),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run or comparison in this folder.", rich_help_panel=_FILES)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes to use.", show_default="all cores", rich_help_panel=_FILES)
    ] = None,
    json: JsonOption = False,
    **options: Any,
) -> None:
    """Train a model across simulated users, aggregating with the real protocol, and report bytes, time and accuracy.

    Keys, masks and messages are real; users, dropouts and the network are simulated.
    """
    given = _given(options, config_file)
    entries = None if compare is None else [entry.strip() for entry in compare.split(",")]
    if entries is not None and "aggregator" in given:
        raise InvalidInput("compare", "and --aggregator exclude each other: put all names into --compare")
    if resume is not None and out_dir is not None:
        raise InvalidInput("out", "and --resume exclude each other: a run resumes in its own folder")
    if seeds is not None and (resume is not None or "seed" in given):
        raise InvalidInput("seeds", "must not be given with --seed or --resume")
    check_workers(workers)
    if seeds is None:
        base, wanted = None, [(given, out_dir)]
    else:
        base = out_dir or new_run_folder(TrainingConfig.create(**given), compared=entries is not None)
        wanted = [({**given, "seed": seed}, base / f"seed-{seed}") for seed in _seeds(seeds)]
    trained = [_train(one, entries, folder, resume, data_dir, workers) for one, folder in wanted]
    _finish(trained, base or trained[0].run_dir, json)
    for run in (run for one in trained for run in one.runs):
        run.require_progress()


def _options() -> Iterator[inspect.Parameter]:
    """Yield an option for each one of `TrainingConfig`; None unless given, so that --resume knows what was asked."""
    hints = get_type_hints(TrainingConfig) | get_type_hints(RoundOptions)
    defaults = TrainingConfig()
    explained: dict[str, Explained] = dict(ROUND_OPTIONS)
    explained |= {field.name: field.metadata["explained"] for field in fields(TrainingConfig) if field.metadata}
    for name in option_names():
        panel, text, shown, names = explained[name]
        kind = str if name == "gain" else hints[name]
        default = defaults.value(name)
        if kind is bool:
            names = (f"--{name.replace('_', '-')}",)
        option = typer.Option(
            *names,
            help=text,
            show_default=shown or (False if default is None or default is False else str(default)),
            rich_help_panel=panel,
        )
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
        )


def _with_options(signature: inspect.Signature) -> inspect.Signature:
    """Put the options of `TrainingConfig` in the place of `**options`."""
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=[*_options(), *own])


# Typer reads the signature and the annotations.
_SIGNATURE = _with_options(inspect.signature(train, eval_str=True))
train.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
train.__annotations__ = {name: each.annotation for name, each in _SIGNATURE.parameters.items()}


def _given(options: Mapping[str, Any], config_file: Path | None) -> dict[str, Any]:
    """Return the options that were given, on the command line or in the file."""
    stored: dict[str, Any] = {}
    if config_file is not None:
        try:
            stored = tomllib.loads(config_file.read_text("utf-8"))
        except (OSError, ValueError) as problem:
            raise InvalidInput(
                "config", f"must be a TOML file that can be read, got {config_file}: {problem}"
            ) from None
        stored = {name.replace("-", "_"): value for name, value in stored.items()}
        if unknown := sorted(set(stored) - set(option_names())):
            raise InvalidInput("config", f"must hold options of train, got {unknown[0]!r} in {config_file}")
    given = stored | {name: value for name, value in options.items() if value is not None}
    if isinstance(gain := given.get("gain"), str) and gain != AUTO:
        try:
            given["gain"] = float(gain)
        except ValueError:
            raise InvalidInput("gain", f"must be a number of at least 1, or {AUTO}, got {gain!r}") from None
    if "aggregator" in given:
        given["aggregator"] = OTHER_NAMES.get(given["aggregator"], given["aggregator"])
    if given.get("weights") == "samples":
        given["weights"] = "examples"
    return given


def _seeds(text: str) -> list[int]:
    numbers = [part.strip() for part in text.split(",")]
    if len(set(numbers)) != len(numbers) or not all(part.isdecimal() for part in numbers):
        raise InvalidInput("seeds", f"must be different whole numbers separated by commas, got {text!r}")
    return [int(part) for part in numbers]


@dataclass(frozen=True)
class _Trained:
    """A run or a comparison, and its folder."""

    runs: list[FederatedRun]
    run_dir: Path

    def to_json(self, report: str | None) -> dict[str, Any]:
        """Return the contract's keys, of the first run and beside them of each."""
        each = {run.folder.path.name: {**run.summary().to_json(), "report": report} for run in self.runs}
        first = {**next(iter(each.values())), "run_dir": str(self.run_dir)}
        return {**first, "runs": each} if is_comparison(self.run_dir) else first


def _train(
    given: dict[str, Any],
    entries: Sequence[str] | None,
    out_dir: Path | None,
    resume: Path | None,
    data_dir: Path | None,
    workers: int | None,
) -> _Trained:
    """Train one run, or those of a comparison one after the other, so that their seconds can be compared."""
    if resume:
        runs, run_dir = _resumed(resume, given, entries, data_dir), resume
    else:
        config = TrainingConfig.create(**given)
        with download_display() as progress:
            task = Task.prepare(config, data_dir=data_dir, progress=progress)
        run_dir = out_dir or new_run_folder(config, compared=entries is not None)
        runs = (
            [FederatedRun.create(config, task, run_dir)]
            if entries is None
            else create_comparison(config, entries, task, run_dir)
        )
    try:
        _advise(runs)
        # All runs share the task, so one pool serves them; it forks, so it comes before the display's thread.
        with runs[0].task.pool(runs[0].config, workers) as pool, round_display(runs) as show:
            for number, run in enumerate(runs):
                for line in run.rounds(pool):
                    show.round_done(number, line)
    except WorkerError as problem:
        raise Failed(f"{problem}; --resume {run_dir} resumes the run") from problem
    except KeyboardInterrupt:
        raise Interrupted(f"sparsesecagg train --resume {run_dir} resumes the run") from None
    return _Trained(runs, run_dir)


def _resumed(
    run_dir: Path, given: dict[str, Any], entries: Sequence[str] | None, data_dir: Path | None
) -> list[FederatedRun]:
    if is_comparison(run_dir):
        return resume_comparison(run_dir, given, data_dir=data_dir, entries=entries)
    if entries is not None:
        raise InvalidInput("resume", f"{run_dir} holds no comparison: leave --compare out")
    return [FederatedRun.resume(run_dir, given, data_dir=data_dir)]


def _advise(runs: Sequence[FederatedRun]) -> None:
    """Say where settings protect little or fail often."""
    for run in runs:
        aggregator = make_aggregator(run.config, run.task.model, run.task.initial)
        for sentence in advice(aggregator.parameters) if isinstance(aggregator, SecureAggregator) else ():
            err.print(f"[yellow]note:[/yellow] {sentence}.", highlight=False, soft_wrap=True)


def _finish(trained: Sequence[_Trained], run_dir: Path, json: bool) -> None:
    """Write the report, then print what came out."""
    folders, report = [one.run_dir for one in trained], None
    try:
        report = str(compare_runs(folders, run_dir / "report.html"))
    except MissingExtra as problem:
        err.print(f"[yellow]note:[/yellow] no report was written: {problem}.", highlight=False, soft_wrap=True)
    if json:
        results = [one.to_json(report) for one in trained]
        print_json(results[0] if folders == [run_dir] else _over_seeds(trained, results, run_dir))
        return
    out.print(summary_table(folders))
    out.print(f"Run folder: {run_dir}", highlight=False, soft_wrap=True)
    if report:
        out.print(f"Report: {report}", highlight=False, soft_wrap=True)


def _over_seeds(trained: Sequence[_Trained], results: list[dict[str, Any]], run_dir: Path) -> dict[str, Any]:
    """Return the first seed's figures with the accuracies of all: mean and standard deviation."""

    def accuracies(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        values = [each["accuracy"] for each in found]
        return {"accuracy": fmean(values), "accuracy_deviation": stdev(values) if len(values) > 1 else None}

    seeds = {str(one.runs[0].config.seed): result for one, result in zip(trained, results, strict=True)}
    top = {**results[0], **accuracies(results), "run_dir": str(run_dir), "seeds": seeds}
    if "runs" in top:
        top["runs"] = {
            name: {**run, **accuracies([result["runs"][name] for result in results])}
            for name, run in results[0]["runs"].items()
        }
    return top
