"""Draw one round's time, and say at which ratio of computing to transfer the paper's speed-ups would hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.clock.config import CLAIMS
from experiments.common.experiment import Row
from experiments.common.plotting import panels, save

SHADES = {
    "training": "#bbbbbb",
    "user's protocol": "#e59f4c",
    "server's protocol": "#b5651d",
    "transfer": "#1f6fb2",
    "latency": "#9fc5e8",
}


class Split(NamedTuple):
    """The seconds of one round, as one user and the server see it."""

    training: float
    client: float
    server: float
    transfer: float
    latency: float

    @property
    def total(self) -> float:
        return sum(self)


def split(result: Mapping[str, Any], place: int) -> Split:
    """Return the parts of one entry: measured computing, and transfer and latency from bytes and exchanges."""
    config, found, timing = (
        result["configuration"],
        result["numbers"]["rounds"][place],
        result["timings"]["rounds"][place],
    )
    moved = found["sent_bytes"] + found["received_bytes"] + found["model_bytes"]
    return Split(
        timing["training"],
        timing["client"],
        timing["server"],
        8 * moved / (1e6 * config["bandwidth_mbit"]),
        found["exchanges"] * 2 * config["latency_ms"] / 1000,
    )


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw stacked bars, one panel per setting."""
    rounds = result["numbers"]["rounds"]
    settings = list(dict.fromkeys((one["model"], one["clients"], one["dim"]) for one in rounds))
    config = result["configuration"]
    figure, axes = panels(
        len(settings),
        f"one round: θ = {config['dropout']:g}, {config['bandwidth_mbit']:g} Mbit/s, "
        f"{config['latency_ms']:g} ms each way",
        3.4,
        3.8,
    )
    for panel, (model, clients, dim) in zip(axes, settings, strict=True):
        places = [n for n, one in enumerate(rounds) if (one["model"], one["clients"]) == (model, clients)]
        bottoms = [0.0] * len(places)
        splits = [split(result, place) for place in places]
        for part, (label, colour) in enumerate(SHADES.items()):
            heights = [one[part] for one in splits]
            panel.bar(range(len(places)), heights, bottom=bottoms, color=colour, width=0.7, label=label)
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        for number, top in enumerate(bottoms):
            panel.annotate(f"{top:.2g} s", (number, top), ha="center", va="bottom", fontsize=8)
        panel.set_ylim(0, 1.15 * max(bottoms))
        panel.set_xticks(
            range(len(places)), [rounds[place]["system"].replace(", ", ",\n") for place in places], fontsize=6
        )
        panel.set_title(f"{model}, d = {dim:,}, N = {clients}", fontsize=9)
    axes[0].set_ylabel("seconds")
    axes[-1].legend(fontsize=7)
    return save(figure, folder, result["name"])


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return each system's parts, the speed-up of equal rounds, and what the claims would take."""
    rounds = result["numbers"]["rounds"]
    rows = []
    for place, one in enumerate(rounds):
        base = next(
            other
            for other, found in enumerate(rounds)
            if (found["model"], found["clients"], found["system"]) == (one["model"], one["clients"], "SecAgg")
        )
        mine, theirs = split(result, place), split(result, base)
        who = f"{one['model']}, N={one['clients']}, {one['system']}"
        parts = (
            f"training {mine.training:.2g} s, user's protocol {mine.client:.2g} s, server's {mine.server:.2g} s, "
            f"transfer {mine.transfer:.2g} s, latency {mine.latency:.2g} s"
        )
        if place == base:
            rows.append(Row(f"{who}: one round", "–", f"{mine.total:.2g} s", parts))
            continue
        claims = [CLAIMS[figure] for figure in one["figures"]] if one["system"].startswith("pairwise") else []
        rows.append(
            Row(
                f"{who}: faster than SecAgg with as many rounds",
                " and ".join(f"{claim:g}×" for claim in claims) or "–",
                f"{theirs.total / mine.total:.2f}×",
                f"{parts}; without the server's work {_users(theirs) / _users(mine):.2f}×",
            )
        )
    return rows + ratio_rows(result)


def _users(one: Split) -> float:
    return one.total - one.server


def ratio_rows(result: Mapping[str, Any]) -> list[Row]:
    """Return the computing, in units of SecAgg's transfer, with which equal rounds give each claim."""
    published = [one for one in result["numbers"]["rounds"] if one["system"] == "pairwise"]
    if not published:
        return []
    largest = max(published, key=lambda one: one["clients"])
    share = largest["paper_upload_bytes"] / largest["model_bytes"]
    rows = []
    for figure, claim in CLAIMS.items():
        found = {name: computing_for(claim, share, both) for name, both in (("both ways", True), ("upload", False))}
        texts = [
            f"{ratio:.2g} ({name} counted)" if ratio is not None else f"no ratio ({name} counted)"
            for name, ratio in found.items()
        ]
        rows.append(
            Row(
                f"{figure}: computing ÷ SecAgg's transfer at which equal rounds give {claim:g}×",
                f"{claim:g}×",
                ", ".join(texts),
                f"computed: an update of the published pattern is {share:.3f} of SecAgg's, the model goes down whole",
            )
        )
    return rows


def computing_for(speedup: float, share: float, both_ways: bool) -> float | None:
    """Return c with (c + 1)/(c + x) = `speedup`, x being the sparse transfer as a part of SecAgg's; None if none does.

    Computing is taken to be the same in both systems. Both ways, half of SecAgg's transfer is the model going down.
    """
    sparse = (1 + share) / 2 if both_ways else share
    computing = (1 - speedup * sparse) / (speedup - 1)
    return computing if computing >= 0 else None
