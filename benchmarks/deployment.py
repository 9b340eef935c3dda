"""A real Flower deployment on this machine: seconds per round beside plain FedAvg, and beside Flower's SecAgg+.

    .venv/bin/python -m benchmarks.deployment [--nodes 5] [--rounds 4] [--roster] [--secagg-plus] [--json]

A SuperLink and SuperNodes run as processes, without or with a roster. Secure rounds and rounds of plain
FedAvg take turns in one ServerApp, so that a busy moment of the machine hits both alike; nodes hardly train, so
exchanges are what is measured. Reported are medians of the rounds after the first, which also exchanges keys. Flower's
SecAgg+ works with the legacy workflow only, so it runs before them, among the same SuperNodes.
"""

from __future__ import annotations

import json as json_module
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import command
from sparsesecagg.errors import InvalidInput, MissingExtra

_HERE = Path(__file__).resolve().parent
_APP, _PEER = _HERE / "apps" / "rounds_app", _HERE / "apps" / "secaggplus_app"
_PATIENCE = 120.0
"""Seconds that a round waits for uploads."""


def main(
    nodes: Annotated[int, typer.Option(help="SuperNodes.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds of each kind.")] = 4,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 165_000,
    roster: Annotated[bool, typer.Option("--roster", help="Nodes prove who they are.")] = False,
    secagg_plus: Annotated[bool, typer.Option("--secagg-plus", help="Measure Flower's SecAgg+ too.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Start a deployment, run the rounds, and report seconds per round and the ratio to plain FedAvg."""
    answer = measure(nodes, rounds, dim, roster=roster, secagg_plus=secagg_plus)
    if json:
        command.print_json(answer)
        return
    for name, one in answer["rows"].items():
        command.out.print(
            f"{name}: {one['exchanges']:g} exchange(s), {one['seconds']:.1f} s per round, "
            f"{one['ratio']:.2f} times plain FedAvg",
            highlight=False,
        )


def measure(
    nodes: int = 5, rounds: int = 4, dim: int = 165_000, *, roster: bool = False, secagg_plus: bool = False
) -> dict[str, Any]:
    """Return medians after the first round, and what every round came to."""
    for option, value, least in (("nodes", nodes, 3), ("rounds", rounds, 2), ("dim", dim, 1)):
        if value < least:
            raise InvalidInput(option, f"must be at least {least}, got {value}")
    settings = {"rounds": rounds, "nodes": nodes, "dim": dim, "upload-seconds": _PATIENCE}
    return summary(_deployed(settings, roster, secagg_plus), {**settings, "roster": roster})


def summary(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return a row for each kind of round, compared with the plain ones beside it."""
    seconds = {name: _after_first(values) for name, values in found["seconds"].items()}
    names = {"plain": "plain FedAvg", "secagg_plus": "Flower SecAgg+", "secure": "sliced"}
    exchanges = {
        "plain": 1,
        "secagg_plus": 4,
        "secure": statistics.median(one["exchanges"] for one in found["rounds"][1:]),
    }
    return {
        "rows": {
            names[kind] + ", with a roster" * (settings["roster"] and kind == "secure"): {
                "exchanges": exchanges[kind],
                "seconds": seconds[kind],
                "ratio": seconds[kind] / seconds["plain"],
            }
            for kind in names
            if kind in seconds
        },
        "failed_rounds": sum(one["status"] != "ok" for one in found["rounds"]),
        "seconds_of_rounds": found["seconds"],
        "settings": settings,
    }


def _after_first(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[1:])


def _deployed(settings: dict[str, Any], roster: bool, secagg_plus: bool) -> dict[str, Any]:
    """Start a SuperLink and SuperNodes, run the apps, and return what they wrote down."""
    federation_class, enrol_users = _tools()
    nodes, limit = settings["nodes"], (settings["rounds"] + 2) * 3 * _PATIENCE
    with tempfile.TemporaryDirectory(prefix="deployment-") as name, federation_class(Path(name) / "f") as federation:
        folder = Path(name)
        people = enrol_users(folder / "people", nodes) if roster else None
        for index in range(nodes):
            own = people.node_config(index) if people else {}
            federation.add_node(index, {"partition-id": index, "num-partitions": nodes, **own})
        federation.wait_for_nodes(nodes)
        peer = _run(federation, _PEER, settings, folder / "peer.json", limit) if secagg_plus else {"seconds": {}}
        with_roster = {**settings, "roster": str(people.roster) if people else ""}
        found = _run(federation, _APP, with_roster, folder / "out.json", limit)
    return {**found, "seconds": {**found["seconds"], **peer["seconds"]}}


def _tools() -> tuple[Any, Any]:
    """Return what starts a SuperLink and SuperNodes, and what enrols users: both are tools of the tests."""
    try:
        import flwr.serverapp  # noqa: F401
    except ImportError:
        raise MissingExtra("flower", "a Flower deployment") from None
    tests = str(_HERE.parent / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    from flower.enrolment import enrol_users
    from flower.federation import LocalFederation

    return LocalFederation, enrol_users


def _run(federation: Any, app: Path, settings: dict[str, Any], out: Path, limit: float) -> dict[str, Any]:
    output = federation.run(app, {**settings, "out": str(out)}).finish(timeout=limit)
    if not out.is_file():
        raise RuntimeError(f"the run has written no result:\n{output[-4000:]}")
    content: dict[str, Any] = json_module.loads(out.read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    command.run(main)
