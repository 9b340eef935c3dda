"""Colours, dashes and markers of runs: the same in every plot, safe for colour-blind readers.

Hues follow Okabe and Ito. Colour is never the only sign: every run also has its own dash and marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LIGHT_RUNS = ("#1283ce", "#a83100", "#af5390", "#444b53", "#00805e", "#a67400", "#4b3f9e", "#7a4a2b")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")

# The usual aggregators keep their colour from one report to the next.
PREFERRED = {
    "sliced": 0,
    "pairwise": 1,
    "secagg": 2,
    "plain": 3,
    "secagg-plus": 4,
    "plain-randk": 5,
    "plain-topk": 6,
}


@dataclass(frozen=True)
class Theme:
    """The other colours, by role."""

    ink: str
    soft: str
    grid: str
    bad: str
    heat: tuple[str, str]


LIGHT = Theme("#1d2733", "#5b6672", "#e3e7ec", "#b3261e", ("#eef3f8", "#0b4f80"))


def assign(aggregators: Sequence[str]) -> list[int]:
    """Give each run a place in the palette: the aggregator's own where it is free, else the next free one."""
    size = len(LIGHT_RUNS)
    # The places of the other runs' aggregators are left alone as long as there are others.
    kept = {PREFERRED[name] for name in aggregators if name in PREFERRED}
    places: list[int] = []
    for aggregator in aggregators:
        wanted = PREFERRED.get(aggregator)
        if wanted is None or wanted in places:
            free = [place for place in range(size) if place not in places and place not in kept]
            wanted = next(iter(free or [place for place in range(size) if place not in places]), len(places) % size)
        places.append(wanted)
    return places
