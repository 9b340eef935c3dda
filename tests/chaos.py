"""`make chaos`: a real Flower deployment on this machine while processes die, stop, run out of disk and lose the time.

A SuperLink and eight SuperNodes with a roster train the digits. Meanwhile nodes and the ServerApp are killed and come
back, nodes are stopped and go on, one node can write no file, and a node that comes back has another date. Every sum is
compared with the integers that the nodes wrote down before they masked them, every model with the plain mean of what
the nodes trained, and every answer with the others of the same user, round and kind. All connections are of the
loopback interface; all processes end with this one, by their ids.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from flower.enrolment import Enrolled, enrol_users
from flower.federation import LocalFederation, Run
from sparsesecagg.protocol.parameters import VERSION

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "flower-digits"
APP = Path(__file__).parent / "flower" / "chaos_app"
CLOCK = Path(__file__).parent / "flower" / "clock"
TOLERANCE = 1e-5
"""Of a mean, against the plain one: words have 32 bits."""
WORSE = 0.03
"""How far the accuracy may be behind that of as many plain rounds with all nodes."""
STALL = 600.0
"""Seconds without an event after which the ServerApp counts as stuck."""
AT_ONCE = 2
"""Nodes that are disturbed at one time: with more, hardly a round ends."""


def main() -> int:
    """Run the deployment until all rounds are done or the time is over; return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--alpha", type=float, default=1.0, help="below 1 only the sums are compared, not the models")
    parser.add_argument("--seed", type=int, default=1, help="of the faults; when they hit depends on the machine")
    parser.add_argument("--pause", type=float, default=30.0, help="mean seconds between two faults")
    parser.add_argument("--minutes", type=float, default=150.0, help="the end, whether all rounds are done or not")
    parser.add_argument("--control", action="store_true", help="let the server tell of wrong models: must be found")
    parser.add_argument("--book", type=Path, help="a new folder to keep everything in that was written down")
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(CLOCK), str(DIGITS), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        book = options.book or folder / "book"
        book.mkdir(parents=True)
        os.environ["CHAOS_BOOK"] = str(book)
        with LocalFederation(folder / "deployment") as federation:
            chaos = Chaos(federation, enrol_users(folder / "users", options.nodes), book, options)
            ended = chaos.run(begin + 60 * options.minutes)
        left = federation.processes()
        check = Check(book, compare_models=options.alpha == 1)
    report = {
        "command": "python tests/chaos.py " + " ".join(sys.argv[1:]),
        "protocol": VERSION,
        "commit": commit(),
        "nodes": options.nodes,
        "rounds": options.rounds,
        "alpha": options.alpha,
        "complete": ended,
        "seconds": round(time.monotonic() - begin),
        "faults": dict(chaos.faults.most_common()),
        **check.report(options.nodes),
        "processes_left": len(left),
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if ended and not report["wrong"] and not left else 1


class Chaos:
    """A deployment, and what is done to it."""

    def __init__(self, federation: LocalFederation, users: Enrolled, book: Path, options: argparse.Namespace) -> None:
        self.federation, self.users, self.book, self.options = federation, users, book, options
        self.rng = np.random.default_rng(options.seed)
        self.faults: Counter[str] = Counter()
        self.disturbed: dict[int, tuple[float, Callable[[int], None]]] = {}
        """By node: until when, and what ends it."""

    def run(self, deadline: float) -> bool:
        """Disturb the run until it ends; return whether it did before the deadline."""
        for index in range(self.options.nodes):
            self._start_node(index, 0)
        self.federation.wait_for_nodes(self.options.nodes, timeout=300)
        run, next_fault, heard = self._start_server(), time.monotonic() + self.options.pause, time.monotonic()
        seen = 0
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now, events = time.monotonic(), sorted(self.book.glob("event-*.npz"))
            if events and str(np.load(events[-1])["kind"]) == "end":
                return True
            if len(events) > seen:
                seen, heard = len(events), now
                sys.stderr.write(f"\r{seen} events, {sum(self.faults.values())} faults   ")
            for index in [index for index, (until, _) in self.disturbed.items() if now > until]:
                self.disturbed.pop(index)[1](index)
            if run.process.poll() is not None or now > heard + STALL:
                self.faults["ServerApp started again"] += 1
                run, heard = self._restart_server(), now
            if now > next_fault:
                next_fault = now + self.rng.exponential(self.options.pause)
                if self.rng.random() < 0.1 and seen:
                    self.faults["ServerApp killed"] += 1
                    run, heard = self._restart_server(), now
                else:
                    self._disturb(now)
        return False

    # The server

    def _start_server(self) -> Run:
        settings = {
            "rounds": self.options.rounds,
            "partitions": self.options.nodes,
            "alpha": self.options.alpha,
            "roster": str(self.users.roster),
            "folder": str(self.book),
            "control": self.options.control,
        }
        return self.federation.run(APP, settings)

    def _restart_server(self) -> Run:
        """Kill the ServerApp wherever it is, and let another one go on from its folder."""
        self.federation.kill_server()
        return self._start_server()

    # Nodes

    def _start_node(self, index: int, clock: float) -> None:
        os.environ["CHAOS_CLOCK"] = str(clock)
        self.federation.add_node(index, {"partition-id": index, **self.users.node_config(index)})

    def _disturb(self, now: float) -> None:
        free = [index for index in range(self.options.nodes) if index not in self.disturbed]
        if len(self.disturbed) >= AT_ONCE:
            return
        index = int(self.rng.choice(free))
        what = str(self.rng.choice(["kill", "stop", "full disk"], p=[0.5, 0.3, 0.2]))
        self.faults[f"node: {what}"] += 1
        match what:
            case "kill":
                self.federation.signal_node(index, signal.SIGKILL)
                self.disturbed[index] = now + self.rng.uniform(1, 20), self._start_again
            case "stop":
                self.federation.signal_node(index, signal.SIGSTOP)
                self.disturbed[index] = now + self.rng.uniform(2, 40), self._continue
            case _:
                self._limit_files(index, 1024)
                self.disturbed[index] = now + self.rng.uniform(10, 60), self._room_again

    def _start_again(self, index: int) -> None:
        """Start a killed node, half of the time with another date."""
        clock = float(self.rng.choice([0, 0, 3600, -3600, 30 * 86400.0, -30 * 86400.0]))
        self.faults["node: clock jumped"] += clock != 0
        self._start_node(index, clock)

    def _continue(self, index: int) -> None:
        self.federation.signal_node(index, signal.SIGCONT)

    def _room_again(self, index: int) -> None:
        self._limit_files(index, resource.RLIM_INFINITY)

    def _limit_files(self, index: int, size: int) -> None:
        """Let a node and what it starts from now on write no file beyond a size, as on a full disk."""
        try:
            resource.prlimit(self.federation.nodes[index].process.pid, resource.RLIMIT_FSIZE, (size, -1))
        except ProcessLookupError:
            self._start_node(index, 0)  # The full disk was too much for it.


class Check:
    """What the book of a run says."""

    def __init__(self, book: Path, *, compare_models: bool) -> None:
        self.book, self.compare_models = book, compare_models
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.largest_error = 0.0
        self.accuracy = 0.0
        self._read_answers()
        self._read_events()

    def _read_answers(self) -> None:
        """One user gives one answer of a kind in a round."""
        given: dict[str, set[str]] = defaultdict(set)
        file = self.book / "answers.jsonl"
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            which, hashed = json.loads(line)
            given[str(which)].add(hashed)
        self.counts["answers"] = len(given)
        self.wrong += [f"two answers: {which}" for which, hashes in given.items() if len(hashes) > 1]

    def _read_events(self) -> None:
        """Every sum is that of its survivors, and every model the one before it and their mean."""
        model: np.ndarray | None = None
        pending: np.ndarray | None = None
        started = False
        for path in sorted(self.book.glob("event-*.npz")):
            event = np.load(path)
            match str(event["kind"]):
                case "start":
                    started = True
                    self.counts["servers"] += 1
                case "result":
                    pending = self._mean_of(event)
                case "model":
                    self.counts["models"] += 1
                    self.accuracy = float(event["accuracy"])
                    if self.compare_models and model is not None:
                        # A server that was killed may have taken its last mean over, or not.
                        kept = started and np.array_equal(event["model"], model)
                        if not kept:
                            self._compare(path.name, event["model"] - model, pending)
                    model, pending, started = event["model"], None, False

    def _mean_of(self, event: Any) -> np.ndarray | None:
        """Compare a sum with what its survivors wrote down; return the mean of what they trained, unless they voted."""
        name = f"{event['params']}-{event['round_number']}"
        contributed = [np.load(self.book / f"{name}-{user}.npz") for user in event["survivors"]]
        votes = any(bool(each["votes"]) for each in contributed)
        self.counts["votes" if votes else "sums"] += 1
        if not np.array_equal(sum(each["integers"] for each in contributed), event["total"]):
            self.wrong.append(f"wrong sum: round {event['round_number']}")
        if votes:
            return None
        self.counts["rounds with clipped values"] += bool(event["clipped"])
        return np.asarray(np.mean([each["update"] for each in contributed], axis=0, dtype=np.float64))

    def _compare(self, name: str, moved: np.ndarray, pending: np.ndarray | None) -> None:
        """Compare how the model moved with a mean; without a sum it may not move."""
        expected = np.zeros_like(moved) if pending is None else pending
        error = float(np.abs(moved - expected).max())
        self.counts["means compared"] += pending is not None
        self.largest_error = max(self.largest_error, error)
        if error > TOLERANCE:
            self.wrong.append(f"wrong mean: {name} is {error:.2g} from the plain one")

    def report(self, nodes: int) -> dict[str, Any]:
        """Return what is kept in the results."""
        plain = plain_accuracy(nodes, self.counts["sums"])
        wrong = list(self.wrong)
        if self.accuracy < plain - WORSE:
            wrong.append(f"accuracy {self.accuracy:.3f}, of as many plain rounds {plain:.3f}")
        return {
            **{name: self.counts[name] for name in ("servers", "votes", "sums", "models", "means compared", "answers")},
            "rounds with clipped values": self.counts["rounds with clipped values"],
            "largest_error": self.largest_error,
            "accuracy": self.accuracy,
            "plain_accuracy": plain,
            "wrong": wrong,
        }


def plain_accuracy(nodes: int, rounds: int) -> float:
    """Return the accuracy after as many rounds of plain averaging with all nodes."""
    sys.path.insert(0, str(DIGITS))
    task = importlib.import_module("digits_app.task")
    model = task.new_model()
    for _ in range(rounds):
        trained = []
        for node in range(nodes):
            weights = [array.copy() for array in model]
            task.train(weights, task.load_data(node, nodes), epochs=2, learning_rate=0.2, batch_size=16)
            trained.append(weights)
        model = [np.mean(arrays, axis=0, dtype=np.float32) for arrays in zip(*trained, strict=True)]
    return float(task.test(model, task.load_test_data())[1])


def commit() -> str:
    """Return the commit; a plus says that files differ from it."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
