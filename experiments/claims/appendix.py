"""The pages behind docs/reproduction.md: every row of every figure, its picture, and where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.claims.claim import Results, known
from experiments.common import results
from experiments.common.experiment import NAMES, load

PAGES = {
    "counts": ("Bytes, counts and theory", ("table1", "fig2", "fig4", "theory")),
    "training": ("Training", ("fig5", "fig6", "fig3", "mcmahan", "hypotheses", "tradeoff")),
    "clock": ("Wall clock", ("clock",)),
}
"""Page → its title and the experiments on it."""
NETWORK = "network"


def pages(folder: Path) -> dict[str, str]:
    """Return the text of every page, by file name."""
    found = known(folder, NAMES)
    texts = {name: _page(title, names, found) for name, (title, names) in PAGES.items()}
    network = folder / f"{NETWORK}.json"
    texts["clock"] += _network(results.read(network) if network.exists() else None)
    return {f"reproduction-{name}.md": text for name, text in texts.items()}


def _page(title: str, names: tuple[str, ...], found: Results) -> str:
    head = (
        f"# The paper, measured again: {title.lower()}\n\n"
        "Everything that stands behind [The paper, measured again](reproduction.md), written by "
        "`python -m experiments.publish` from `results/`. Times are seconds of the machine that is named.\n"
    )
    return head + "".join(_section(name, found.get(name)) for name in names)


def _section(name: str, result: Mapping[str, Any] | None) -> str:
    experiment = load(name)
    heading = f"\n## {name}: {experiment.title}\n\n"
    if result is None:
        hours = experiment.cpu_minutes / 60
        return (
            heading + f"Not measured yet. `sparsesecagg reproduce {name}` takes about {hours:.1f} hours of one core.\n"
        )
    picture = f"![{experiment.title}](../results/plots/{name}.svg)\n\n"
    state = "" if result["complete"] else " **Not complete**: the same command continues with what is missing."
    rows = "".join(f"| {' | '.join(row)} |\n" for row in experiment.compare(result))
    return (
        heading
        + f"`{result['command']}`, {provenance(result)}.{state}\n\n"
        + picture
        + f"| | paper | ours | note |\n| --- | --- | --- | --- |\n{rows}"
    )


def provenance(result: Mapping[str, Any]) -> str:
    """Return commit, date, seeds, data and machine."""
    machine, seeds = result["machine"], result["seeds"]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    note = "" if result["data"]["sha256"] is None else f", {result['data']['name']} ({result['data']['note']})"
    load = f"load {machine['load_before']:g} before, on {machine['cores']} cores"
    return f"commit {result['commit']}, {result['date']}, {which}{note}, {machine['processor']}, {load}"


def _network(result: Mapping[str, Any] | None) -> str:
    heading = "\n## network: processes on real lines of 100 Mbit/s\n\n"
    if result is None:
        return heading + "Not measured yet: `sudo .venv/bin/python -m experiments.network.run`, a minute or two.\n"
    config, machine = result["configuration"], result["machine"]
    text = (
        f"`{result['command']}`, commit {result['commit']}, {result['date']}, {machine['processor']}, "
        f"{machine['cores']} cores, load {machine['load']:g}. {config['users']} processes in network namespaces, each "
        f"line limited to {config['mbit']:g} Mbit/s both ways by the kernel; no latency is added. Transfers in seconds "
        "as measured, beside what the bytes take at that rate; computing of one user and of the server in processor "
        f"time. {config['dropout']:.0%} drop out. The model down is the same bytes in all rows of a model: its seconds "
        "differ by chance.\n\n"
        "| parameters | system | model down | update up | UNMASK | user | server | round | modelled round |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    for one in result["rounds"]:
        there, model = one["seconds"], one["modelled"]
        moved = " | ".join(f"{there[part]:.3f} ({model[part]:.3f})" for part in ("down", "up", "unmask"))
        rest = f"{there['user']:.3f} | {there['server']:.3f} | {there['round']:.2f} | {model['round']:.2f}"
        text += f"| {one['dim']:,} | {one['label']} | {moved} | {rest} |\n"
    return heading + text
