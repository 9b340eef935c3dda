"""Colours: one per run, the same in every plot, safe for colour-blind readers, in a light and a dark set.

Hues follow Okabe and Ito. Lightness is moved so that each stands out by 3:1 from its background (WCAG 1.4.11) and
any two stay apart for every kind of colour vision; the tests measure both.
Colour is never the only sign: every run also has its own dash and marker. Plots carry tokens such as `@run0`,
which the page replaces, so switching between light and dark needs no second copy of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LIGHT_RUNS = ("#1283ce", "#a83100", "#af5390", "#444b53", "#00805e", "#a67400", "#4b3f9e", "#7a4a2b")
DARK_RUNS = ("#57b6eb", "#f0803c", "#ce80a9", "#cad4e7", "#3ddbae", "#e6b422", "#929bff", "#bc9572")

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")

# The usual aggregators keep their colour from one report to the next.
PREFERRED = {
    "committee": 0,
    "pairwise": 1,
    "secagg": 2,
    "plain": 3,
    "secagg-plus": 4,
    "plain-randk": 5,
    "plain-topk": 6,
}


@dataclass(frozen=True)
class Theme:
    """The colours of one scheme, by role."""

    ink: str
    soft: str
    grid: str
    surface: str
    bad: str
    heat: tuple[str, str]
    runs: tuple[str, ...]

    def tokens(self) -> dict[str, str]:
        """Return what each token of a plot stands for."""
        named = {
            "@ink": self.ink,
            "@soft": self.soft,
            "@grid": self.grid,
            "@surface": self.surface,
            "@bad": self.bad,
        }
        named |= {"@heat0": self.heat[0], "@heat1": self.heat[1], "@clear": "rgba(0,0,0,0)"}
        for index, colour in enumerate(self.runs):
            named[f"@run{index}"] = colour
            red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            named[f"@wash{index}"] = f"rgba({red},{green},{blue},0.14)"
        return named


LIGHT = Theme("#1d2733", "#5b6672", "#e3e7ec", "#ffffff", "#b3261e", ("#eef3f8", "#0b4f80"), LIGHT_RUNS)
DARK = Theme("#e6ebf0", "#9daab7", "#2e3944", "#1a222b", "#ff8a80", ("#1f2a35", "#7cc7f2"), DARK_RUNS)


def assign(aggregators: Sequence[str]) -> list[int]:
    """Give each run a place in the palette: the aggregator's own where it is free, else the next free one."""
    size = len(LIGHT_RUNS)
    places: list[int] = []
    for aggregator in aggregators:
        wanted = PREFERRED.get(aggregator)
        if wanted is None or wanted in places:
            # Leave the places of the other runs' aggregators alone as long as there are others.
            kept = {PREFERRED[name] for name in aggregators if name in PREFERRED}
            free = [p for p in range(size) if p not in places and p not in kept]
            free = free or [p for p in range(size) if p not in places] or [len(places) % size]
            wanted = free[0]
        places.append(wanted)
    return places


def painted(node: Any, theme: Theme, key: str = "") -> Any:
    """Replace the tokens of a plot by a theme's colours, as the page's script does."""
    if isinstance(node, dict):
        return {name: painted(value, theme, name) for name, value in node.items()}
    if isinstance(node, list):
        return [painted(value, theme, key) for value in node]
    if isinstance(node, str) and "color" in key:
        return theme.tokens().get(node, node)
    return node
