"""`sparsesecagg train`: federated training; what decides the final model is an option of `TrainingConfig`."""

from __future__ import annotations

import inspect
import json as json_format
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_type_hints

from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from sparsesecagg.cli import shared
from sparsesecagg.cli.errors import EXIT_INTERRUPTED, Ended
from sparsesecagg.cli.shared import JsonOption, err, option, out, say
from sparsesecagg.errors import InvalidInput, MissingExtra, require
from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.lab.learning.aggregators import PATTERN_OF, SLICED, SPARSE
from sparsesecagg.lab.learning.api import batches_of, create_runs, new_run_folder, plan_runs, resume_runs
from sparsesecagg.lab.learning.config import ROUND_OPTIONS, TrainingConfig, option_names
from sparsesecagg.lab.learning.federated import RECORDED, FederatedRun
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.lab.learning.workers import WorkerError, check_workers
from sparsesecagg.lab.report import read_runs, summary_table, write_report
from sparsesecagg.lab.report.measures import measured
from sparsesecagg.lab.report.results import in_short
from sparsesecagg.planning.planner import advice
from sparsesecagg.protocol import RoundOptions

_FILES = "Files and processes"
_LINES = 10  # Of progress for a run, where there is no terminal.
_MASKED = ("modulus_bits", "threshold", "colluding", "first_clip", "normalisation", "keys_arrive")
_USED_WITH: dict[str, tuple[str, Sequence[str]]] = {
    "alpha": ("aggregator", sorted(SPARSE)),
    "gain": ("aggregator", [SLICED]),
    "group_size": ("aggregator", [SLICED]),
    "neighbours": ("aggregator", [name for name in PATTERN_OF if name != "secagg"]),
    **dict.fromkeys(_MASKED, ("aggregator", list(PATTERN_OF))),
    "shards": ("partition", ["shards"]),
    "concentration": ("partition", ["dirichlet"]),
    "hidden": ("model", ["mlp"]),
    "downlink_bits": ("downlink", ["steps"]),
    "attack": ("malicious", []),
}
"""Options that only some values of another one use; with none named, all but its default."""


@dataclass(frozen=True)
class RunOptions:
    """What does not decide the final model, and several runs at once."""

    compare: str | None = option(
        None,
        "Aggregators to compare, each with its own α, bits or both if need be: sliced:0.1:8,secagg.",
        panel="Aggregation",
    )
    seeds: str | None = option(
        None, "Run once with each of these seeds, such as 0,1,2: mean and deviation.", panel="Task"
    )
    config_file: Path | None = option(
        None,
        "Options in a TOML file, or in the config.json of a run; lists make one run for each value. Options given here "
        "win.",
        names=("--config",),
        panel=_FILES,
    )
    data_dir: Path | None = option(
        None, "Folder of the data files.", "$SPARSESECAGG_DATA, else they are downloaded", panel=_FILES
    )
    out_dir: Path | None = option(None, "New folder for the run.", "one in runs/", names=("--out",), panel=_FILES)
    resume: Path | None = option(None, "Continue the run or comparison in this folder.", panel=_FILES)
    workers: int | None = option(None, "Processes to use.", "all cores", panel=_FILES)


def train(*, json: JsonOption = False, **options: Any) -> None:
    """Train a model across simulated users, aggregating with the real protocol, and report bytes, time and accuracy.

    Keys, masks and messages are real; users, dropouts and the network are simulated.
    """
    asked = RunOptions(**{each.name: options.pop(each.name) for each in fields(RunOptions)})
    given = _given(options, asked.config_file)
    for several, text, name in (("compare", asked.compare, "aggregator"), ("seeds", asked.seeds, "seed")):
        if text is None:
            continue
        if name in options and options[name] is not None:
            raise InvalidInput(several, f"must not be given with --{name}: put all of them into --{several}")
        require(several, asked.resume is None, "must not be given with --resume: the folder says which runs it holds")
        given[name] = [part.strip() for part in text.split(",")] if several == "compare" else _seeds(text)
    if asked.resume is not None and asked.out_dir is not None:
        raise InvalidInput("out", "must not be given with --resume: a run resumes in its own folder")
    check_workers(asked.workers)
    if asked.resume is None:
        configs = plan_runs(given)
        run_dir = asked.out_dir or new_run_folder(next(iter(configs.values())), compared="" not in configs)
        runs = create_runs(configs, run_dir, data_dir=asked.data_dir)
    else:
        run_dir = asked.resume
        runs = resume_runs(run_dir, given, data_dir=asked.data_dir)
    _advise(runs)
    _train(runs, run_dir, asked.workers)
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
        yield shared.parameter(name, kind | None, None, {**words[name], "shown": shown})


# These stand in the place of `**options`.
shared.show(
    train, [*_options(), *shared.parameters(RunOptions), inspect.signature(train, eval_str=True).parameters["json"]]
)


