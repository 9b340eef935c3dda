"""`make fuzz`: coverage-guided fuzzing of every decoder with atheris, one process for each, from genuine bytes on.

    .venv/bin/python tests/fuzz_decoders.py --seconds 600 --jobs 2 --out results/fuzz.json

What is decoded comes from another machine (messages, steps, rosters, arrays) or from a file (states). A crash is an
exception that is not one of ours, or a gigabyte of memory; atheris prints the input that made it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris
import msgspec
import numpy as np

with atheris.instrument_imports(include=["sparsesecagg"]):
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    from sparsesecagg.crypto.identity import Roster
    from sparsesecagg.crypto.kdf import CHECKSUM_SIZE, checksum
    from sparsesecagg.crypto.shamir import decode_shares, encode_shares
    from sparsesecagg.downlink import ModelStep, Replica, StepLog, decode_catchup
    from sparsesecagg.downlink.gain import Gain
    from sparsesecagg.errors import SparseSecAggError
    from sparsesecagg.field import Word, unpack
    from sparsesecagg.flower.arrays import Template, view
    from sparsesecagg.flower.downlink import Arrangement, Downlink, Held, Order
    from sparsesecagg.flower.run import SecureRun
    from sparsesecagg.flower.settings import Settings
    from sparsesecagg.flower.state import ModelState, Movement
    from sparsesecagg.patterns import PATTERNS
    from sparsesecagg.patterns.gaps import decode_locations, encode_locations
    from sparsesecagg.protocol import Client, Parameters, Policy, RoundOptions, Server, Stage
    from sparsesecagg.protocol.combine import Sum
    from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, decode_users, encode_users
    from sparsesecagg.protocol.parameters import VERSION
    from sparsesecagg.ranges import Ranges
    from sparsesecagg.simulate import Cohort, InProcessRun, Transcript
    from sparsesecagg.simulate.simulation import make_identities

ROOT = Path(__file__).parents[1]
DIM = 500
PIECE = 30
"""Seconds of one process: atheris itself keeps about a kilobyte for each input that arrays are made of."""
ANY = Policy(min_anonymity=0, patterns=frozenset(PATTERNS))


def with_checksum(data: bytes) -> bytes:
    """Return a message whose version and checksum are right, so that the fuzzer gets behind them."""
    message = bytes([VERSION]) + data
    return message + checksum(message)


def read_roster(data: bytes) -> None:
    """Read a roster from a file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        Roster.load(Path(file.name))


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "messages of clients": lambda data: decode_client_message(with_checksum(data)),
    "messages of the server": lambda data: decode_server_message(with_checksum(data)),
    "messages with any checksum": decode_client_message,
    "parameters": Parameters.decode,
    "locations": lambda data: decode_locations(data, DIM),
    "bitmaps of users": lambda data: decode_users(data, 77),
    "packed words": lambda data: unpack(data, len(data) * 2 // 3, Word.of(12)),
    "shares": decode_shares,
    "rosters": read_roster,
    "steps of the model": ModelStep.decode,
    "steps to catch up": decode_catchup,
    "logs of steps": StepLog.restore,
    "replicas that catch up": lambda data: Replica(np.zeros(DIM, np.float32)).catch_up(data),
    "saved replicas": Replica.restore,
    "saved servers": Server.restore,
    "saved clients": lambda data: Client.restore(data, ANY),
    "saved simulations": lambda data: InProcessRun.restore(data, Cohort(ANY)),
    "saved gains": lambda data: Gain(0.5).restore(data),
    "saved ranges": Ranges.restore,
    "arrays of Flower": lambda data: view(Array("float32", (3,), "numpy.ndarray", data)),
    "orders of models": Order.decode,
    "held models": Held.decode,
    "models between rounds": ModelState.read,
    "saved runs": lambda data: SecureRun.restore(data, 1.0, Downlink(), None, Sum),
}
"""Every function that makes something of bytes, by what the bytes are."""


