"""What `train` shows while it works: bars on a terminal, a line now and then elsewhere. All on standard error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from sparsesecagg.cli.shared import bytes_text, err
from sparsesecagg.lab.learning.data.download import DownloadProgress
from sparsesecagg.lab.learning.federated import FederatedRun
from sparsesecagg.lab.learning.metrics import RoundLine

_LINES = 10  # per run, where there is no terminal


class RoundDisplay:
    """One bar per run: round, accuracy, what a user sent in the round (all messages, as in the table), survivors."""

    def __init__(self, progress: Progress, runs: Sequence[FederatedRun], compared: bool) -> None:
        self._progress = progress
        self._configs = [run.config for run in runs]
        self._names = [run.folder.path.name if compared else run.config.aggregator for run in runs]
        self._tasks = [
            progress.add_task(
                name, total=run.config.rounds, completed=run.round_number, accuracy="–", sent="–", survivors="–"
            )
            for name, run in zip(self._names, runs, strict=True)
        ]

    def round_done(self, number: int, done: RoundLine) -> None:
        """Show what a round came to."""
        config = self._configs[number]
        accuracy = f"{100 * (done.accuracy or 0):.1f} %"
        sent = bytes_text(done.all_sent_bytes)
        survivors = f"{done.survivors}/{config.cohort}"
        self._progress.update(
            self._tasks[number], completed=done.round, accuracy=accuracy, sent=sent, survivors=survivors
        )
        if done.reason is not None:
            line = f"round {done.round} failed, the model is as it was: {done.reason}; lower --dropout to lose fewer"
            err.print(f"{self._names[number]}: {line}", highlight=False, soft_wrap=True)
        due = done.round in (1, config.rounds) or done.round % max(1, config.rounds // _LINES) == 0
        if due and not err.is_terminal:
            line = f"accuracy {accuracy}, {sent} sent per user, {survivors} survivors"
            err.print(
                f"{self._names[number]}: round {done.round}/{config.rounds}, {line}", highlight=False, soft_wrap=True
            )


@contextmanager
def round_display(runs: Sequence[FederatedRun], compared: bool) -> Iterator[RoundDisplay]:
    """Show the rounds of all runs while the context lasts."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[sent]} sent per user"),
        TextColumn("{task.fields[survivors]} survivors"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield RoundDisplay(progress, runs, compared)


@contextmanager
def download_display() -> Iterator[DownloadProgress]:
    """Show downloads, if there are any."""
    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        tasks = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)

        yield show
