"""Colours, dashes and markers of runs: the same in every plot, safe for colour-blind readers.

Hues follow Okabe and Ito. Colour is never the only sign: every run also has its own dash and marker.
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT_RUNS = ("#1283ce", "#a83100", "#af5390", "#444b53", "#00805e", "#a67400", "#4b3f9e", "#7a4a2b")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")


@dataclass(frozen=True)
class Theme:
    """The other colours, by role."""

    ink: str
    soft: str
    grid: str
    bad: str
    heat: tuple[str, str]


LIGHT = Theme("#1d2733", "#5b6672", "#e3e7ec", "#b3261e", ("#eef3f8", "#0b4f80"))