def genuine() -> dict[str, list[bytes]]:
    """Return bytes that each decoder takes, for the fuzzer to begin with: it would hardly find them by itself."""
    watched: list[Transcript] = []
    runs = []
    for options in (RoundOptions(pattern="pairwise", alpha=0.5), RoundOptions(alpha=0.25, group_size=5, max_weight=9)):
        watched.append(Transcript())
        run = InProcessRun(Parameters.create(10, DIM, options), Cohort(ANY), observer=watched[-1])
        run.round([np.zeros(DIM)] * 10, drops={1: Stage.UPLOAD, 7: Stage.UNMASK})
        runs.append(run)
    to_server = [data for each in watched for _, user, data in each.sent if user == 0]
    to_client = [data for each in watched for _, user, data in each.received if user == 0]
    log = StepLog(np.zeros(DIM, np.float32))
    for sequence in range(1, 4):
        step = log.step(np.random.default_rng(sequence).normal(size=DIM).astype(np.float32))
    steps, order = log.for_node(0, Replica(np.zeros(DIM, np.float32)).digest), Order(bytes(32), 2, (0,))
    arrangement = Arrangement(Template.laid_out([("weight", np.dtype("float32"), (20, 25))]), order)
    replica, three = Replica(np.ones(DIM, np.float32)), Array(np.ones(3, np.float32))
    gain = Gain(0.5)
    gain.step(np.ones(DIM, np.float32), np.arange(DIM) % 2 == 0)
    model = ModelState.of(3, ArrayRecord({"weight": three}), Movement(Settings()), FedAvg())
    with tempfile.NamedTemporaryFile() as file:
        make_identities(3, "fuzzed", os.urandom)[0].roster.save(Path(file.name))
        roster = Path(file.name).read_bytes()
    return {
        "messages of clients": [data[1:-CHECKSUM_SIZE] for data in to_server],
        "messages of the server": [data[1:-CHECKSUM_SIZE] for data in to_client],
        "messages with any checksum": to_server,
        "parameters": [run.params.encode() for run in runs],
        "locations": [encode_locations(np.arange(1, DIM, gap), DIM) for gap in (1, 3, 70)],
        "bitmaps of users": [encode_users(range(1, 77, 2), 77)],
        "packed words": [bytes(12)],
        "shares": [encode_shares(np.arange(5, dtype=np.uint64))],
        "rosters": [roster],
        "steps of the model": [step.encode()],
        "steps to catch up": [steps, log.for_node()],
        "logs of steps": [log.save()],
        "replicas that catch up": [steps, log.for_node()],
        "saved replicas": [replica.save()],
        "saved servers": [run.server.save() for run in runs],
        "saved clients": [run.clients[0].save() for run in runs],
        "saved simulations": [run.save() for run in runs],
        "saved gains": [gain.save()],
        "saved ranges": [Ranges([1.0, 2.0], 2.0).save()],
        "arrays of Flower": [three.data],
        "orders of models": [order.encode()],
        "held models": [Held(arrangement, replica).encode()],
        "models between rounds": [msgspec.msgpack.encode(model)],
        "saved runs": [msgspec.msgpack.encode((run.server.save(), 2, [(0, 5), (1, 6)])) for run in runs],
    }


def main() -> int:
    """Fuzz every decoder in a process of its own, and write down what each went through; return 1 after a crash."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each decoder")
    parser.add_argument("--jobs", type=int, default=1, help="decoders at one time")
    parser.add_argument("--only", default="", help="decoders whose name contains this")
    parser.add_argument("--one", help="fuzz this one here; libFuzzer's own options may follow")
    parser.add_argument("--resume", action="store_true", help="leave out what --out has without a crash")
    parser.add_argument("--out", type=Path, help="write executions and seconds to this JSON file")
    options, rest = parser.parse_known_args()
    if options.one:
        fuzz(DECODERS[options.one], rest)
    before: dict[str, Any] = {"decoders": {}, "commit": ""}
    if options.resume:
        before = json.loads(options.out.read_text(encoding="utf-8"))
    done = {name: each for name, each in before["decoders"].items() if not each["crashed"]}
    chosen = [name for name in DECODERS if options.only in name and name not in done]
    begin = genuine()
    with ThreadPoolExecutor(options.jobs) as pool:
        each = pool.map(lambda name: fuzz_apart(name, begin[name], options.seconds), chosen)
        found = {**done, **dict(zip(chosen, each, strict=True))}
    report = {
        "command": "python tests/fuzz_decoders.py " + " ".join(sys.argv[1:]),
        "protocol": VERSION,
        "commit": ", ".join(filter(None, (before["commit"], commit()))),
        "complete": len(found) == len(DECODERS),
        "crashes": sum(each["crashed"] for each in found.values()),
        "executions": sum(each["executions"] for each in found.values()),
        "decoders": found,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{report['executions']:,} executions, {report['crashes']} crashes\n")
    return 1 if report["crashes"] else 0


def fuzz_apart(name: str, begin: list[bytes], seconds: int) -> dict[str, Any]:
    """Fuzz one decoder in other processes, which libFuzzer ends; the next one goes on with what the last one found."""
    for data in begin:
        DECODERS[name](data)  # What is not genuine would be refused here.
    found: dict[str, Any] = {"executions": 0, "seconds": 0, "edges": [], "crashed": False}
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(begin):
            Path(folder, f"genuine-{number}").write_bytes(data)
        while found["seconds"] < seconds and not found["crashed"]:
            own = ["-rss_limit_mb=1024", f"-max_total_time={min(PIECE, seconds - found['seconds'])}"]
            done = subprocess.run(  # noqa: S603
                [sys.executable, str(Path(__file__).resolve()), "--one", name, *own, folder],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                cwd=folder,
            )
            count = re.findall(r"Done (\d+) runs in (\d+) second", done.stderr)
            edges = [int(each) for each in re.findall(r"cov: (\d+)", done.stderr)]
            found["executions"] += int(count[-1][0]) if count else 0
            found["seconds"] += int(count[-1][1]) if count else 0
            # With genuine bytes alone, and at the end.
            found["edges"] = [(found["edges"] or edges)[0], edges[-1]] if edges else found["edges"]
            if done.returncode or not count:
                sys.stderr.write(f"{name}:\n{done.stdout[-3000:]}{done.stderr[-6000:]}\n")
                found["crashed"] = True
    sys.stderr.write(f"{name}: {found}\n")
    return found


def fuzz(decode: Callable[[bytes], Any], options: list[str]) -> None:
    """Fuzz until libFuzzer's options say stop; does not return."""

    def decode_or_refuse(data: bytes) -> None:
        with suppress(SparseSecAggError):
            decode(data)

    atheris.Setup([sys.argv[0], *options], decode_or_refuse)
    atheris.Fuzz()


def commit() -> str:
    """Return the commit; a plus says that files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
