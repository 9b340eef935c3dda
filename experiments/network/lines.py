"""A line of its own for each user: a network namespace whose only link is limited both ways by the kernel (`tc tbf`).

Needs root and iproute2 on Linux. The server stays in this namespace; all addresses are of this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparsesecagg.errors import InvalidInput

PACKET_BYTES, BURST_BYTES = 4_000, 12_000
"""Larger packets than usual, so that one machine carries all lines; three of them may leave above the rate."""
QUEUE_MS = 400


@dataclass(frozen=True)
class Line:
    """One user's end."""

    namespace: str
    server: str
    """The server's address on this line."""

    def command(self, *words: str) -> list[str]:
        """Return the command that runs `words` at the user's end."""
        return ["ip", "netns", "exec", self.namespace, *words]


@contextmanager
def lines(users: int, mbit: float) -> Iterator[Sequence[Line]]:
    """Lay `users` lines of `mbit` Mbit/s in each direction, and take them away at the end."""
    if not hasattr(os, "geteuid") or os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise InvalidInput("lines", "need Linux, root, and the commands ip and tc (iproute2)")
    prefix = f"line{os.getpid()}"
    laid = [Line(f"{prefix}-{user}", f"10.{200 + user // 250}.{user % 250}.1") for user in range(users)]
    try:
        for user, line in enumerate(laid):
            _lay(line, f"l{os.getpid() % 10**6}.{user}", mbit)
        yield laid
    finally:
        for line in laid:
            subprocess.run(["ip", "netns", "del", line.namespace], check=False, capture_output=True)  # noqa: S603, S607


def _lay(line: Line, device: str, mbit: float) -> None:
    shaped = f"tbf rate {mbit:g}mbit burst {BURST_BYTES} latency {QUEUE_MS}ms"
    user_address = line.server.removesuffix("1") + "2/30"
    inside = f"ip -n {line.namespace}"
    for words in (
        f"ip netns add {line.namespace}",
        f"ip link add {device} type veth peer name line netns {line.namespace}",
        f"ip addr add {line.server}/30 dev {device}",
        f"ip link set {device} mtu {PACKET_BYTES} up",
        f"{inside} addr add {user_address} dev line",
        f"{inside} link set line mtu {PACKET_BYTES} up",
        f"tc qdisc add dev {device} root {shaped}",
        f"tc -n {line.namespace} qdisc add dev line root {shaped}",
    ):
        subprocess.run(words.split(), check=True, capture_output=True)  # noqa: S603
