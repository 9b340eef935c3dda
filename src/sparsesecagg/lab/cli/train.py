"""`sparsesecagg train`: federated training with an aggregator of one's choice.

What decides the final model is an option of `TrainingConfig`, and its option here is made from that. The others are
written out below.
"""

from __future__ import annotations

import inspect
import json as json_format
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, get_type_hints

import typer

from sparsesecagg.cli.errors import Failed, Interrupted
from sparsesecagg.cli.options import parameter, show
from sparsesecagg.cli.shared import JsonOption, note, out, print_json
from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.cli.train_display import download_display, round_display
from sparsesecagg.lab.learning.aggregators import make_aggregator
from sparsesecagg.lab.learning.api import new_run_folder
from sparsesecagg.lab.learning.comparison import batches_of, create_runs, is_comparison, plan_runs, resume_runs
from sparsesecagg.lab.learning.config import ROUND_OPTIONS, TrainingConfig, option_names
from sparsesecagg.lab.learning.federated import RECORDED, FederatedRun, Task
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.lab.learning.workers import WorkerError, check_workers
from sparsesecagg.lab.report import read_runs, summary_table, write_report
from sparsesecagg.lab.report.headline import in_short
from sparsesecagg.planning.advice import advice
from sparsesecagg.protocol import RoundOptions

_FILES = "Files and processes"


def train(
    *,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Aggregators to compare, each with its own α, bits or both if need be: sliced:0.1:8,secagg.",
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
        typer.Option(
            "--config",
            help="Options in a TOML file, or in the config.json of a run; lists make one run for each value. Options "
            "given here win.",
            rich_help_panel=_FILES,
        ),
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
    for option, text, name in (("compare", compare, "aggregator"), ("seeds", seeds, "seed")):
        if text is None:
            continue
        if name in options and options[name] is not None:
            raise InvalidInput(option, f"must not be given with --{name}: put all of them into --{option}")
        if resume is not None:
            raise InvalidInput(option, "must not be given with --resume: the folder says which runs it holds")
        given[name] = [part.strip() for part in text.split(",")] if option == "compare" else _seeds(text)
    if resume is not None and out_dir is not None:
        raise InvalidInput("out", "must not be given with --resume: a run resumes in its own folder")
    check_workers(workers)
    if resume is not None:
        run_dir, runs = resume, _resumed(resume, given, data_dir)
    else:
        configs = plan_runs(given)
        several = any(isinstance(value, list) for value in given.values())
        run_dir = out_dir or new_run_folder(next(iter(configs.values())), compared=several)
        runs = _created(configs, run_dir, several, data_dir)
    _advise(runs)
    _train(runs, run_dir, workers)
    _finish(runs, run_dir, json)
    for run in runs:
        run.require_progress()


def _options() -> Iterator[inspect.Parameter]:
    """Yield an option for each one of `TrainingConfig`; None unless given, so that --resume knows what was asked."""
    hints = get_type_hints(TrainingConfig) | get_type_hints(RoundOptions)
    words = ROUND_OPTIONS | {field.name: field.metadata for field in fields(TrainingConfig) if field.metadata}
    for name in option_names():
        kind, default = str if name == "gain" else hints[name], TrainingConfig().value(name)
        shown = words[name].get("shown") or (None if default is None or default is False else str(default))
        yield parameter(name, kind | None, None, {**words[name], "shown": shown})


_OWN = inspect.signature(train, eval_str=True).parameters.values()
# The options of `TrainingConfig` stand in the place of `**options`.
show(train, [*_options(), *(each for each in _OWN if each.kind is not inspect.Parameter.VAR_KEYWORD)])


def _given(options: Mapping[str, Any], config_file: Path | None) -> dict[str, Any]:
    """Return the options that were given, on the command line or in the file, which may be a run's config.json."""
    stored: dict[str, Any] = {}
    if config_file is not None:
        try:
            text = config_file.read_text("utf-8")
            stored = json_format.loads(text) if config_file.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError) as problem:
            raise InvalidInput(
                "config", f"must be a TOML or JSON file that can be read, got {config_file}: {problem}"
            ) from None
        if not isinstance(stored, dict):
            raise InvalidInput("config", f"must hold options with names, got a list or a value in {config_file}")
        recorded = RECORDED if config_file.suffix == ".json" else ()
        stored = {name.replace("-", "_"): value for name, value in stored.items() if name not in recorded}
        if unknown := sorted(set(stored) - set(option_names())):
            raise InvalidInput("config", f"must hold options of train, got {unknown[0]!r} in {config_file}")
    return stored | {name: value for name, value in options.items() if value is not None}


