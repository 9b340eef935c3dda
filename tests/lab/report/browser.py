"""A headless Chromium, driven over the DevTools protocol through two pipes: no package, no port.

Chromium reads commands from file descriptor 3 and writes answers and events to 4: JSON, then a zero byte.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--remote-debugging-pipe",
)

# Puts the pipes where Chromium looks for them, then becomes Chromium.
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """Return the path of a Chromium, if this machine has one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser with an empty profile of its own; end it and remove the profile afterwards."""
    executable = find_chromium()
    assert executable, f"none of {', '.join(NAMES)} found"
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        # Far from 3 and 4, so that moving one there does not overwrite the other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (command_read, answer_write)]
        arguments = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(  # noqa: S603 - the browser found above, our own arguments
            [sys.executable, "-c", START, *map(str, ends), *arguments],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (command_read, answer_write, *ends):
            os.close(end)
        browser = Browser(command_write, answer_read)
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError, TimeoutError, EOFError):
                browser.send("Browser.close")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(command_write)
            os.close(answer_read)


class Browser:
    """Commands out, answers and events in."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self, seconds: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium did not answer")
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise EOFError("Chromium has gone")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(text))

    @contextlib.contextmanager
    def open(self, path: Path, width: int, height: int, mobile: bool = False) -> Iterator[Page]:
        """Open a file in a fresh tab of this size, wait until its plots are drawn, and close it in the end."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = str(self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        page.send("Emulation.setTouchEmulationEnabled", enabled=mobile)
        page.send("Page.navigate", url=path.resolve().as_uri())
        plots = "[...document.querySelectorAll('.plot')]"
        drawn = f"{plots}.length && {plots}.every((plot) => plot.querySelector('svg.main-svg'))"
        page.wait_for(f"document.readyState === 'complete' && {drawn}")
        try:
            yield page
        finally:
            self.send("Target.closeTarget", targetId=target)


class Page:
    """One tab, and what it complained about or asked the network for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self._browser.send(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaiting promises."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"waited {seconds} s for {condition}; {self.complaints()}"
            time.sleep(0.05)

    def _events(self, method: str) -> list[dict[str, Any]]:
        return [
            e["params"] for e in self._browser.events if e.get("sessionId") == self._session and e["method"] == method
        ]

    def complaints(self) -> list[str]:
        """Return exceptions, console errors and warnings, and the browser's own log, blocked scripts too."""
        thrown = [str(e["exceptionDetails"]) for e in self._events("Runtime.exceptionThrown")]
        console = [
            str(e) for e in self._events("Runtime.consoleAPICalled") if e["type"] in {"error", "warning", "assert"}
        ]
        return thrown + console + [str(e["entry"]) for e in self._events("Log.entryAdded")]

    def requests(self) -> list[str]:
        """Return the addresses the page asked for, without the page itself and images it made itself."""
        asked = [str(e["request"]["url"]) for e in self._events("Network.requestWillBeSent")]
        own = ("data:", "blob:")
        here = str(self.evaluate("location.href"))
        return [address for address in asked if address != here and not address.startswith(own)]
