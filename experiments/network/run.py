"""Time rounds of 25 processes on real lines of 100 Mbit/s, and write results/network.json.

    sudo .venv/bin/python -m experiments.network.run [--users 25]

Every user is a process in a network namespace of its own, whose line the kernel limits in both directions
(`experiments/network/lines.py`). All users of this machine share its cores, those of a deployment do not, so a user
prepares its upload first and sends it when everybody is ready: the seconds of a transfer are then those of the line,
also on a busy machine, and computing is counted in processor time. Nobody trains. The paper names no latency, and none
is added. Three rounds of each system, the median counts; 7 of 25 users drop out at UPLOAD.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
import numpy as np
import typer

from experiments.common.results import ROOT, commit, machine
from experiments.common.rounds import exactly_dropped, majority
from experiments.common.training import DROPOUT, PAIRWISE, SECAGG, System, sliced_short
from experiments.network.lines import Line, lines
from experiments.network.talk import Kind, receive, send
from sparsesecagg import __version__
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.learning.aggregators import PATTERN_OF
from sparsesecagg.protocol import Parameters, RoundOptions, Server

RESULTS = ROOT / "results" / "network.json"
MBIT, REPEATS = 100.0, 3
DIMS = {"cifar-cnn": 165_122, "mnist-cnn": 1_663_370}
"""Model → parameters, as in `reproduce clock`."""


def main(users: int = 25, out: Path = RESULTS, repeats: int = REPEATS, dims: list[int] | None = None) -> None:
    """Measure all systems and save."""
    measured: list[dict[str, Any]] = []
    with ExitStack() as stack:
        cohort = stack.enter_context(Users(stack.enter_context(lines(users, MBIT))))
        for dim in dims or DIMS.values():
            for system in (SECAGG, PAIRWISE, sliced_short(users)):
                measured.append(measure(cohort, system, users, dim, repeats))
                print(f"d = {dim:,}, {system.label}: {measured[-1]['seconds']}", flush=True)
    result = {
        "command": "python -m experiments.network.run",
        "version": __version__,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**machine(), "load": round(os.getloadavg()[0], 2)},
        "configuration": {"users": users, "mbit": MBIT, "dropout": DROPOUT, "repeats": repeats, "latency_ms": 0},
        "rounds": measured,
    }
    write_atomically(out, json.dumps(result, indent=1) + "\n")


class Users:
    """The processes of all users, and the sockets to them."""

    def __init__(self, laid: Sequence[Line]) -> None:
        self._laid = laid
        self._stack = ExitStack()
        self.sockets: dict[int, socket.socket] = {}

    def __enter__(self) -> Users:
        """Start them, and wait until all are there."""
        listening = self._stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=len(self._laid)))  # noqa: S104
        port = listening.getsockname()[1]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        for user, line in enumerate(self._laid):
            words = (sys.executable, "-m", "experiments.network.user", line.server, str(port), str(user))
            process = subprocess.Popen(line.command(*words), cwd=ROOT, env=environment)  # noqa: S603
            self._stack.callback(_end, process)
        for _ in self._laid:
            one = self._stack.enter_context(listening.accept()[0])
            _, said = receive(one)
            self.sockets[struct.unpack("<I", said)[0]] = one
        self._threads = self._stack.enter_context(ThreadPoolExecutor(len(self._laid)))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets.values():
            send(one, Kind.END)
        self._stack.close()

    def ask(self, kind: Kind, messages: Mapping[int, bytes]) -> tuple[dict[int, bytes], float]:
        """Send each user its message at once; return the answers, and the seconds until the last one was there."""

        def one(user: int) -> tuple[int, bytes]:
            send(self.sockets[user], kind, messages[user])
            return user, receive(self.sockets[user])[1]

        began = time.perf_counter()
        answers = dict(self._threads.map(one, messages))
        return answers, time.perf_counter() - began


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(cohort: Users, system: System, users: int, dim: int, repeats: int) -> dict[str, Any]:
    """Return the median seconds of some rounds by part, and what a line of so many Mbit/s takes for the same bytes."""
    options = RoundOptions(
        pattern=PATTERN_OF[system.aggregator],
        alpha=system.alpha,
        threshold=majority(users),
        dropout=DROPOUT,
        modulus_bits=system.modulus_bits,
    )
    rounds = [one_round(cohort, Parameters.create(users, dim, options), number) for number in range(repeats)]
    seconds = {part: median(one["seconds"][part] for one in rounds) for part in rounds[0]["seconds"]}
    sizes = rounds[-1]["bytes"]
    modelled = {part: 8 * size / (1e6 * MBIT) for part, size in sizes.items()}
    seconds["round"] = median(sum(one["seconds"].values()) for one in rounds)
    modelled["round"] = seconds["user"] + seconds["server"] + sum(modelled.values())
    about = {"dim": dim, "system": system.aggregator, "label": system.label, "modulus_bits": system.modulus_bits}
    return {**about, "bytes": sizes, "seconds": _rounded(seconds), "modelled": _rounded(modelled)}


def one_round(cohort: Users, params: Parameters, number: int) -> dict[str, dict[str, float]]:
    """Set a run up, and time its first round."""
    server, everybody = Server(params), range(params.clients)
    dropped = exactly_dropped(params.clients, DROPOUT, np.random.default_rng(number))
    keys, _ = cohort.ask(Kind.PARAMETERS, dict.fromkeys(everybody, params.encode()))
    for user, answer in keys.items():
        server.receive(user, answer)
    packages, _ = cohort.ask(Kind.EPOCH_KEYS, server.close_stage())
    for user, answer in packages.items():
        for package in msgspec.msgpack.decode(answer):
            server.receive(user, package)

    model = os.urandom(4 * params.dim)
    _, down = cohort.ask(Kind.MODEL, dict.fromkeys(everybody, model))
    computing = time.process_time()
    headers = {user: data for user, data in server.begin_round().items() if user not in dropped}
    computing = time.process_time() - computing
    ready, _ = cohort.ask(Kind.HEADER, headers)
    uploads, up = cohort.ask(Kind.SEND, dict.fromkeys(headers, b""))
    began = time.process_time()
    for user, answer in uploads.items():
        for message in msgspec.msgpack.decode(answer):
            server.receive(user, message)
    requests = server.close_stage()
    computing += time.process_time() - began
    shares, unmask = cohort.ask(Kind.UNMASK, requests)
    began = time.process_time()
    for user, answer in shares.items():
        server.receive(user, answer)
    server.close_stage()
    computing += time.process_time() - began
    if server.result is None or len(server.result.survivors) != len(headers):
        raise RuntimeError("a round among honest users did not open")
    return {
        "seconds": {
            "down": down,
            "user": fmean(struct.unpack("<d", data)[0] for data in ready.values()),
            "up": up,
            "unmask": unmask,
            "server": computing,
        },
        "bytes": {
            "down": len(model),
            "up": fmean(map(len, uploads.values())),
            "unmask": fmean(map(len, requests.values())) + fmean(map(len, shares.values())),
        },
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


if __name__ == "__main__":
    typer.run(main)
