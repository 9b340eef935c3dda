"""A SuperLink and SuperNodes as processes of this machine: a real deployment for demonstrations and tests.

Every process gets a private FLWR_HOME, free ports and a mark in its environment. Whatever happens, leaving the context
ends all processes that carry the mark, by their ids, and no others.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from flower.certificates import NodeKey, write_certificates, write_node_key
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower.node import LEDGER, LEDGER_VARIABLE

_MARK = "SPARSESECAGG_DEPLOYMENT"
_HOST = "127.0.0.1"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # The app's packages are those of this environment.
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}


@dataclass
class Node:
    """One SuperNode."""

    index: int
    process: subprocess.Popen[bytes]
    log: Path

    def log_text(self) -> str:
        """Return what the node has logged so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@dataclass
class LocalFederation:
    """A SuperLink with SuperNodes; use it as a context."""

    folder: Path
    tls: bool = False
    """Encrypt all connections, and demand that SuperNodes are registered."""
    simulation: bool = False
    """Run nodes in Ray instead of SuperNodes."""
    nodes: dict[int, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._port = free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        self._home = self.folder / "flwr-home"

    def __enter__(self) -> Self:
        try:
            self._home.mkdir(exist_ok=True)
            self._start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Processes

    def add_node(self, index: int, node_config: Mapping[str, object], key: NodeKey | None = None) -> Node:
        """Start a SuperNode, with a ledger of its own; with TLS give it a key."""
        node_config = {LEDGER: str(self.folder / f"ledger-{index}"), **node_config}
        command = ["flower-supernode", "--superlink", f"{_HOST}:{self._port}", "--port", str(free_port())]
        command += ["--node-config", " ".join(f"{name}={_toml(value)}" for name, value in node_config.items())]
        if self.tls:
            command += ["--root-certificates", str(self._certificates.authority)]
            if key is not None:
                command += ["--auth-supernode-private-key", str(key.private)]
        else:
            command += ["--insecure"]
        node = Node(index, *self._spawn(command, f"node-{index}"))
        self.nodes[index] = node
        return node

    def new_key(self, name: str) -> NodeKey:
        """Make a key pair for a SuperNode."""
        return write_node_key(self.folder, name)

    def register(self, key: NodeKey) -> None:
        """Tell the SuperLink which SuperNode to let in."""
        self.flwr(["supernode", "register", str(key.public), "local"], timeout=60)

    def wait_for_nodes(self, count: int, timeout: float = 60) -> None:
        """Return when so many SuperNodes have got their ids."""
        deadline = time.monotonic() + timeout
        while sum("SuperNode ID" in node.log_text() for node in self.nodes.values()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} SuperNodes did not connect in {timeout:g} s")
            time.sleep(0.2)

    def signal_node(self, index: int, number: signal.Signals) -> None:
        """Send a signal to a SuperNode and the processes that it has started."""
        os.killpg(self.nodes[index].process.pid, number)

    def kill_server(self) -> None:
        """Kill the ServerApp of the run under way, and nothing else."""
        for pid in self.processes():
            if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                _send(pid, signal.SIGKILL)

    def run(self, app: Path, run_config: Mapping[str, object], options: Sequence[str] = ()) -> Run:
        """Start `flwr run`; the answer shows its output as it grows."""
        command = ["flwr", "run", str(app), "local", "--stream", *options]
        if run_config:
            command += ["--run-config", " ".join(f"{name}={_toml(value)}" for name, value in run_config.items())]
        process, log = self._spawn(command, "run")
        return Run(process, log)

    def flwr(self, arguments: Sequence[str], timeout: float) -> str:
        """Run a command of `flwr` and return its output."""
        finished = subprocess.run(  # noqa: S603  # Our own arguments.
            [_program("flwr"), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if finished.returncode != 0:
            raise RuntimeError(f"flwr {arguments[0]} failed: {finished.stdout}{finished.stderr}")
        return finished.stdout

    def stop(self) -> None:
        """End everything that this federation has started, gently and then not."""
        for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            for pid in self.processes():
                _send(pid, number)
            deadline = time.monotonic() + patience
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in self._started:
            process.wait(timeout=10)

    def processes(self) -> list[int]:
        """Return the ids of all processes with this federation's mark that still run."""
        mark = f"{_MARK}={self._mark}".encode()
        if not Path("/proc/self/environ").exists():
            return [process.pid for process in self._started if process.poll() is None]
        for process in self._started:
            process.poll()  # Otherwise a child that has ended stays as a zombie.
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # It ended meanwhile, or is not ours to look at.
                continue
        return found

    # Parts

    def _start_superlink(self) -> None:
        command = ["flower-superlink", "--host", _HOST, "--port", str(self._port)]
        settings = f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{_HOST}:{self._port}"\n'
        if self.tls:
            self._certificates = write_certificates(self.folder, _HOST)
            command += ["--ssl-ca-certfile", str(self._certificates.authority)]
            command += ["--ssl-certfile", str(self._certificates.certificate)]
            command += ["--ssl-keyfile", str(self._certificates.key), "--enable-supernode-auth"]
            settings += f'root-certificates = "{self._certificates.authority}"\n'
        else:
            command += ["--insecure"]
            settings += "insecure = true\n"
        if self.simulation:
            command += ["--simulation"]
        (self._home / "config.toml").write_text(settings, encoding="utf-8")
        process, log = self._spawn(command, "superlink")
        deadline = time.monotonic() + 60
        while not _listens(self._port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the SuperLink did not start: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.1)

    @property
    def _environment(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)
        # Every message starts a process. Without compiled files each one would compile this package anew.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            **_QUIET,
            _MARK: self._mark,
            "FLWR_HOME": str(self._home),
            LEDGER_VARIABLE: str(self.folder / "ledger"),
            "PATH": programs + os.pathsep + os.environ.get("PATH", ""),
        }

    def _spawn(self, command: Sequence[str], name: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  # Our own arguments.
                [_program(command[0]), *command[1:]],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self._started.append(process)
        return process, log


@dataclass
class Run:
    """A `flwr run` under way."""

    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, timeout: float) -> None:
        """Return when the output contains a text; raise `TimeoutError` if it doesn't in time."""
        deadline = time.monotonic() + timeout
        while text not in self.output():
            if time.monotonic() > deadline or self.process.poll() is not None:
                if text in self.output():
                    return
                raise TimeoutError(f"{text!r} did not appear in the output of the run:\n{self.output()[-4000:]}")
            time.sleep(0.1)

    def finish(self, timeout: float) -> str:
        """Wait for the end and return the whole output; raise `TimeoutError` if it takes longer."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the run did not end in {timeout:g} s:\n{self.output()[-4000:]}") from None
        return self.output()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((_HOST, port)) == 0


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _program(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise InvalidInput("flower", f"must be installed in this environment: {name} is missing")
    return str(path)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else '"' + str(value).replace('"', "") + '"'
