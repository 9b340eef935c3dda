"""One cohort through Flower's SecAgg+ and our SecAgg, SecAgg+, pairwise and sliced, side by side.

    python -m benchmarks.compare --clients 50 --dim 170000 --alpha 0.1 --dropout 0.1 --modulus-bits 8 [--json]

Same clients, updates, dropouts (at UPLOAD, the expensive kind), share holders and threshold for all. Each round runs in
a process of its own; the repeats of the systems take turns, so that a busy moment of the machine hits all alike.
Reported are medians over the repeats. Client seconds are the mean per client, server seconds the sum over all clients.
`--modulus-bits` sets the words of the sparse systems; SecAgg and SecAgg+ keep the published 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import child, command, memory, page, peer_flower, systems
from benchmarks.setting import Setting
from sparsesecagg.errors import InvalidInput

SYSTEMS = (peer_flower.NAME, *systems.OURS)
BASES = {
    "flower": (peer_flower.NAME, systems.OURS),
    "secagg": ("secagg", systems.OURS[1:]),
}
"""What the others are measured against."""


def main(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N).")] = 50,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 170_000,
    alpha: Annotated[float, typer.Option(help="Fraction that each user of a sparse system sends, in (0, 1].")] = 0.1,
    dropout: Annotated[float, typer.Option(help="Fraction of users that drop out at UPLOAD (θ), in [0, 0.5).")] = 0.1,
    modulus_bits: Annotated[int, typer.Option(help="Bits of a word in pairwise and sliced.")] = 8,
    repeats: Annotated[int, typer.Option(help="Rounds of each of our systems.")] = 3,
    peer_repeats: Annotated[int, typer.Option(help="Rounds of Flower's SecAgg+, whose server is slow.")] = 1,
    only: Annotated[str, typer.Option("--systems", help=f"Comma-separated, of {', '.join(SYSTEMS)}.")] = "",
    json: command.JsonOption = False,
    seed: command.SeedOption = 0,
) -> None:
    """Run one cohort through all systems and report seconds, bytes and memory."""
    setting = Setting(clients, dim, alpha, dropout, modulus_bits, seed)
    answer = compare(setting, _chosen(only), repeats=repeats, peer_repeats=peer_repeats)
    if json:
        command.print_json(answer)
    else:
        command.out.print(
            f"{page.costs(answer)}\n\n{page.ratios(answer)}", markup=False, highlight=False, soft_wrap=True
        )


def compare(
    setting: Setting, chosen: Sequence[str] = SYSTEMS, *, repeats: int = 3, peer_repeats: int = 1
) -> dict[str, Any]:
    """Return the comparison as it is printed; a peer that is not installed is left out with a note."""
    for option, count in (("repeats", repeats), ("peer_repeats", peer_repeats)):
        if count < 1:
            raise InvalidInput(option, f"must be at least 1, got {count}")
    present = _installed(chosen)
    for system in present:
        if system in systems.OURS:
            systems.parameters(system, setting)  # Refuses bad settings before anything has run.
    memory.refuse_what_does_not_fit(present, setting)

    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in present}
    turns = [
        (turn, system)
        for turn, system in product(range(max(repeats, peer_repeats)), present)
        if turn < (peer_repeats if system == peer_flower.NAME else repeats)
    ]
    with command.progress() as bar:
        task = bar.add_task("", total=len(turns))
        for _, system in turns:
            bar.update(task, description=system)
            runs[system].append(child.measure_system(system, setting))
            bar.advance(task)
    summaries = {system: summarise(rounds) for system, rounds in runs.items()}
    return {
        "systems": summaries,
        "ratios": {name: dict(_ratios(summaries, *pair)) for name, pair in BASES.items() if pair[0] in summaries},
        "settings": {
            **setting.settings(),
            "repeats": repeats,
            "peer_repeats": peer_repeats,
            "dropped": len(setting.dropped),
        },
        "missing": [system for system in chosen if system not in present],
    }


def summarise(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of one system's rounds, and how far they lie apart."""

    def median(key: str) -> Any:
        values = [one[key] for one in rounds]
        if isinstance(values[0], dict):
            return {stage: float(np.median([value[stage] for value in values])) for stage in values[0]}
        return float(np.median(values))

    def spread(key: str) -> dict[str, float]:
        totals = [one[key]["total"] for one in rounds]
        return {"least": min(totals), "most": max(totals)}

    return {
        **{key: median(key) for key in ("client_seconds", "server_seconds", "sent_bytes", "received_bytes")},
        "spread": {key: spread(key) for key in ("client_seconds", "server_seconds")},
        "peak_memory_bytes": max(one["peak_memory_bytes"] for one in rounds),
        "exact": all(one["exact"] for one in rounds),
        "repeats": len(rounds),
        "settings": rounds[0]["settings"],
    }


def _ratios(summaries: dict[str, Any], base: str, others: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield how many times less than the base each of the others takes."""
    keys = {"client": ("client_seconds", "total"), "client_upload": ("client_seconds", "UPLOAD")} | {
        "server": ("server_seconds", "total"),
        "sent_bytes": ("sent_bytes",),
        "peak_memory": ("peak_memory_bytes",),
    }

    def cost(system: str, path: Sequence[str]) -> float:
        return float(reduce(lambda found, key: found[key], path, summaries[system]))

    for system in others:
        if system in summaries:
            yield system, {name: cost(base, path) / cost(system, path) for name, path in keys.items()}


def _chosen(only: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in SYSTEMS:
            raise InvalidInput("systems", f"must be some of {', '.join(SYSTEMS)}, got {name!r}")
    return names or SYSTEMS


def _installed(chosen: Sequence[str]) -> list[str]:
    there = peer_flower.NAME not in chosen or peer_flower.installed()
    return [system for system in chosen if there or system != peer_flower.NAME]


if __name__ == "__main__":
    command.run(main)
