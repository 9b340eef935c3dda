"""Rounds on lines that the kernel limits: seconds of a transfer are those of its bytes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from experiments.network.lines import lines
from experiments.network.run import main
from experiments.network.talk import Kind, receive, send
from sparsesecagg.errors import InvalidInput

MBIT = 100.0


def shaping_works() -> bool:
    """Root, iproute2, and a kernel with namespaces and tbf."""
    if not hasattr(os, "geteuid") or os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        return False
    try:
        with lines(1, MBIT):
            return True
    except subprocess.CalledProcessError:
        return False


def test_messages_arrive_whole_and_a_closed_line_is_noticed() -> None:
    one, other = _connected()
    sent = os.urandom(3_000_000)
    thread = threading.Thread(target=send, args=(one, Kind.MODEL, sent))
    thread.start()
    assert receive(other) == (Kind.MODEL, sent)
    thread.join()
    one.close()
    with pytest.raises(ConnectionError):
        receive(other)
    other.close()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


def test_whoever_may_not_lay_lines_is_told_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.network.lines.shutil.which", lambda _: None)
    with pytest.raises(InvalidInput, match="root, and the commands ip and tc"), lines(2, MBIT):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not shaping_works(), reason="needs root and tc with tbf")
def test_a_model_takes_as_long_as_its_bytes_take_on_the_line_and_nothing_stays_behind(tmp_path: Path) -> None:
    main(users=3, out=tmp_path / "network.json", repeats=1, dims=[400_000])
    result = json.loads((tmp_path / "network.json").read_text(encoding="utf-8"))
    for one in result["rounds"]:
        # Never faster than the line; on a busy machine slower.
        assert one["seconds"]["down"] >= 0.98 * one["modelled"]["down"] == pytest.approx(0.98 * 0.128, abs=0.001)
    ours, secagg = result["rounds"][2], result["rounds"][0]
    assert ours["bytes"]["up"] < secagg["bytes"]["up"] / 30
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    assert f"line{os.getpid()}" not in left
