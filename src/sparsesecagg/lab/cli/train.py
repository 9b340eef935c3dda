"""`sparsesecagg train`: federated training with an aggregator of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsesecagg.cli.errors import Failed, Interrupted
from sparsesecagg.cli.shared import WEIGHTS, JsonOption, err, out, print_json
from sparsesecagg.lab.cli.train_display import download_display, round_display
from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.learning.aggregators import AGGREGATORS, failing_pods, make_aggregator, thin_committees
from sparsesecagg.lab.learning.api import new_run_folder
from sparsesecagg.lab.learning.comparison import create_comparison, is_comparison, note_shared_cores, resume_comparison
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.data import DATASETS, PARTITIONS
from sparsesecagg.lab.learning.federated import FederatedRun, Task
from sparsesecagg.lab.learning.models import MODELS
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.lab.learning.side_by_side import SideBySide
from sparsesecagg.lab.learning.tensorboard import write_events
from sparsesecagg.lab.learning.workers import WorkerError, check_workers
from sparsesecagg.planning.advice import advice
from sparsesecagg.protocol import Parameters
from sparsesecagg.lab.report import summary_table, write_report


def _panel(title: str) -> Callable[..., Any]:
    """Return a maker of options, shown together; they stay None unless given, so that --resume knows what was asked."""

    def option(text: str, default: object = None, name: str | None = None) -> Any:
        shown = False if default is None else str(default)
        return typer.Option(*([name] if name else []), help=text, show_default=shown, rich_help_panel=title)

    return option


_task = _panel("Task")
_aggregation = _panel("Aggregation")
_simulated = _panel("Faults and network, simulated")
_local = _panel("Local training")
_files = _panel("Files and processes")

_DIGITS = TrainingConfig.create("digits")
_MANY = 0.05
"""Failing rounds beyond this fraction are worth a note."""
_MANY_THIN = 0.2
"""And so are thin committees beyond this one."""


def train(
    dataset: Annotated[str | None, _task(f"One of {', '.join(DATASETS)}.", "digits")] = None,
    partition: Annotated[
        str | None, _task(f"How samples are dealt out to users: {', '.join(PARTITIONS)}.", _DIGITS.partition)
    ] = None,
    clients: Annotated[int | None, _task("Users (N), at least 3.", _DIGITS.clients)] = None,
    rounds: Annotated[int | None, _task("Rounds to train; with --resume it may grow.", _DIGITS.rounds)] = None,
    aggregator: Annotated[
        str | None,
        typer.Option(
            "--aggregator",
            "--pattern",
            help=f"One of {', '.join(AGGREGATORS)}; full is secagg.",
            show_default=_DIGITS.aggregator,
            rich_help_panel="Aggregation",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        _aggregation("Aggregators to run on the same seeds, with bits if need be: committee:8,secagg,plain."),
    ] = None,
    alpha: Annotated[
        float | None, _aggregation("Fraction of the model that each user sends (α), in (0, 1].", _DIGITS.alpha)
    ] = None,
    dropout: Annotated[
        float | None, _simulated("Chance that a user drops out of a round (θ); simulated.", _DIGITS.dropout)
    ] = None,
    drop_at: Annotated[
        str | None,
        _simulated("Stages before whose message users drop out, separated by commas, or ANY.", _DIGITS.drop_at),
    ] = None,
    colluding: Annotated[
        float | None, _simulated("Fraction of users that help the server (γ), for the expected exposure.", 0)
    ] = None,
    target_accuracy: Annotated[float | None, _task("Stop when the test accuracy reaches this, such as 0.95.")] = None,
    modulus_bits: Annotated[int | None, _aggregation("Bits of a word, 4 to 32.", "16 for committee, else 32")] = None,
    committee_size: Annotated[
        int | None, _aggregation("Users per committee, who mask together.", "N divided by 1/α")
    ] = None,
    pod_size: Annotated[
        int | None, _aggregation("Users per pod, who hold each other's shares.", "all, up to about 128")
    ] = None,
    neighbours: Annotated[
        int | None,
        _aggregation("Degree of mask and share graph; not with committee.", "complete; secagg-plus: by θ"),
    ] = None,
    threshold: Annotated[int | None, _aggregation("Shares that restore a secret.", "a majority")] = None,
    min_survivors: Annotated[
        int | None, _aggregation("Survivors without which a committee's sum stays closed.", "half of a committee")
    ] = None,
    normalisation: Annotated[
        str | None, _aggregation("Divide by observed contributors or by the expected number.", _DIGITS.normalisation)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            "--weighting",
            help="How users count in the mean: uniform, or by examples. Weights are masked, but over many rounds with "
            "dropouts the server can solve for them.",
            show_default=_DIGITS.weighting,
            rich_help_panel="Aggregation",
        ),
    ] = None,
    first_clip: Annotated[
        float | None, _aggregation("Clip of the first round; later ones follow the aggregate.", "as the first weights")
    ] = None,
    authenticated: Annotated[
        bool | None,
        _aggregation("Use a roster of identities, and confirm the survivors.", name="--authenticated"),
    ] = None,
    model: Annotated[str | None, _task(f"One of {', '.join(MODELS)}.", "by data set")] = None,
    hidden: Annotated[int | None, _task("Hidden units of the model mlp.", _DIGITS.hidden)] = None,
    epochs: Annotated[int | None, _local("Local epochs per round.", 5)] = None,
    batch: Annotated[int | None, _local("Samples per local step.", "28; digits: 10")] = None,
    lr: Annotated[float | None, _local("Local learning rate.", "0.01; digits: 0.1")] = None,
    momentum: Annotated[float | None, _local("Local momentum.", 0.5)] = None,
    samples: Annotated[int | None, _task("Use only this many training samples.", "all")] = None,
    shards: Annotated[int | None, _task("Shards of the partition shards.", _DIGITS.shards)] = None,
    concentration: Annotated[float | None, _task("Evenness of the partition dirichlet.", _DIGITS.concentration)] = None,
    classes_per_client: Annotated[
        int | None, _task("Classes of each user in the partition pathological.", _DIGITS.classes_per_client)
    ] = None,
    bandwidth_mbit: Annotated[
        float | None, _simulated("Each user's line in Mbit/s; simulated.", _DIGITS.bandwidth_mbit)
    ] = None,
    latency_ms: Annotated[float | None, _simulated("Latency of that line; simulated.", _DIGITS.latency_ms)] = None,
    downlink: Annotated[
        str | None, _simulated("How the model goes down to users: steps or model (whole).", _DIGITS.downlink)
    ] = None,
    downlink_bits: Annotated[
        int | None, _simulated("Bits per coordinate of a step: 2, 4 or 8.", _DIGITS.downlink_bits)
    ] = None,
    data_dir: Annotated[
        Path | None, _files("Folder of the data files.", "$SPARSESECAGG_DATA, else they are downloaded")
    ] = None,
    out_dir: Annotated[Path | None, _files("New folder for the run.", "one in runs/", "--out")] = None,
    resume: Annotated[Path | None, _files("Go on with the run or comparison in this folder.")] = None,
    workers: Annotated[int | None, _files("Processes to use.", "all cores")] = None,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Run the aggregators of --compare at the same time: sooner done, but seconds can't be compared.",
            rich_help_panel="Files and processes",
        ),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write TensorBoard events as well.", rich_help_panel="Files and processes"),
    ] = False,
    json: JsonOption = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed of everything random in the simulation.", show_default="0")
    ] = None,
) -> None:
    """Train a model across simulated users, aggregating with the real protocol, and report bytes, time and accuracy.

    Keys, masks and messages are real; users, dropouts and the network are simulated.
    """
    given = {
        name: value
        for name, value in {
            "dataset": dataset,
            "partition": partition,
            "clients": clients,
            "rounds": rounds,
            "aggregator": "secagg" if aggregator == "full" else aggregator,
            "alpha": alpha,
            "dropout": dropout,
            "drop_at": drop_at,
            "colluding": colluding,
            "target_accuracy": target_accuracy,
            "modulus_bits": modulus_bits,
            "committee_size": committee_size,
            "pod_size": pod_size,
            "neighbours": neighbours,
            "threshold": threshold,
            "min_survivors": min_survivors,
            "normalisation": normalisation,
            "weighting": _weighting(weights),
            "first_clip": first_clip,
            "authenticated": authenticated,
            "model": model,
            "hidden": hidden,
            "epochs": epochs,
            "batch": batch,
            "lr": lr,
            "momentum": momentum,
            "samples": samples,
            "shards": shards,
            "concentration": concentration,
            "classes_per_client": classes_per_client,
            "bandwidth_mbit": bandwidth_mbit,
            "latency_ms": latency_ms,
            "downlink": downlink,
            "downlink_bits": downlink_bits,
            "seed": seed,
        }.items()
        if value is not None
    }
    entries = None if compare is None else [entry.strip() for entry in compare.split(",")]
    if entries is not None and aggregator is not None:
        raise InvalidInput("compare", "and --aggregator exclude each other: put all names into --compare")
    if resume is not None and out_dir is not None:
        raise InvalidInput("out", "and --resume exclude each other: a run resumes in its own folder")
    check_workers(workers)
    runs, run_dir = _resume(resume, given, entries, data_dir) if resume else _begin(out_dir, given, entries, data_dir)
    if at_once and is_comparison(run_dir):
        note_shared_cores(run_dir)
    try:
        _advise(runs)
        with SideBySide(runs, workers, at_once=at_once) as work, round_display(runs) as show:
            for number, metrics in work.rounds():
                show.round_done(number, metrics)
    except WorkerError as problem:
        raise Failed(f"{problem}; --resume {run_dir} resumes the run") from problem
    except KeyboardInterrupt:
        raise Interrupted(f"sparsesecagg train --resume {run_dir} resumes the run") from None
    if tensorboard:
        for run in work.runs:
            write_events(run.folder.path / "tensorboard", run.folder.metrics())
    _finish(work.runs, run_dir, json)
    for run in work.runs:
        run.require_progress()


def _weighting(weights: str | None) -> str | None:
    """Return what a run folder calls the weights that the command line has one word for everywhere."""
    known = {"uniform": "uniform", "examples": "samples", "samples": "samples"}
    if weights is not None and weights not in known:
        raise InvalidInput("weights", f"must be one of {', '.join(WEIGHTS)}, got {weights!r}")
    return None if weights is None else known[weights]


def _begin(
    out_dir: Path | None, given: dict[str, Any], entries: Sequence[str] | None, data_dir: Path | None
) -> tuple[list[FederatedRun], Path]:
    config = TrainingConfig.create(**given)
    with download_display() as progress:
        task = Task.prepare(config, data_dir=data_dir, progress=progress)
    run_dir = out_dir or new_run_folder(config, compared=entries is not None)
    if entries is not None:
        return create_comparison(config, entries, task, run_dir), run_dir
    return [FederatedRun.create(config, task, run_dir)], run_dir


def _resume(
    run_dir: Path, given: dict[str, Any], entries: Sequence[str] | None, data_dir: Path | None
) -> tuple[list[FederatedRun], Path]:
    if is_comparison(run_dir):
        return resume_comparison(run_dir, given, data_dir=data_dir, entries=entries), run_dir
    if entries is not None:
        raise InvalidInput("resume", f"{run_dir} holds no comparison: leave --compare out")
    return [FederatedRun.resume(run_dir, given, data_dir=data_dir)], run_dir


def _advise(runs: Sequence[FederatedRun]) -> None:
    for run in runs:
        aggregator = make_aggregator(run.config, run.task.model, run.task.initial)
        if isinstance(aggregator, SecureAggregator):
            params = aggregator.parameters
            sentences = [*advice(params), *_losses(params)]
            for sentence in sentences:
                err.print(f"[yellow]note:[/yellow] {sentence}.", highlight=False, soft_wrap=True)


def _losses(params: Parameters) -> list[str]:
    """Say what dropouts will cost, where it is much."""
    sentences = []
    failing, thin = failing_pods(params), thin_committees(params)
    if failing > _MANY:
        what = "rounds will fail" if params.pods == 1 else "pods will lose their slices in a round"
        sentences.append(
            f"about {100 * failing:.0f} % of {what}, with fewer than {params.threshold} users left: lower --dropout"
        )
    elif params.committees > 1 and thin > _MANY_THIN:
        sentences.append(
            f"about {100 * thin:.0f} % of committees will lose their slices in a round, with fewer than "
            f"{params.min_survivors} survivors: raise --committee-size, or lower --min-survivors or --dropout"
        )
    return sentences


def _finish(runs: Sequence[FederatedRun], run_dir: Path, json: bool) -> None:
    """Write the reports, then print what came out."""
    folders = [run.folder.path for run in runs]
    reports: dict[Path, str | None] = dict.fromkeys([run_dir, *folders])
    try:
        for folder in reports:
            reports[folder] = str(write_report(folder))
    except MissingExtra as problem:
        err.print(f"[yellow]note:[/yellow] no report was written: {problem}.", highlight=False, soft_wrap=True)
    if json:
        results = {
            run.folder.path.name: {**run.summary().to_json(), "report": reports[run.folder.path]} for run in runs
        }
        top = {**next(iter(results.values())), "run_dir": str(run_dir), "report": reports[run_dir]}
        print_json({**top, "runs": results} if is_comparison(run_dir) else top)
        return
    out.print(summary_table([run_dir]))
    out.print(f"Run folder: {run_dir}", highlight=False, soft_wrap=True)
    if reports[run_dir]:
        out.print(f"Report: {reports[run_dir]}", highlight=False, soft_wrap=True)
