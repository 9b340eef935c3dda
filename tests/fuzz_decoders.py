"""`make fuzz`: coverage-guided fuzzing of every decoder with atheris, one process for each.

    .venv/bin/python tests/fuzz_decoders.py --seconds 600 --jobs 2 --out results/fuzz.json

What is decoded comes from another machine (messages, steps, rosters, arrays) or from a file (states). A crash is an
exception that is not one of ours, or a gigabyte of memory; atheris prints the input that made it.
"""

from __future__ import annotations

import argparse
import json
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
    from flwr.app import Array

    from sparsesecagg.crypto.identity import Roster
    from sparsesecagg.crypto.kdf import checksum
    from sparsesecagg.crypto.shamir import decode_shares
    from sparsesecagg.downlink import ModelStep, Replica, StepLog, decode_catchup
    from sparsesecagg.downlink.gain import Gain
    from sparsesecagg.errors import SparseSecAggError
    from sparsesecagg.field import Word, unpack
    from sparsesecagg.flower.arrays import view
    from sparsesecagg.flower.downlink import Held, Order
    from sparsesecagg.patterns.gaps import decode_locations
    from sparsesecagg.protocol import Client, Parameters, Server
    from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, decode_users
    from sparsesecagg.protocol.parameters import VERSION
    from sparsesecagg.ranges import Ranges
    from sparsesecagg.simulate import InProcessRun

ROOT = Path(__file__).parents[1]
DIM = 500


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


def read_ranges(data: bytes) -> None:
    """Restore ranges, which promises another exception."""
    with suppress(msgspec.MsgspecError):
        Ranges.restore(data)


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
    "saved clients": Client.restore,
    "saved simulations": InProcessRun.restore,
    "saved gains": lambda data: Gain(0.5).restore(data),
    "saved ranges": read_ranges,
    "arrays of Flower": lambda data: view(Array("float32", (3,), "numpy.ndarray", data)),
    "orders of models": Order.decode,
    "held models": Held.decode,
}
"""Every function that makes something of bytes, by what the bytes are."""


def main() -> int:
    """Fuzz every decoder in a process of its own, and write down what each went through; return 1 after a crash."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each decoder")
    parser.add_argument("--jobs", type=int, default=1, help="decoders at one time")
    parser.add_argument("--only", default="", help="decoders whose name contains this")
    parser.add_argument("--one", help="fuzz this one here; libFuzzer's own options may follow")
    parser.add_argument("--out", type=Path, help="write executions and seconds to this JSON file")
    options, rest = parser.parse_known_args()
    if options.one:
        fuzz(DECODERS[options.one], rest)
    chosen = [name for name in DECODERS if options.only in name]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(chosen, pool.map(lambda name: fuzz_apart(name, options.seconds), chosen), strict=True))
    report = {
        "command": "python tests/fuzz_decoders.py " + " ".join(sys.argv[1:]),
        "protocol": VERSION,
        "commit": commit(),
        "complete": len(found) == len(DECODERS),
        "crashes": sum(each["crashed"] for each in found.values()),
        "executions": sum(each["executions"] for each in found.values()),
        "decoders": found,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{report['executions']:,} executions, {report['crashes']} crashes\n")
    return 1 if report["crashes"] else 0


def fuzz_apart(name: str, seconds: int) -> dict[str, Any]:
    """Fuzz one decoder in another process, which libFuzzer ends."""
    own = ["-rss_limit_mb=1024", f"-max_total_time={seconds}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603
            [sys.executable, str(Path(__file__).resolve()), "--one", name, *own],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=folder,
        )
    if done.returncode:
        sys.stderr.write(f"{name}:\n{done.stdout[-3000:]}{done.stderr[-6000:]}\n")
    count = re.findall(r"Done (\d+) runs in (\d+) second", done.stderr)
    found = {
        "executions": int(count[-1][0]) if count else 0,
        "seconds": int(count[-1][1]) if count else 0,
        "crashed": done.returncode != 0,
    }
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