def _given(options: Mapping[str, Any], config_file: Path | None) -> dict[str, Any]:
    """Return the options that were given, on the command line or in the file, which may be a run's config.json."""
    stored: dict[str, Any] = {}
    if config_file is not None:
        try:
            text = config_file.read_text("utf-8")
            stored = json_format.loads(text) if config_file.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError) as problem:
            raise InvalidInput("config", f"must be a TOML or JSON file, got {config_file}: {problem}") from None
        if not isinstance(stored, dict):
            raise InvalidInput("config", f"must hold options with names, got a list or a value in {config_file}")
        recorded = RECORDED if config_file.suffix == ".json" else ()
        stored = {name.replace("-", "_"): value for name, value in stored.items() if name not in recorded}
        if unknown := sorted(set(stored) - set(option_names())):
            raise InvalidInput("config", f"must hold options of train, got {unknown[0]!r} in {config_file}")
    return stored | {name: value for name, value in options.items() if value is not None}


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(set(numbers)) != len(parts):
        raise InvalidInput("seeds", f"must be different whole numbers separated by commas, got {text!r}")
    return numbers


def _train(runs: Sequence[FederatedRun], run_dir: Path, workers: int | None) -> None:
    """Train the runs one after the other, so that their seconds can be compared."""
    try:
        for batch in batches_of(runs):
            # A pool forks, so it comes before the display's thread.
            with batch[0].task.pool(batch[0].config, workers) as pool, _display(batch, len(runs) > 1) as tell:
                for number, run in enumerate(batch):
                    for line in run.rounds(pool):
                        tell(number, line)
    except WorkerError as problem:
        raise Ended(f"{problem}; --resume {run_dir} resumes the run") from problem
    except KeyboardInterrupt:
        resume = f"sparsesecagg train --resume {run_dir} resumes the run"
        raise Ended(f"interrupted: {resume}", EXIT_INTERRUPTED) from None


@contextmanager
def _display(runs: Sequence[FederatedRun], compared: bool) -> Iterator[Callable[[int, RoundLine], None]]:
    """Show the rounds of all runs on standard error: a bar per run on a terminal, a line now and then elsewhere."""
    with shared.progress(MofNCompleteColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn()) as bar:
        names = [run.folder.path.name if compared else run.config.aggregator for run in runs]
        tasks = [
            bar.add_task(name, total=run.config.rounds, completed=run.round_number, figures="")
            for name, run in zip(names, runs, strict=True)
        ]

        def tell(number: int, done: RoundLine) -> None:
            config, name = runs[number].config, names[number]
            accuracy, sent = f"accuracy {100 * (done.accuracy or 0):.1f} %", shared.bytes_text(done.all_sent_bytes)
            figures = f"{accuracy}, {sent} sent per user, {done.survivors}/{config.cohort} survivors"
            bar.update(tasks[number], completed=done.round, figures=figures)
            if done.reason is not None:
                failed = f"round {done.round} failed, the model is as it was: {done.reason}"
                say(f"{name}: {failed}; lower --dropout to lose fewer", err)
            due = done.round in (1, config.rounds) or done.round % max(1, config.rounds // _LINES) == 0
            if due and not err.is_terminal:
                say(f"{name}: round {done.round}/{config.rounds}, {figures}", err)

        yield tell


def _advise(runs: Sequence[FederatedRun]) -> None:
    """Say where settings are not used, protect little or fail often."""
    sentences: dict[str, None] = {}
    for name, (other, values) in _USED_WITH.items():
        default = TrainingConfig().value(name)
        given = [run.config.value(name) for run in runs if run.config.value(name) != default]
        found = [run.config.value(other) for run in runs]
        if given and not any(value in values if values else value for value in found):
            needed = " or ".join(f"--{other} {value}" for value in values) or f"--{other}"
            said = f"--{name.replace('_', '-')}" + f" {given[0]}" * (given[0] is not True)
            sentences[f"{said} is not used without {needed}"] = None
    for run in runs:
        if isinstance(run.aggregator, SecureAggregator):
            sentences |= dict.fromkeys(advice(run.aggregator.parameters))
    for sentence in sentences:
        shared.note(sentence)


def _finish(runs: Sequence[FederatedRun], run_dir: Path, json: bool) -> None:
    """Write the report, then print what came out."""
    report = None
    try:
        report = str(write_report(run_dir))
    except MissingExtra as problem:
        shared.note(f"no report was written: {problem}")
    if json:
        shared.print_json(_as_json(runs, run_dir, report))
        return
    out.print(summary_table([run_dir]))
    say(f"\nRun folder: {run_dir}")
    if report:
        say(f"Report: {report}")
    if sentence := in_short(measured(read_runs([run_dir]))):
        out.print(f"\n{sentence}", highlight=False, markup=False)


def _as_json(runs: Sequence[FederatedRun], run_dir: Path, report: str | None) -> dict[str, Any]:
    """Return the contract's keys: of the run, or of the first experiment, which has one or more seeds, and of each."""
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
