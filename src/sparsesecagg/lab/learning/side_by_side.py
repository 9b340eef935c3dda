"""Run one run, or several one after the other, or at the same time, one process each.

One after the other is the default, so that seconds which are compared were not measured against each other's load. Much
of a round is one process's work (the server's, and in a simulation also the users' protocol), so two runs at once on
two cores are done in little more than the time of one. Results do not depend on it: a run's draws are its own.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.federated import FederatedRun
from sparsesecagg.lab.learning.metrics import RoundMetrics
from sparsesecagg.lab.learning.workers import WorkerError, available_cores, check_workers, follow

_WAIT_SECONDS = 0.2


class SideBySide:
    """Runs of one task, on `workers` cores. A context manager, which forks in the beginning: show progress after it."""

    def __init__(self, runs: Sequence[FederatedRun], workers: int | None = None, *, at_once: bool = False) -> None:
        self.runs = list(runs)
        """When all rounds are done: the runs as they then are."""
        check_workers(workers)
        cores = workers or available_cores()
        unfinished = [number for number, run in enumerate(self.runs) if not run.finished]
        slots = min(cores, len(unfinished)) if at_once and sys.platform == "linux" else 1
        self._stack = ExitStack()
        self._crew: _Crew | None = None
        if slots > 1:
            self._crew = self._stack.enter_context(_Crew(self.runs, unfinished, slots, max(1, cores // slots)))
        else:
            # All runs share the task, so one pool serves one after another.
            self._pool = self._stack.enter_context(self.runs[0].task.pool(self.runs[0].config, cores))

    def rounds(self) -> Iterator[tuple[int, RoundMetrics]]:
        """Yield (number of the run, metrics) of each round when it is done."""
        if self._crew is None:
            for number, run in enumerate(self.runs):
                for metrics in run.rounds(self._pool):
                    yield number, metrics
        else:
            yield from self._crew.rounds()
            self.runs = [FederatedRun.resume(run.folder.path, task=run.task) for run in self.runs]

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class _Crew:
    """One process per unfinished run, `slots` of them at work at any time."""

    def __init__(self, runs: Sequence[FederatedRun], unfinished: Sequence[int], slots: int, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        self._messages: Any = context.Queue()
        slot = context.Semaphore(slots)
        self._working = {
            number: context.Process(
                target=_work, args=(runs[number], number, workers, slot, self._messages, os.getpid())
            )
            for number in unfinished
        }
        for process in self._working.values():
            process.start()

    def rounds(self) -> Iterator[tuple[int, RoundMetrics]]:
        while self._working:
            try:
                number, what = self._messages.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                self._look_for_dead()
                continue
            if isinstance(what, RoundMetrics):
                yield number, what
                continue
            self._working.pop(number).join()
            if what is not None:
                raise what()

    def _look_for_dead(self) -> None:
        for process in self._working.values():
            if process.exitcode not in (None, 0):
                raise WorkerError(f"the process of a run ended with code {process.exitcode}; is there enough memory?")

    def __enter__(self) -> _Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._working.values():
            process.terminate()
            process.join()


class _Problem:
    """An error on its way to the parent process; errors with several arguments can't be pickled themselves."""

    def __init__(self, problem: Exception) -> None:
        self._invalid = (problem.option, problem.problem) if isinstance(problem, InvalidInput) else None
        self._text = f"{type(problem).__name__}: {problem}"

    def __call__(self) -> Exception:
        return InvalidInput(*self._invalid) if self._invalid else WorkerError(self._text)


def _work(run: FederatedRun, number: int, workers: int, slot: Any, messages: Any, parent: int) -> None:
    follow(parent)
    with slot:
        try:
            with run.task.pool(run.config, workers) as pool:
                for metrics in run.rounds(pool):
                    messages.put((number, metrics))
            messages.put((number, None))
        except Exception as problem:  # Whatever it is, the parent must hear of it.
            messages.put((number, _Problem(problem)))
