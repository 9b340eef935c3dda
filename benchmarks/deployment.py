"""A real Flower deployment on this machine: seconds per round beside plain FedAvg, and beside Flower's SecAgg+.

    .venv/bin/python -m benchmarks.deployment [--nodes 5] [--rounds 6] [--confirm] [--kill] [--secagg-plus] [--json]

A SuperLink and SuperNodes run as processes. Secure rounds and rounds of plain FedAvg take turns in one ServerApp, so
that a busy moment of the machine hits both alike; nodes hardly train, so exchanges are what is measured. Reported are
medians of the rounds after the first, which also exchanges keys. Flower's SecAgg+ works with the legacy workflow only,
so it runs behind them, among the same SuperNodes. With --kill one node dies while it uploads in round 3 and another
while it unmasks in round 4; plain FedAvg stops before, because it would wait for dead nodes as long as it may.
"""

from __future__ import annotations

import json as json_module
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import command, results
from sparsesecagg.errors import InvalidInput, MissingExtra

_HERE = Path(__file__).resolve().parent
_APP, _PEER = _HERE / "apps" / "rounds_app", _HERE / "apps" / "secaggplus_app"
RESULT = "deployment"
_KEY_EXCHANGES = 2
_KILLED_AT = {"UPLOAD": 3, "UNMASK": 4}
_PATIENCE = 120.0
_PATIENCE_WITH_DEAD = 20.0
"""Seconds that a round waits for uploads; Flower itself notices a killed node only after a minute."""


