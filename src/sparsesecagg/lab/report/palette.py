"""Colours, dashes and markers of runs: the same in every plot, safe for colour-blind readers.

Hues follow Okabe and Ito. Colour is never the only sign: every run also has its own dash and marker.
"""

RUNS = ("#1283ce", "#a83100", "#af5390", "#444b53", "#00805e", "#a67400", "#4b3f9e", "#7a4a2b")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")
INK, GRID, BAD = "#1d2733", "#e3e7ec", "#b3261e"
HEAT = ("#eef3f8", "#0b4f80")
