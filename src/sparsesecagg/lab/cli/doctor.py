"""`sparsesecagg doctor`: look at both sides of a Flower app, and say what to change."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from sparsesecagg.lab.cli.doctor_app import MOD, STRATEGY, App, argument, mods_of, read_app, wrapped
from sparsesecagg.cli.errors import EXIT_FAILED
from sparsesecagg.cli.shared import JsonOption, SeedOption, at_least, out, print_json
from sparsesecagg.errors import InvalidInput, SparseSecAggError

_OLDEST_FLOWER = (1, 41)
_NO_INSTALLATION = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
_NODES_BY_DEFAULT = 2
_USUAL_DIM = 100_000
_WORD = re.compile(r"""([\w-]+)=("[^"]*"|'[^']*'|[^\s"']+)""")
_SIGNS = {"ok": "[green]✓[/green]", "note": "[yellow]![/yellow]", "problem": "[red]✗[/red]"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Literal["ok", "note", "problem"]
    found: str
    change: str = ""
    """What to do about it; nothing if all is well."""


def doctor(
    app: Annotated[
        Path, typer.Argument(metavar="[APP]", help="The folder of the app, with its pyproject.toml.")
    ] = Path(),
    nodes: Annotated[
        int | None,
        typer.Option(callback=at_least(1), help="Nodes that the app will have; by default what its files say."),
    ] = None,
    dim: Annotated[
        int, typer.Option(callback=at_least(1), help="Parameters of the model, for the bytes.")
    ] = _USUAL_DIM,
    node_config: Annotated[
        str, typer.Option(help="What a node is started with: \"secagg-min-anonymity=5 secagg-ledger='/var/x'\".")
    ] = "",
    json: JsonOption = False,
    seed: SeedOption = 0,  # noqa: ARG001  # Every command takes one; nothing is random here.
) -> None:
    """Look at both sides of a Flower app and at this machine, and say what to change.

    Nothing of the app is run. Exits 0 if all is well, 1 if something must be changed, 2 if there is no app.
    """
    read = read_app(app)
    config = _read_node_config(node_config)
    count, source = (nodes, "--nodes") if nodes is not None else _nodes(read)
    findings = [
        _versions(),
        *_client(read),
        *_server(read),
        _dependency(read),
        _enough(count, source),
        *_policy(read, count, dim, config),
        _ledger(config),
    ]
    wrong = [finding for finding in findings if finding.level == "problem"]
    if json:
        print_json({"app": str(app), "healthy": not wrong, "nodes": count, "findings": [vars(f) for f in findings]})
    else:
        for finding in findings:
            told = escape(f"{finding.check}: {finding.found}")
            out.print(f"{_SIGNS[finding.level]} {told}", highlight=False, soft_wrap=True)
            if finding.change:
                out.print(f"    → {finding.change}", highlight=False, soft_wrap=True, markup=False)
        verdict = "Nothing to change." if not wrong else f"To change: {', '.join(finding.check for finding in wrong)}."
        out.print(verdict, highlight=False)
    if wrong:
        raise typer.Exit(EXIT_FAILED)


# What the machine has


def _versions() -> Finding:
    try:
        flower = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return Finding("versions", "problem", "Flower is not installed here", "pip install 'sparsesecagg[flower]'")
    ours = metadata.version("sparsesecagg") if _installed("sparsesecagg") else "not installed"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = f"Flower {flower}, sparsesecagg {ours}, Python {python}"
    if tuple(int(part) for part in flower.split(".")[:2]) < _OLDEST_FLOWER:
        wanted = ".".join(map(str, _OLDEST_FLOWER))
        return Finding("versions", "problem", found, f"pip install 'flwr[simulation]>={wanted},<2'")
    if not _installed("ray"):
        return Finding("versions", "note", f"{found}; no Ray", "pip install 'flwr[simulation]' to simulate nodes")
    return Finding("versions", "ok", found)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


# Both sides of the app


def _client(app: App) -> Iterator[Finding]:
    trained, file = mods_of(app.client, "train"), app.client.path.name
    line = f"from sparsesecagg.flower import {MOD}; @app.train(mods=[{MOD}])"
    if not trained:
        yield Finding("client", "problem", f"{file} has no @app.train function", "use Flower's Message API: ClientApp")
    elif not all(MOD in mods for mods in trained):
        yield Finding("client", "problem", f"a train function of {file} has no {MOD}", line)
    elif not all(mods[0] == MOD for mods in trained):
        yield Finding("client", "problem", f"{MOD} is not the first mod in {file}", f"put {MOD} first in mods=[…]")
    else:
        yield Finding("client", "ok", f"{file} has {MOD} around its train function")


def _server(app: App) -> Iterator[Finding]:
    file = app.server.path.name
    calls = app.server.named(STRATEGY)
    if not calls:
        line = f"from sparsesecagg.flower import {STRATEGY}; strategy = {STRATEGY}(FedAvg(...))"
        yield Finding("server", "problem", f"{file} has no {STRATEGY} around its strategy", line)
        return
    name, inner = wrapped(calls[0])
    inner = inner or next(iter(app.server.named("FedAvg")), None)
    if reason := _refused(name):
        yield Finding("server", "problem", f"{STRATEGY}({name}) can't work: {reason}", "wrap an averaging strategy")
    else:
        yield Finding("server", "ok", f"{file} has {STRATEGY} around {name or 'its strategy'}")
    if inner is not None and argument(inner, "fraction_evaluate") not in (0, 0.0):
        masked = (
            "fraction_evaluate=0.0, and evaluate_first(evaluate) beside the mod to have the metrics under the masks"
        )
        yield Finding("evaluation", "note", "evaluation on the nodes is not masked", masked)
    fewest = None if inner is None else argument(inner, "min_available_nodes")
    if inner is not None and (fewest is None or (isinstance(fewest, int) and fewest < 3)):
        yield Finding(
            "start",
            "note",
            "the strategy begins as soon as two nodes are there, and the first round decides who is in the run",
            "min_available_nodes=… of the strategy: the number of nodes that you expect, 3 or more",
        )


def _refused(name: str) -> str:
    if not _installed("flwr"):
        return ""
    from sparsesecagg.flower.settings import REFUSED

    return REFUSED.get(name, "").format(name=name)


def _dependency(app: App) -> Finding:
    """Tell whether Flower, which installs what an app asks for when it is run, would find this package."""
    wanted = app.requirement
    if os.environ.get(_NO_INSTALLATION) == "1":
        return Finding("dependency", "ok", f"{_NO_INSTALLATION}=1: Flower uses what is installed here")
    remedy = (
        f'"sparsesecagg[flower] @ {_origin()}" in its dependencies, or {_NO_INSTALLATION}=1 for SuperLink and nodes'
    )
    if wanted is None:
        return Finding("dependency", "problem", "the app's pyproject.toml does not ask for sparsesecagg", remedy)
    if "@" in wanted or app.has_source:
        return Finding("dependency", "ok", f"the app asks for {wanted!r}")
    if _direct_url() is not None:
        found = f"the app asks for {wanted!r}, which is installed here from a folder and not from a package index"
        return Finding("dependency", "problem", found, remedy)
    return Finding("dependency", "ok", f"the app asks for {wanted!r}")


def _direct_url() -> str | None:
    """Return where this package was installed from; None if that was an index, or if it runs from its source."""
    import json

    try:
        text = metadata.distribution("sparsesecagg").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return str(json.loads(text)["url"]) if text else None


def _origin() -> str:
    return _direct_url() or "file:///path/to/sparsesecagg"


# Nodes


def _nodes(app: App) -> tuple[int, str]:
    """Return how many nodes the app's files, or Flower's own configuration, say there are."""
    places = [("pyproject.toml", app.project.get("tool", {}).get("flwr", {}).get("federations", {}))]
    home = Path(os.environ.get("FLWR_HOME", str(Path.home() / ".flwr"))) / "config.toml"
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError):
        places.append((str(home), tomllib.loads(home.read_text(encoding="utf-8")).get("superlink", {})))
    for source, table in places:
        default = table.get("default")
        chosen = [table[default]] if default in table else [each for each in table.values() if isinstance(each, dict)]
        for each in chosen:
            count = each.get("options", {}).get("num-supernodes") if isinstance(each, dict) else None
            if isinstance(count, int):
                return count, source
    return _NODES_BY_DEFAULT, "Flower's default for simulations"


