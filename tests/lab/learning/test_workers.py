"""Local training in worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.models import Model
from sparsesecagg.lab.learning.workers import Job, TrainingPool, WorkerError

from .support import small_task


def test_the_number_of_workers_changes_nothing() -> None:
    """Same updates and same evaluation, bit for bit, with one worker and with three."""
    config, task = small_task()
    seen = []
    for workers in (1, 3):
        with task.pool(config, workers) as pool:
            trained = list(pool.train(task.initial, [2, 0, 5, 9], round_number=4))
            evaluation = pool.evaluate(task.initial)
        assert [one.user for one in trained] == [2, 0, 5, 9]
        seen.append((np.stack([one.update for one in trained]), evaluation))
    assert np.array_equal(seen[0][0], seen[1][0]) and seen[0][1] == seen[1][1]


def test_users_and_rounds_differ() -> None:
    """Each user trains on its own samples, in a new order in each round."""
    config, task = small_task()
    with task.pool(config, 1) as pool:
        first, second = (list(pool.train(task.initial, [0, 1], number)) for number in (1, 2))
    updates = [one.update for one in first + second]
    assert len({update.tobytes() for update in updates}) == 4
    assert all(one.seconds > 0 for one in first)


def test_at_least_one_worker() -> None:
    """Zero is refused."""
    config, task = small_task()
    with pytest.raises(InvalidInput, match="at least 1"):
        task.pool(config, 0)


class Fatal(Model):
    """Ends its process in the middle of training, as the kernel does when memory is short."""

    def __init__(self, model):
        self.name, self.layers = "fatal", model.layers

    def initial(self, seed: int) -> Never:
        raise AssertionError

    def train_local(self, *_: Any) -> Never:
        os._exit(9)

    def evaluate(self, *_: Any) -> Never:
        raise AssertionError


def test_a_worker_that_dies_is_an_error_and_no_hang() -> None:
    """The error says what to try."""
    config, task = small_task()
    with (
        TrainingPool(Job(Fatal(task.model), task.dataset, task.partition, config.how, 0), 2) as pool,
        pytest.raises(WorkerError, match="memory"),
    ):
        list(pool.train(task.initial, [0, 1], 1))


PARENT = """
import time
from lab.learning.support import small_task
config, task = small_task()
pool = task.pool(config, 2)
print(*pool._pool._processes, flush=True)
time.sleep(60)
"""


def test_workers_end_when_their_parent_is_killed() -> None:
    """A killed parent can't tell them, and nobody should have to find them."""
    parent = subprocess.Popen(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in workers)


def alive(pid: int) -> bool:
    """Tell whether a process still runs; one that ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