def main(
    nodes: Annotated[int, typer.Option(help="SuperNodes.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of each kind.")] = 6,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 165_000,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm the survivors in a third exchange.")] = False,
    kill: Annotated[bool, typer.Option("--kill", help="Kill one node in UPLOAD and one in UNMASK.")] = False,
    secagg_plus: Annotated[bool, typer.Option("--secagg-plus", help="Measure Flower's SecAgg+ too.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Write the result file.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Start a deployment, run the rounds, and report seconds per round and the ratio to plain FedAvg."""
    begun = results.begin(publish=save)
    answer = measure(nodes, rounds, dim, confirm=confirm, kill=kill, secagg_plus=secagg_plus)
    if save:
        results.write(result_name(confirm, kill), answer, begun)
    if json:
        command.print_json(answer)
        return
    command.out.print(_sentence(answer), highlight=False, soft_wrap=True)


def result_name(confirm: bool = False, kill: bool = False) -> str:
    """Return the name of the result file of a variant."""
    return RESULT + "-confirm" * confirm + "-kill" * kill


def measure(
    nodes: int = 5,
    rounds: int = 6,
    dim: int = 165_000,
    *,
    confirm: bool = False,
    kill: bool = False,
    secagg_plus: bool = False,
) -> dict[str, Any]:
    """Return medians after the first round, and what every round came to."""
    for option, value, least in (("nodes", nodes, 5 if kill else 3), ("rounds", rounds, 4 if kill else 2)):
        if value < least:
            raise InvalidInput(option, f"must be at least {least}, got {value}")
    if dim < 1:
        raise InvalidInput("dim", f"must be at least 1, got {dim}")
    federation_class = _deployment_tool()
    patience = _PATIENCE_WITH_DEAD if kill else _PATIENCE
    common = {"rounds": rounds, "nodes": nodes, "dim": dim, "upload-seconds": patience}
    limit = (rounds + 2) * 3 * patience
    peer: dict[str, Any] | None = None
    with tempfile.TemporaryDirectory(prefix="deployment-") as name, federation_class(Path(name) / "f") as federation:
        for index in range(nodes):
            federation.add_node(index, {"partition-id": index, "num-partitions": nodes})
        federation.wait_for_nodes(nodes)
        if secagg_plus:  # First, while nobody is dead.
            peer = _run(federation, _PEER, common, Path(name) / "peer.json", limit)
        if kill:
            threading.Thread(target=_kill_two, args=(federation, confirm), daemon=True).start()
        found = _run(federation, _APP, {**common, "confirm": confirm, "kill": kill}, Path(name) / "out.json", limit)
    return _summary(found, peer, {**common, "confirm": confirm, "kill": kill})


def _summary(found: dict[str, Any], peer: dict[str, Any] | None, settings: dict[str, Any]) -> dict[str, Any]:
    secure, plain = found["seconds"]["secure"], found["seconds"]["plain"]
    steady = found["rounds"][1:]
    answer = {
        "exchanges": statistics.median(one["exchanges"] for one in steady),
        "seconds_per_round": _after_first(secure),
        "plain_seconds_per_round": _after_first(plain),
        "ratio_to_plain": _after_first(secure) / _after_first(plain),
        "failed_rounds": sum(one["status"] != "ok" for one in found["rounds"]),
        "survivors": [one["survivors"] for one in found["rounds"]],
        "dropped": [one["dropped"] for one in found["rounds"]],
        "stage_seconds": {
            stage: statistics.median(one["stage_seconds"].get(stage, 0.0) for one in steady)
            for stage in steady[0]["stage_seconds"]
        },
        "bytes": {
            "sent": statistics.median(one["wire_bytes"]["total"] for one in steady),
            "received_without_model": statistics.median(one["received_bytes"]["total"] for one in steady),
            "model": statistics.median(one["model_bytes"] for one in steady),
        },
        "client_seconds": statistics.median(one["client_seconds"]["total"] for one in steady),
        "server_seconds": statistics.median(one["server_seconds"]["total"] for one in steady),
        "seconds_of_rounds": found["seconds"],
        "settings": settings,
    }
    if peer is not None:
        answer["secagg_plus_exchanges"] = 4
        answer["secagg_plus_seconds_per_round"] = _after_first(peer["seconds"]["secagg_plus"])
        answer["secagg_plus_ratio_to_plain"] = (
            answer["secagg_plus_seconds_per_round"] / answer["plain_seconds_per_round"]
        )
        answer["seconds_of_rounds"] |= peer["seconds"]
    return answer


def _after_first(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[1:])


def _sentence(answer: dict[str, Any]) -> str:
    text = (
        f"{answer['exchanges']:g} exchanges and {answer['seconds_per_round']:.1f} s per round; plain FedAvg "
        f"{answer['plain_seconds_per_round']:.1f} s: {answer['ratio_to_plain']:.2f} times"
    )
    if "secagg_plus_seconds_per_round" in answer:
        text += (
            f"; Flower's SecAgg+ 4 exchanges and {answer['secagg_plus_seconds_per_round']:.1f} s: "
            f"{answer['secagg_plus_ratio_to_plain']:.2f} times"
        )
    return text


# The deployment


def _deployment_tool() -> Any:
    """Return the class that starts a SuperLink and SuperNodes: it is a tool of the tests."""
    try:
        import flwr.serverapp  # noqa: F401
    except ImportError:
        raise MissingExtra("flower", "a Flower deployment") from None
    tests = str(_HERE.parent / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    from flower.federation import LocalFederation

    return LocalFederation


def _run(federation: Any, app: Path, settings: dict[str, Any], out: Path, limit: float) -> dict[str, Any]:
    output = federation.run(app, {**settings, "out": str(out)}).finish(timeout=limit)
    if not out.is_file():
        raise RuntimeError(f"the run has written no result:\n{output[-4000:]}")
    content: dict[str, Any] = json_module.loads(out.read_text(encoding="utf-8"))
    return content


def _kill_two(federation: Any, confirm: bool) -> None:
    """Kill the last node while it uploads, and the one before it while it unmasks."""
    exchanges = 3 if confirm else 2
    upload = _KEY_EXCHANGES + exchanges * (_KILLED_AT["UPLOAD"] - 1) + 1
    unmask = _KEY_EXCHANGES + exchanges * _KILLED_AT["UNMASK"]
    last = max(federation.nodes)
    for index, message in ((last, upload), (last - 1, unmask)):
        victim = federation.nodes[index]
        while victim.process.poll() is None:
            if len(re.findall("Receiving: train message", victim.log_text())) >= message:
                federation.signal_node(index, signal.SIGKILL)
                break
            time.sleep(0.05)


if __name__ == "__main__":
    command.run(main)