def _enough(count: int, source: str) -> Finding:
    if count >= 3:
        return Finding("nodes", "ok", f"{count} nodes ({source})")
    change = 'flwr run . --federation-config "num-supernodes=10", or start more SuperNodes (and name them: --nodes)'
    return Finding("nodes", "problem", f"{count} nodes ({source}), and a sum needs 3 or more", change)


def _policy(app: App, count: int, dim: int, config: dict[str, Any]) -> Iterator[Finding]:
    """Say what would be chosen for so many nodes, and whether a node with this configuration accepts it."""
    if count < 3 or not _installed("flwr"):
        return
    from flwr.app import Context, RecordDict

    from sparsesecagg.flower.choice import described
    from sparsesecagg.flower.figures import shape_of
    from sparsesecagg.flower.node import policy_of
    from sparsesecagg.flower.settings import Settings, weight_limit

    told = {name: _told(app, name) for name in ("alpha", "committee_size", "modulus_bits", "pattern")}
    if any(value is ... for value in told.values()):
        yield Finding("round", "note", "the settings of SecAgg are computed when the app runs, so they are not checked")
        return
    given = {name: value for name, value in told.items() if value is not None}
    try:
        most = _told(app, "max_weight")
        limit = weight_limit(
            str(_told(app, "weights") or "examples"),
            most if isinstance(most, int) else None,
            given.get("modulus_bits"),
            str(given.get("pattern", "committee")),
        )
        settings = Settings(**given, max_weight=limit)
        params = settings.parameters(count, dim)
    except SparseSecAggError as problem:
        yield Finding("round", "problem", f"{count} nodes can't run with these settings", str(problem))
        return
    sentences = described(params, settings.wish, limit) if settings.planned else [shape_of(params)]
    yield Finding("round", "ok", "; ".join(sentences[:2]))
    try:
        policy = policy_of(
            Context(run_id=0, node_id=0, node_config=config, state=RecordDict(), run_config={}),
        )
        policy.check_parameters(params)
    except SparseSecAggError as problem:
        yield Finding("policy", "problem", str(problem), "lower the node's demands, or have more nodes and no alpha")
    else:
        own = (
            ", ".join(f"{key}={value}" for key, value in config.items() if key.startswith("secagg-")) or "the defaults"
        )
        yield Finding("policy", "ok", f"a node with {own} accepts such a round")


