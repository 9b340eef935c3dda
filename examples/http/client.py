"""Secure aggregation over HTTP, one user's side. It may be killed and started again at any moment.

    python examples/http/client.py --folder state/alice

The folder keeps the user's session and its ledger: what it has answered, and its secrets.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np

from sparsesecagg import Client, Parameters, Policy
from sparsesecagg.errors import ProtocolError
from sparsesecagg.protocol import SqliteLedger

Train = Callable[[np.ndarray], np.ndarray]
POLICY = Policy(min_anonymity=2)
"""What this user demands, whatever the server's parameters say."""


def take_part(url: str, folder: Path, train: Train) -> None:
    """Take part in a run until it is over. `train` makes an update from a model."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with httpx.Client(base_url=url, timeout=60.0) as http:
        session = open_session(http, folder / "session.json")
        http.headers["authorization"] = f"Bearer {session['token']}"
        params = Parameters.decode(bytes.fromhex(session["params"]))
        with SqliteLedger(folder / "ledger", params.run, session["user"]) as ledger:
            state = ledger.state()
            client = (
                Client(session["user"], params, POLICY, ledger=ledger)
                if state is None
                else Client.restore(state, POLICY, ledger=ledger)
            )
            while answer_one(http, client, train):
                pass


def answer_one(http: httpx.Client, client: Client, train: Train) -> bool:
    """Ask for work and do it; return whether there may be more."""
    task = patiently(http, "GET", "/task")
    name, data = task.headers["secagg-task"], task.content
    try:
        match name:
            case "DONE":
                return False
            case "ADVERTISE_KEYS":
                send(http, client.advertise_keys())
            case "SHARE_KEYS":  # No key package of this user is left at the server, or none of the next round.
                client.join(data)  # The first time; the same message again changes nothing.
                for package in client.share_keys(int(task.headers["secagg-round"]), again=True):
                    send(http, package)
            case "UPLOAD" | "UNMASK":
                model = np.frombuffer(patiently(http, "GET", "/model").content, np.float32)
                context = hashlib.sha256(model.tobytes()).digest()  # Of what this user got, not of what is claimed.
                for answer in client.handle(data, lambda: train(model), context=context):
                    send(http, answer)
    except ProtocolError as refusal:
        print(f"user {client.user} refuses {name}: {refusal}", flush=True)
        time.sleep(0.5)
    return True


def send(http: httpx.Client, message: bytes) -> None:
    """Send a message of the protocol; one that comes too late is no longer of use."""
    patiently(http, "POST", "/messages", message)


def patiently(http: httpx.Client, method: str, path: str, content: bytes = b"") -> httpx.Response:
    """Send a request, again and again while the server is away. All requests may safely be repeated."""
    while True:
        try:
            response = http.request(method, path, content=content)
        except httpx.TransportError:
            time.sleep(0.2)
            continue
        if response.status_code == httpx.codes.CONFLICT:
            print(f"the server rejects a message: {response.text}", flush=True)
            time.sleep(0.2)
            return response
        return response.raise_for_status()


def open_session(http: httpx.Client, path: Path) -> dict[str, object]:
    """Return number, token and parameters: those of the last time, or new ones."""
    if not path.exists():
        path.write_text(json.dumps(patiently(http, "POST", "/join").json()), encoding="utf-8")
        path.chmod(0o600)
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Take part with an update that stands for training."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--url", default="http://127.0.0.1:8000")
    options.add_argument("--folder", type=Path, required=True, help="folder of this user's session and ledger")
    given = options.parse_args()
    take_part(given.url, given.folder, lambda model: np.full(len(model), 0.5, np.float32))


if __name__ == "__main__":
    main()