def _seeds(text: str) -> list[int]:
    numbers = [part.strip() for part in text.split(",")]
    if len(set(numbers)) != len(numbers) or not all(part.isdecimal() for part in numbers):
        raise InvalidInput("seeds", f"must be different whole numbers separated by commas, got {text!r}")
    return [int(part) for part in numbers]


def _created(
    configs: Mapping[str, TrainingConfig], run_dir: Path, several: bool, data_dir: Path | None
) -> list[FederatedRun]:
    """Make the folder of one run, or one with a run folder for each of several."""
    with download_display() as progress:
        if several:
            return create_runs(configs, run_dir, data_dir=data_dir, progress=progress)
        (config,) = configs.values()
        return [FederatedRun.create(config, Task.prepare(config, data_dir=data_dir, progress=progress), run_dir)]


def _resumed(run_dir: Path, given: Mapping[str, Any], data_dir: Path | None) -> list[FederatedRun]:
    if is_comparison(run_dir):
        return resume_runs(run_dir, given, data_dir=data_dir)
    return [FederatedRun.resume(run_dir, given, data_dir=data_dir)]


def _train(runs: Sequence[FederatedRun], run_dir: Path, workers: int | None) -> None:
    """Train the runs one after the other, so that their seconds can be compared."""
    try:
        for batch in batches_of(runs):
            # A pool forks, so it comes before the display's thread.
            with batch[0].task.pool(batch[0].config, workers) as pool, round_display(batch, len(runs) > 1) as show:
                for number, run in enumerate(batch):
                    for line in run.rounds(pool):
                        show.round_done(number, line)
    except WorkerError as problem:
        raise Failed(f"{problem}; --resume {run_dir} resumes the run") from problem
    except KeyboardInterrupt:
        raise Interrupted(f"sparsesecagg train --resume {run_dir} resumes the run") from None


def _advise(runs: Sequence[FederatedRun]) -> None:
    """Say where settings protect little or fail often."""
    sentences: dict[str, None] = {}
    for run in runs:
        aggregator = make_aggregator(run.config, run.task.model, run.task.initial)
        sentences |= dict.fromkeys(advice(aggregator.parameters) if isinstance(aggregator, SecureAggregator) else ())
    for sentence in sentences:
        note(sentence)


def _finish(runs: Sequence[FederatedRun], run_dir: Path, json: bool) -> None:
    """Write the report, then print what came out."""
    report = None
    try:
        report = str(write_report(run_dir))
    except MissingExtra as problem:
        note(f"no report was written: {problem}")
    if json:
        print_json(_as_json(runs, run_dir, report))
        return
    out.print(summary_table([run_dir]))
    out.print(f"\nRun folder: {run_dir}", highlight=False, soft_wrap=True)
    if report:
        out.print(f"Report: {report}", highlight=False, soft_wrap=True)
    if sentence := in_short(read_runs([run_dir])):
        out.print(f"\n{sentence}", highlight=False, markup=False)


def _as_json(runs: Sequence[FederatedRun], run_dir: Path, report: str | None) -> dict[str, Any]:
    """Return the contract's keys: of the run, or of the first experiment and beside them of each.

    An experiment is what has the same options but for the seed; over several seeds its figures are means.
    """
    experiments: dict[str, dict[str, dict[str, Any]]] = {}
    for run in runs:
        seed = str(run.config.seed)
        name = run.folder.path.name.removesuffix(f"-seed-{seed}")
        experiments.setdefault(name, {})[seed] = {**run.summary().to_json(), "report": report}
    each = {name: _over_seeds(seeds) for name, seeds in experiments.items()}
    first = {**next(iter(each.values())), "run_dir": str(run_dir)}
    return {**first, "runs": each} if len(each) > 1 else first


def _over_seeds(seeds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of one experiment: its only run's, or means over its seeds, with the deviation of accuracy."""
    first, *others = seeds.values()
    if not others:
        return first
    averaged = ("accuracy", "rounds", "reached_target_at", "upload_bytes_per_client_round", "total_upload_bytes")
    columns = {key: [seed[key] for seed in seeds.values()] for key in averaged}
    means = {key: None if None in values else fmean(values) for key, values in columns.items()}
    return {**first, **means, "accuracy_deviation": stdev(columns["accuracy"]), "seeds": seeds}