def _told(app: App, name: str) -> Any:
    calls = app.server.named(STRATEGY)
    return argument(calls[0], name) if calls else None


def _read_node_config(text: str) -> dict[str, Any]:
    """Read a node's configuration as `flower-supernode --node-config` does: words of TOML."""
    words = _WORD.findall(text)
    try:
        if _WORD.sub("", text).strip():
            raise ValueError(text)
        return tomllib.loads("\n".join(f"{key} = {value}" for key, value in words))
    except (tomllib.TOMLDecodeError, ValueError):
        raise InvalidInput("node_config", f"must be words of the form key=value, got {text!r}") from None


def _ledger(config: dict[str, Any]) -> Finding:
    """Tell whether a node on this machine could write its ledger; nothing is made for that."""
    named = config.get("secagg-ledger") or os.environ.get("SPARSESECAGG_LEDGER")
    folder = Path(str(named)) if named else Path.home() / ".sparsesecagg" / "ledger"
    if folder.exists():
        problem = _unusable(folder, folder.stat)
        if problem:
            return Finding("ledger", "problem", f"{folder} {problem}", "chmod 700 the folder, or name another one")
        return Finding("ledger", "ok", f"{folder} can be written")
    parent = next(each for each in folder.absolute().parents if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        change = (
            "name a folder of the node's own: secagg-ledger in its node-config, SPARSESECAGG_LEDGER in a simulation"
        )
        return Finding("ledger", "problem", f"{folder} can't be made in {parent}", change)
    return Finding("ledger", "ok", f"{folder} will be made")


def _unusable(folder: Path, look: Callable[[], os.stat_result]) -> str:
    if not folder.is_dir():
        return "is no folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "can't be written"
    if os.name == "posix" and stat.S_IMODE(look().st_mode) & 0o077:
        return "is open to others"
    return ""
