"""`make flower-demo`: a real deployment on this machine, with one node killed while it uploads.

A SuperLink and five SuperNodes run as processes, train the digits example for three rounds, and one SuperNode dies by
SIGKILL in the middle of the second. The round ends with the sum of the other four; nothing of the dead node's update
is ever seen. All processes end with the demonstration, by their ids. The tests' tool for deployments starts them
(`tests/flower/federation.py`).
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from flower.federation import LocalFederation, Node

NODES = 5
ROUNDS = 3
VICTIM = 4
APP = Path(__file__).parent / "flower-digits"

_UPLOAD_SECONDS = 45
"""How long a round waits for uploads; Flower itself notices a killed node only after a minute."""
_ROUND_TWO_UPLOAD = 6 + 1
"""The message by number: six in the first round, which exchanges keys and votes on ranges, then UPLOAD."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    """Run the demonstration; return the exit code."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flower-demo-") as folder, LocalFederation(Path(folder)) as federation:
        _say(f"A SuperLink is up. Starting {NODES} SuperNodes, each a process with a fifth of the digits.")
        for index in range(NODES):
            federation.add_node(index, {"partition-id": index, "num-partitions": NODES})
        federation.wait_for_nodes(NODES)
        settings = {"num-server-rounds": ROUNDS, "upload-seconds": _UPLOAD_SECONDS}
        _say(f"All are connected. Running {ROUNDS} rounds with SecAgg(FedAvg(...)); each message starts a process.")
        run = federation.run(APP, settings)
        killer = threading.Thread(
            target=_kill_while_uploading, args=(federation, federation.nodes[VICTIM]), daemon=True
        )
        killer.start()
        output = _COLOURS.sub("", run.finish(timeout=600))
        ids = federation.processes()
    for line in output.splitlines():
        if match := re.search(r"(SecAgg round .*|Accuracy after .*)", line):
            _say(match[1])
    left = federation.processes()
    _say(
        f"{len(ids)} processes were running at the end; {len(left)} are left. {time.monotonic() - start:.0f} s in all."
    )
    good = (
        output.count("SecAgg round 2: the sum of 4 of 5 nodes") == 1 and "Accuracy after round 3" in output and not left
    )
    if not good:
        sys.stderr.write(output[-6000:])
    return 0 if good else 1


def _kill_while_uploading(federation: LocalFederation, victim: Node) -> None:
    """Wait for the victim's UPLOAD message of the second round, and kill it at once."""
    while victim.process.poll() is None:
        if victim.log_text().count("Receiving: train message") >= _ROUND_TWO_UPLOAD:
            _say(f"SuperNode {VICTIM} has begun its upload of round 2: killing it with SIGKILL.")
            federation.signal_node(VICTIM, signal.SIGKILL)
            return
        time.sleep(0.05)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
