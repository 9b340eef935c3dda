"""Train the users of a round on all cores, with the same result on any number of them.

Every user's training is seeded by (seed, round, user) and runs in a worker process that uses one thread, also when
there is only one worker: sums of floats depend on how a library splits them among threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Self

import numpy as np

from sparsesecagg.errors import SparseSecAggError, require
from sparsesecagg.lab.learning.data import Dataset, Partition
from sparsesecagg.lab.learning.models import Evaluation, LocalTraining, Model, Vector
from sparsesecagg.lab.learning.seeds import Purpose, integer_seed

# Fixed, so that the sum of the parts does not depend on the number of workers.
_EVALUATION_PART = 1000
_PARENT_CHECK_SECONDS = 0.5
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # Of malloc.h.


class WorkerError(SparseSecAggError):
    """A worker process ended, most often because the machine ran out of memory."""


@dataclass(frozen=True)
class Trained:
    """What one user's local training gave."""

    user: int
    update: Vector  # trained parameters minus global parameters
    seconds: float


@dataclass(frozen=True)
class Job:
    """What workers need to know once: who trains what, and how."""

    model: Model
    dataset: Dataset
    partition: Partition
    how: LocalTraining
    seed: int


class TrainingPool:
    """Worker processes that hold the model and the data. A context manager."""

    def __init__(self, job: Job, workers: int | None = None) -> None:
        check_workers(workers)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = min(workers or cores, len(job.partition.indices))
        self._test_samples = len(job.dataset.test_y)
        # With fork, workers share the data with us and models need not be picklable. Elsewhere scripts need the
        # usual `if __name__ == "__main__":`.
        method = "fork" if sys.platform == "linux" else "spawn"
        self._pool = ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context(method),
            initializer=_start,
            initargs=(job, os.getpid()),
        )
        # Start them now: a process that already runs a display thread is a bad one to fork.
        with _ctrl_c_waits(), _naming_the_dead():
            list(self._pool.map(_nothing, range(self.workers)))

    def train(self, parameters: Vector, users: Sequence[int], round_number: int) -> Iterator[Trained]:
        """Yield the update of each of `users`, in this order, as they become ready."""
        with _naming_the_dead():
            yield from self._pool.map(_train, [(parameters, user, round_number) for user in users])

    def evaluate(self, parameters: Vector) -> Evaluation:
        """Evaluate on the whole test set."""
        starts = range(0, self._test_samples, _EVALUATION_PART)
        with _naming_the_dead():
            parts = self._pool.map(_evaluate, [(parameters, start) for start in starts])
            return sum(parts, Evaluation(0, 0.0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """End the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _naming_the_dead() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as problem:
        raise WorkerError(
            "a worker process ended unexpectedly; is there enough memory? --workers 1 needs less"
        ) from problem


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Hold Ctrl-C back until workers have started: they inherit that, and none dies of it half-way."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_workers(workers: int | None) -> None:
    """Raise `InvalidInput` unless there is at least one; None stands for all cores."""
    require("workers", workers is None or workers >= 1, f"must be at least 1, got {workers}")


# In a worker process

_job: Job


def _start(job: Job, parent: int) -> None:
    """Set a worker up: one job for life, one thread, and Ctrl-C left to the parent, as one answer to it will do."""
    global _job  # noqa: PLW0603
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(ImportError):
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    _keep_memory()


def _keep_memory() -> None:
    """Have freed arrays used again, where malloc is glibc's: else each step asks the system for zeroed pages anew.

    That is a tenth of the time of a step of McMahan's network.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        for option, size in ((_TRIM_THRESHOLD, 1 << 30), (_MMAP_THRESHOLD, 1 << 25)):  # It takes no larger ones.
            ctypes.CDLL(None).mallopt(option, size)


def _end_with(parent: int) -> None:
    # A killed parent can't tell its workers to stop; without this they would wait for work forever.
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


def _nothing(_: int) -> None:
    return None


def _train(task: tuple[Vector, int, int]) -> Trained:
    parameters, user, round_number = task
    data, own = _job.dataset, _job.partition.indices[user]
    seed = integer_seed(_job.seed, Purpose.LOCAL_TRAINING, round_number, user)
    started = time.perf_counter()
    after = _job.model.train_local(parameters, data.train_x[own], data.train_y[own], _job.how, seed)
    return Trained(user, np.subtract(after, parameters, dtype=np.float32), time.perf_counter() - started)


def _evaluate(task: tuple[Vector, int]) -> Evaluation:
    parameters, start = task
    data, part = _job.dataset, slice(start, start + _EVALUATION_PART)
    return _job.model.evaluate(parameters, data.test_x[part], data.test_y[part])
