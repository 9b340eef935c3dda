"""Opening a large round with one thread and with two: each takes away some of the masks, and ciphers run in parallel.

Two runs with the same users take turns, so that a busy moment of the machine hits both alike. What is compared is the
server's last step: secrets are restored, and the masks that are left are taken away. A third run with a tiny model
shows what of it is the same for every model (messages, secret sharing, agreements) and stays in one thread; as many
masks added up on their own show what two threads gain where nothing else is to do.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from benchmarks.setting import ANYBODY, Setting
from benchmarks.systems import parameters
from sparsesecagg.crypto.secrets import MaskSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.masks import Mask, add_whole
from sparsesecagg.protocol import Parameters, Stage
from sparsesecagg.simulate import InProcessRun

COUNTS = (1, 2)
SERIAL = 0
_TINY = 1000


def measure(clients: int = 100, dim: int = 10_000_000, repeats: int = 7) -> dict[str, Any]:
    """Return the median seconds of opening a round, by the number of threads, and how many times as fast two are."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    setting = Setting(clients, dim, alpha=0.1, dropout=0.1, modulus_bits=16)
    # Two sets of users drop out in turn: who misses one round still has a package in the next, but not in a third.
    order = np.random.default_rng(0).permutation(clients)
    silent = [part.tolist() for part in (order[: clients // 10], order[-(clients // 10) :])]
    runs = {count: InProcessRun(parameters("sliced", setting), ANYBODY) for count in COUNTS}
    for count, run in runs.items():
        run.server.threads = count
    runs[SERIAL] = InProcessRun(parameters("sliced", setting, dim=_TINY), ANYBODY)
    seconds: dict[int, list[float]] = {count: [] for count in runs}
    exact = True
    with command.progress() as bar:
        for turn in bar.track(range(repeats + 1), description="rounds"):
            for count, run in runs.items():
                outcome = run.round(
                    partial(_cut, setting, run.params.dim), drops=dict.fromkeys(silent[turn % 2], Stage.UPLOAD)
                )
                seconds[count].append(outcome.server_seconds[Stage.UNMASK.name])
                exact &= outcome.exact
    alone = _masks_alone(runs[1].params, clients - len(silent[0]), len(silent[0]), repeats)
    medians = {count: float(np.median(values[1:])) for count, values in seconds.items()}  # The first warms up.
    return {
        "seconds": {str(count): medians[count] for count in COUNTS},
        "serial_seconds": medians[SERIAL],
        "speedup": medians[1] / medians[2],
        "masks_seconds": {str(count): alone[count] for count in COUNTS},
        "masks_speedup": alone[1] / alone[2],
        "exact": exact,
        "settings": {**setting.settings(), "repeats": repeats},
    }


def _masks_alone(params: Parameters, survivors: int, dropped: int, repeats: int) -> dict[int, float]:
    """Return the median seconds of adding up as many masks as such a round leaves, by the number of threads."""
    word, length = params.word, round(params.dim * params.alpha)
    seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(repeats):
        for count in COUNTS:
            # Private ones of the survivors, and of each dropped user one with every survivor.
            streams = [MaskStream(MaskSeed(os.urandom(32)), word) for _ in range(survivors * (1 + dropped))]
            sums, before = word.zeros((length,)), time.perf_counter()
            add_whole(sums, [Mask(stream, positive=True) for stream in streams], word, count)
            seconds[count].append(time.perf_counter() - before)
    return {count: float(np.median(values)) for count, values in seconds.items()}


def _cut(setting: Setting, dim: int, user: int) -> NDArray[np.float32]:
    return setting.update(user)[:dim]
